// The kernel's unchanged source, compiled for fibers.
#include "tests/kernels/cuda/kernel_on_fibers.h"

#include "kernels/cuda/interpreter.h"

namespace axccl::kernels::cuda {

void RunKernel(const Launch& launch) {
  AXCCL_SHARED(BlockState, block);
  Interpreter(launch, block).Run();
}

void PostAll(Channel& channel, const ProxyRing::Entry* entries, size_t count) {
  if (!IsFirst()) return;
  for (size_t i = 0; i < count; ++i) {
    if (entries[i].bytes != 0) {
      PostSlot(channel, BlockIndex(), entries[i].of_member, entries[i].on_device, entries[i].offset, entries[i].bytes);
    } else {
      PostLine(channel, BlockIndex(), BlockIndex(), entries[i].offset, entries[i].value, entries[i].call);
    }
  }
}

}  // namespace axccl::kernels::cuda
