// The device code of the library: one kernel that interprets plans, in two sizes, and a probe (launch.h).
#include "kernels/cuda/bulk_copy.h"
#include "kernels/cuda/copy.h"
#include "kernels/cuda/interpreter.h"
#include "kernels/cuda/reduce.h"

using namespace axccl::kernels::cuda;  // NOLINT: the entry points

// At most as many registers as let two blocks run on a multiprocessor.
#define AXCCL_ENTRY extern "C" __global__ void __launch_bounds__(kMaxThreads, 2)

AXCCL_ENTRY axccl_run(const __grid_constant__ Launch launch) {
  AXCCL_SHARED(BlockState, block);
  Interpreter(launch, block).Run();
}

AXCCL_ENTRY axccl_run_one(const __grid_constant__ OneTask launch) {
  AXCCL_SHARED(BlockState, block);
  Interpreter(reinterpret_cast<const Launch&>(launch), block).Run();
}

// Does nothing on devices that have no multicast.
extern "C" __global__ void axccl_probe_multicast([[maybe_unused]] const __grid_constant__ MulticastProbe probe) {
#if defined(AXCCL_CUDA_HAS_MULTICAST)
  RunProbe(probe);
#endif
}
