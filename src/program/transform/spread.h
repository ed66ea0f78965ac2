// How the values of a function are spread over the parts that a transform makes of it: the ranks of a new axis, or the
// microbatches of a pipeline. Follows from how its arguments are spread and how dimensions correspond (correspond.h).
//
// Pure functions of their arguments.
#pragma once

#include <functional>
#include <string>
#include <unordered_map>
#include <vector>

#include "src/base/status.h"
#include "src/program/program.h"

namespace axccl::program {

struct Layout {
  enum class Kind : uint8_t {
    kSame,   // every part has all of it
    kSplit,  // each has a slice along `dim`, in the order of the parts
    kTerms,  // each has a term; the terms folded are the value
    kOpen,   // an argument whose first use decides between kSame and kSplit
  };
  Kind kind = Kind::kSame;
  int dim = 0;
  Combine fold = Combine::kSum;

  static Layout Split(int dim) { return {Kind::kSplit, dim}; }
  static Layout Terms(Combine fold) { return {Kind::kTerms, 0, fold}; }
  static Layout Open() { return {Kind::kOpen}; }
  bool is_same() const { return kind == Kind::kSame; }
  bool is_split() const { return kind == Kind::kSplit; }
  bool is_terms() const { return kind == Kind::kTerms; }
  friend bool operator==(const Layout&, const Layout&) = default;
};

struct SpreadRules {
  std::string transform;  // for errors: "data 2"
  int64_t parts = 1;
  // Whether sums of terms stay terms; otherwise every use of a value needs all of them.
  bool carries_terms = true;
  // What terms become where something needs the value itself; empty: kSame.
  std::function<Layout(Id, const TensorType&)> resolved;
};

// The layouts that an operation's operands must be brought into, and those that its results then have.
struct SpreadStep {
  std::vector<Layout> operands, results;
};

struct Spread {
  std::vector<SpreadStep> steps;           // of the operations, in their order
  std::unordered_map<Id, Layout> layouts;  // of arguments and results, as they are made; none is open
};

// `arguments`: the layouts of the arguments, in their order. kInvalidArgument, which names operation and dimension, if
// a dimension that is split cannot pass through an operation.
Result<Spread> SpreadOf(const Function& function, const std::vector<Layout>& arguments, const SpreadRules& rules);

// The type of a part's piece.
TensorType PieceOf(const TensorType& type, const Layout& layout, int64_t parts);

}  // namespace axccl::program
