// The device code of the library: one kernel that interprets plans (launch.h).
#include "kernels/cuda/bulk_copy.h"
#include "kernels/cuda/interpreter.h"
#include "kernels/cuda/reduce.h"

// At most as many registers as let two blocks run on a multiprocessor.
extern "C" __global__ void __launch_bounds__(axccl::kernels::cuda::kMaxThreads, 2)
    axccl_run(const __grid_constant__ axccl::kernels::cuda::Launch launch) {
  AXCCL_SHARED(axccl::kernels::cuda::BlockState, block);
  axccl::kernels::cuda::Interpreter(launch, block).Run();
}
