// What transforms know of a training step: its state, its forward pass, and the batch. Pure functions.
#pragma once

#include <vector>

#include "src/base/status.h"
#include "src/program/program.h"

namespace axccl::program {

// [argument]: the results that are the next values of donated arguments come first, in the order of these.
std::vector<size_t> StateOf(const Function& function);
bool IsBatch(const Value& argument);

// [operation]: whether a loss is computed from it; these are the last `losses` results.
std::vector<bool> ForwardOf(const Function& function, size_t losses);

// A channel that no operation of the program has.
int64_t FreeChannel(const Program& program);

// Whether all slices along the dimension are equal, and the operation with a smaller result gives them.
bool IsEverywhereTheSame(const Operation& operation, int dim);

// `piece` is the operation on slices, with the result's type of these; what it takes of dimensions that it takes whole
// is the slice now.
void FitToResult(const Operation& operation, Operation* piece);

// As the operation, for ranks[r] in the place of r, once for each list of `ranks`.
Operation WithRanks(const Operation& operation, const std::vector<Ints>& ranks);

}  // namespace axccl::program
