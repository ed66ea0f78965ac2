#include "src/exec/host/fold.h"

#include <algorithm>

namespace axccl::exec {
namespace {

// An operand of the rest of a range, `bytes` further on: only packed operands start at the range's begin.
kernels::BoxOperand Advanced(const kernels::BoxOperand& operand, uint64_t bytes) {
  if (operand.strides != nullptr) return operand;
  return {static_cast<std::byte*>(operand.data) + bytes, nullptr};
}

}  // namespace

void Fold(const kernels::ReduceRequest& request, const Callback& callback, FoldSpace* space) {
  const size_t size = ElementSize(request.type);
  const uint64_t most = FoldSpace::kBytes / size;
  for (uint64_t done = 0; done < request.count; done += most) {
    const uint64_t part = std::min(most, request.count - done);
    auto source = [&](int k) { return static_cast<const std::byte*>(request.src[k]) + done * size; };
    void* const accumulator = space->accumulator;
    kernels::Copy(&accumulator, 1, source(0), part * size, false);
    for (int k = 1; k < request.num_src; ++k) callback.function(accumulator, source(k), part, callback.context);
    for (int d = 0; d < request.num_dst; ++d) {
      void* const to = static_cast<std::byte*>(request.dst[d]) + done * size;
      kernels::Copy(&to, 1, accumulator, part * size, false);
    }
  }
}

void FoldBoxes(const kernels::BoxReduceRequest& request, const Callback& callback, FoldSpace* space) {
  const size_t size = ElementSize(request.type);
  const uint64_t most = FoldSpace::kBytes / size;
  const kernels::BoxOperand accumulator{space->accumulator, nullptr}, operand{space->operand, nullptr};
  kernels::BoxRange range = request.range;
  for (uint64_t done = 0; done < request.range.count; done += most) {
    range.begin = request.range.begin + done;
    range.count = std::min(most, request.range.count - done);
    kernels::CopyBox(range, &accumulator, 1, Advanced(request.src[0], done * size), size, false);
    for (int k = 1; k < request.num_src; ++k) {
      const kernels::BoxOperand from = Advanced(request.src[k], done * size);
      if (from.strides != nullptr) kernels::CopyBox(range, &operand, 1, from, size, false);
      callback.function(accumulator.data, from.strides != nullptr ? operand.data : from.data, range.count,
                        callback.context);
    }
    for (int d = 0; d < request.num_dst; ++d) {
      const kernels::BoxOperand to = Advanced(request.dst[d], done * size);
      kernels::CopyBox(range, &to, 1, accumulator, size, request.non_temporal);
    }
  }
}

}  // namespace axccl::exec
