// The kernel's unchanged source, compiled for fibers.
#include "tests/kernels/cuda/kernel_on_fibers.h"

#include "kernels/cuda/interpreter.h"

namespace axccl::kernels::cuda {

void RunKernel(const Launch& launch) {
  AXCCL_SHARED(BlockState, block);
  Interpreter(launch, block).Run();
}

}  // namespace axccl::kernels::cuda
