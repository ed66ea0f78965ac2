// Reductions by a callback of the application. Piece by piece, the sources are folded in order into a buffer of this
// rank, and the result is copied to the destinations. So the callback gets dense elements that do not overlap, whatever
// the operands' strides are, and a destination may be any of the sources.
//
// Factors and divisors of the requests are ignored: a callback's reductions have none.
#pragma once

#include <cstddef>

#include "kernels/host/box.h"
#include "kernels/host/mover.h"
#include "src/base/sizes.h"
#include "src/exec/call/call.h"

namespace axccl::exec {

// The memory in which pieces are folded.
struct FoldSpace {
  static constexpr size_t kBytes = 64u << 10;
  alignas(kCacheLine) std::byte accumulator[kBytes];
  alignas(kCacheLine) std::byte operand[kBytes];
};

void Fold(const kernels::ReduceRequest& request, const Callback& callback, FoldSpace* space);
void FoldBoxes(const kernels::BoxReduceRequest& request, const Callback& callback, FoldSpace* space);

}  // namespace axccl::exec
