// Single operations by their definitions in StableHLO, on tensors of the operation's types: the local ones, and
// collectives on the operands of all ranks of a group. Slow and simple: what everything else is compared with. Nothing
// here is shared with the library's kernels and executors.
//
// Programs must have passed Check (check.h): nothing here looks at types, shapes or attributes again. Pure functions.
#pragma once

#include <span>
#include <vector>

#include "src/base/status.h"
#include "src/program/program.h"
#include "src/program/tensor.h"

namespace axccl::program {

using Tensors = std::vector<Tensor>;
using TensorSpan = std::span<const Tensor* const>;

// The result of an operation that has one, no regions, and needs no other rank: all but control flow and what is
// between ranks.
Tensor ComputeLocal(const Operation& operation, TensorSpan operands);

// Families of these.
Tensor ComputeElements(const Operation& operation, TensorSpan operands);  // element by element
Tensor ComputeMove(const Operation& operation, TensorSpan operands);      // elements change their places
Tensor ComputeGather(const Operation& operation, TensorSpan operands);
Tensor ComputeScatter(const Operation& operation, TensorSpan operands);
Tensor ComputeDot(const Operation& operation, TensorSpan operands);     // dot, dot_general
Tensor ComputeReduce(const Operation& operation, TensorSpan operands);  // floats of 16 bits are rounded at the end

// A collective of a group: operands[p] are those of its p-th rank, and the result has the results of each. Reductions
// fold in the order of the group; floats of 16 bits accumulate in float and are rounded at the end. Of
// collective_permute, `ranks` are those of the group, to which pairs refer.
// Of collective_broadcast_from and collective_reduce_to, CheckRoots has accepted the roots.
std::vector<Tensors> ComputeCollective(const Operation& operation,
                                       const std::vector<std::vector<const Tensor*>>& operands, const Ints& ranks);

// kInvalidUsage if the roots of a collective with a dynamic one are not positions in its group, or not the same on all
// of its ranks. Arguments as above.
Status CheckRoots(const Operation& operation, const std::vector<std::vector<const Tensor*>>& operands,
                  const Ints& ranks);

}  // namespace axccl::program
