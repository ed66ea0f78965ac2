// Reductions by a callback of the application: piece by piece, the sources are folded in order into a buffer of this
// rank's own, and the result is copied to the destinations. So the callback sees dense elements that overlap nothing,
// whatever the operands' strides, and a destination may be any of the sources.
#include <algorithm>

#include "kernels/host/mover.h"
#include "src/exec/host/operation.h"

namespace axccl::exec {
namespace {

Channel::FoldSpace* SpaceOf(Channel* channel) {
  if (channel->fold_space == nullptr) channel->fold_space = std::make_unique_for_overwrite<Channel::FoldSpace>();
  return channel->fold_space.get();
}

// An operand of the rest of a range, `bytes` further on: only packed ones begin with their range.
kernels::BoxOperand Advanced(const kernels::BoxOperand& operand, uint64_t bytes) {
  if (operand.strides != nullptr) return operand;
  return {static_cast<std::byte*>(operand.data) + bytes, nullptr};
}

}  // namespace

void Operation::FoldFlat(const Places& places, uint64_t count) {
  Channel::FoldSpace* const space = SpaceOf(channel_);
  const size_t size = ElementSize(call_.type);
  const uint64_t most = Channel::FoldSpace::kBytes / size;
  for (uint64_t done = 0; done < count; done += most) {
    const uint64_t part = std::min(most, count - done);
    auto source = [&](int k) {
      return static_cast<const std::byte*>(channel_->src[static_cast<size_t>(k)]) + done * size;
    };
    void* const accumulator = space->accumulator;
    kernels::Copy(&accumulator, 1, source(0), part * size, false);
    for (int k = 1; k < places.num_src; ++k)
      call_.callback->function(accumulator, source(k), part, call_.callback->context);
    for (int d = 0; d < places.num_dst; ++d) {
      void* const to = static_cast<std::byte*>(channel_->dst[static_cast<size_t>(d)]) + done * size;
      kernels::Copy(&to, 1, accumulator, part * size, false);
    }
  }
}

void Operation::FoldBoxes(const kernels::BoxReduceRequest& request) {
  Channel::FoldSpace* const space = SpaceOf(channel_);
  const size_t size = ElementSize(call_.type);
  const uint64_t most = Channel::FoldSpace::kBytes / size;
  const kernels::BoxOperand accumulator{space->accumulator, nullptr}, operand{space->operand, nullptr};
  kernels::BoxRange range = request.range;
  for (uint64_t done = 0; done < request.range.count; done += most) {
    range.begin = request.range.begin + done;
    range.count = std::min(most, request.range.count - done);
    kernels::CopyBox(range, &accumulator, 1, Advanced(request.src[0], done * size), size, false);
    for (int k = 1; k < request.num_src; ++k) {
      const kernels::BoxOperand from = Advanced(request.src[k], done * size);
      if (from.strides != nullptr) kernels::CopyBox(range, &operand, 1, from, size, false);
      call_.callback->function(accumulator.data, from.strides != nullptr ? operand.data : from.data, range.count,
                               call_.callback->context);
    }
    for (int d = 0; d < request.num_dst; ++d) {
      const kernels::BoxOperand to = Advanced(request.dst[d], done * size);
      kernels::CopyBox(range, &to, 1, accumulator, size, request.non_temporal);
    }
  }
}

}  // namespace axccl::exec
