// Stands in for GPUs where the library was built without a CUDA toolkit.
#include "src/exec/gpu.h"

namespace axccl::exec {
namespace {

Status None() {
  return MakeStatus(Code::kInvalidUsage,
                    "this build of AxCCL has no CUDA device: configure where nvcc and cuda.h are found, or set "
                    "AXCCL_DEVICE=host");
}

}  // namespace

Result<int> NumGpus() { return None(); }
Result<int> CurrentGpu() { return None(); }
Result<int> GpuMultiprocessors(int) { return None(); }
Result<void*> AllocateOnGpu(size_t) { return None(); }
bool FreeOnGpu(void*) { return false; }
Result<std::unique_ptr<GpuRank>> GpuRank::Create(const GpuOptions&) { return None(); }
Status PrepareLaunch(std::vector<GpuCall>*) { return None(); }
Status LaunchOnGpus(const std::vector<GpuCall>&) { return None(); }

}  // namespace axccl::exec
