// The pretty forms of operations, as data. Those with a syntax of their own, such as while, are in parser.h.
#pragma once

#include <string_view>

#include "src/program/program.h"

namespace axccl::program::stablehlo {

// `, keyword = value` behind the operands.
struct Clause {
  enum class Form : uint8_t {
    kNone,       // ends the list
    kInts,       // `dims = [0, 1]`
    kNumber,     // `dim = 0`
    kPair,       // `batching_dims = [0] x [1]`: two fields of dot_dimension_numbers
    kPrecision,  // `precision = [DEFAULT, HIGH]`
    kWord,       // `LT`, without keyword
  };
  Form form = Form::kNone;
  std::string_view keyword;
  std::string_view key;  // the attribute
  bool is_optional = false;
};

// What follows the ':'.
enum class Types : uint8_t {
  kFunction,  // `(tensor<f32>) -> tensor<f32>`
  kSame,      // `tensor<f32>` of operands and result, or a function type
  kSelect,    // those of predicate and result, or a function type
  kEach,      // one for each operand and its result
  kResult,    // that of the result
};

struct Syntax {
  OpKind kind;
  Types types;
  Clause clauses[3];
  bool word_first = false;  // the first clause comes before the operands
  bool has_ranges = false;  // slice: `[0:8:2, 1:3]` behind the operand
};

// Null if the pretty form is the generic one, or is not in the table.
const Syntax* FindSyntax(OpKind kind);

}  // namespace axccl::program::stablehlo
