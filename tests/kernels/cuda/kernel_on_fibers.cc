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
    ProxyRing::Entry entry = entries[i];
    entry.rank = BlockIndex();
    Post(channel, entry);
  }
}

}  // namespace axccl::kernels::cuda
