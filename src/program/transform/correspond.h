// How dimensions of an operation's operands and results correspond: what every transform that splits tensors rests on.
//
// Each dimension has a label. Dimensions with the same label run together: the operation on the i-th slice of all
// operands, cut along one label, gives the i-th slice of the results. A label that no result has is one along which the
// operation folds: the results of the slices, folded, are the result. kWhole: a dimension that cannot be cut.
//
// Pure functions.
#pragma once

#include <optional>
#include <vector>

#include "src/base/types.h"
#include "src/program/program.h"

namespace axccl::program {

inline constexpr int kWhole = -1;

struct Correspondence {
  std::vector<std::vector<int>> operands, results;  // [operand or result][dimension]
  std::optional<Combine> fold;                      // of labels that no result has
};

// `operands`: the types. Where each result comes from the operand of the same number alone, as in collectives, labels
// of one do not occur in another.
Correspondence CorrespondenceOf(const Operation& operation, const std::vector<TensorType>& operands);

// Whether the operation on terms of sums gives terms of the sum of its results, if all operands are such terms.
bool IsLinear(const Operation& operation, Combine fold);

}  // namespace axccl::program
