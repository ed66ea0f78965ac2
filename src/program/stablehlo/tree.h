// A module as it was written, the same for the pretty and the generic form: names are resolved, and what the pretty
// form has in its own syntax is an attribute under its generic name. Nothing is said about ranks, and calls are calls.
//
// Plain data. Views are of the text, and valid as long as it is. `at` is where something begins in the text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "src/program/program.h"

namespace axccl::program::stablehlo {

struct NamedAttr;

struct AttrNode {
  enum class Form : uint8_t {
    kUnit,      // a key without value
    kBool,      // number
    kNumber,    // number; word: its type, if it is written
    kFloat,     //
    kText,      // word: between the quotes
    kSymbol,    // word: behind '@'
    kInts,      // ints: `array<i64: 0, 1>`, `[0, 1]`, `[]`
    kList,      // items: another list
    kDense,     // types: its own; literal; word: the type of the elements
    kFields,    // fields: `#stablehlo.name<key = value>`, or `{key = value}` without a name
    kWord,      // word: LT of `#stablehlo<name LT>`
    kSubAxis,   // ints: the two numbers of `(1)2`
    kMesh,      // fields: the sizes of the axes; ints: the ids of the devices
    kType,      // types: the inputs of a function, then its outputs; number: of the inputs
    kSharding,  // word: the mesh; items: the axes of each dimension, kSubAxis by name in word
  };
  Form form = Form::kUnit;
  size_t at = 0;
  int64_t number = 0;
  std::string_view word;
  std::string_view name;
  Ints ints;
  std::vector<AttrNode> items;
  std::vector<NamedAttr> fields;
  std::vector<TensorType> types;
  Literal literal;
};

struct NamedAttr {
  size_t at = 0;
  std::string_view key;
  AttrNode value;
};

// Null if there is none.
inline const NamedAttr* Find(const std::vector<NamedAttr>& attributes, std::string_view key) {
  for (const NamedAttr& attribute : attributes) {
    if (attribute.key == key) return &attribute;
  }
  return nullptr;
}

using ValueId = uint32_t;  // index into Func::types

struct Op;

struct Region {
  size_t at = 0;
  ValueId first_argument = 0;
  size_t arguments = 0;
  std::vector<Op> ops;
  std::vector<ValueId> results;  // what its return has
};

struct Op {
  size_t at = 0;
  std::string_view name;  // "stablehlo.add", "mhlo.copy", "func.call"
  std::vector<ValueId> operands;
  ValueId first_result = 0;
  size_t results = 0;
  std::vector<NamedAttr> attributes;
  std::vector<Region> regions;
};

struct Func {
  size_t at = 0;
  std::string_view name;
  Region body;
  std::vector<TensorType> types;    // of all its values
  std::vector<TensorType> results;  // as many as body.results, and the same
  std::vector<bool> donated;        // by argument
};

struct Axis {
  std::string_view name;
  int64_t size = 1;
};

struct Mesh {
  size_t at = 0;
  std::string_view name;
  std::vector<Axis> axes;
  Ints device_ids;  // empty: 0, 1, 2, ...
};

struct Module {
  int64_t replicas = 0;  // 0: not said
  int64_t partitions = 0;
  std::vector<Func> funcs;
  std::vector<Mesh> meshes;
};

}  // namespace axccl::program::stablehlo
