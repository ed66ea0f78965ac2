#include "src/exec/cuda/interpreter.h"

#include <algorithm>
#include <map>
#include <mutex>

#include "kernels/cuda/fatbin.h"
#include "src/base/sizes.h"

namespace axccl::exec {

using device::cuda::Check;
using device::cuda::Device;
using device::cuda::Driver;
using device::cuda::Scope;

Status CudaInterpreter::Load(const Device& device) {
  const Driver& driver = Driver::Loaded();
  AXCCL_ASSIGN_OR_RETURN(const CUmodule module, device.Load(axccl_cuda_fatbin));
  const Scope scope(device);
  device_ = &device;
  AXCCL_RETURN_IF_CUDA_ERROR(driver.cuModuleGetFunction(&run_, module, "axccl_run"));
  AXCCL_RETURN_IF_CUDA_ERROR(driver.cuModuleGetFunction(&run_one_, module, "axccl_run_one"));
  AXCCL_RETURN_IF_CUDA_ERROR(driver.cuModuleGetFunction(&probe_, module, "axccl_probe_multicast"));
  has_domains_ = device.capability() >= 90;
  int of_multiprocessor = 0;
  AXCCL_RETURN_IF_CUDA_ERROR(
      driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(&of_multiprocessor, run_, kMostThreads, 0));
  resident_blocks_ = static_cast<uint32_t>(std::max(1, of_multiprocessor * device.multiprocessors()));
  // The first launch of a kernel may load it, and wait for others.
  kernels::cuda::Launch nothing;
  for (const CUfunction function : {run_, run_one_})
    AXCCL_RETURN_IF_ERROR(Launch(function, &nothing, 1, kLeastThreads, device.stream()));
  return Check(driver.cuStreamSynchronize(device.stream()), "cuStreamSynchronize");
}

Result<const CudaInterpreter*> CudaInterpreter::Of(const Device& device) {
  static std::mutex* const mutex = new std::mutex;
  static auto* const loaded = new std::map<const Device*, CudaInterpreter>;
  std::lock_guard lock(*mutex);
  const auto it = loaded->find(&device);
  if (it != loaded->end()) return &it->second;
  CudaInterpreter interpreter;
  AXCCL_RETURN_IF_ERROR(interpreter.Load(device));
  return &loaded->emplace(&device, interpreter).first->second;
}

unsigned CudaInterpreter::ThreadsFor(uint64_t bytes) {
  return static_cast<unsigned>(std::clamp<uint64_t>(RoundUp(bytes / 16, 32), kLeastThreads, kMostThreads));
}

Status CudaInterpreter::Launch(kernels::cuda::Launch* launch, unsigned blocks, unsigned threads,
                               CUstream stream) const {
  const bool one = launch->num_tasks == 1 && launch->more == nullptr;
  return Launch(one ? run_one_ : run_, launch, blocks, threads, stream);
}

Status CudaInterpreter::Run(kernels::cuda::MulticastProbe* probe) const {
  const Scope scope(*device_);
  constexpr unsigned kThreads = kernels::cuda::MulticastProbe::kBytes / 16;
  AXCCL_RETURN_IF_ERROR(Launch(probe_, probe, 1, kThreads, device_->stream()));
  return Check(Driver::Loaded().cuStreamSynchronize(device_->stream()), "cuStreamSynchronize");
}

// What the kernel publishes would otherwise wait for what kernels of the application store meanwhile, too. Fences order
// across domains because theirs reach the whole system.
Status CudaInterpreter::Launch(CUfunction function, void* parameter, unsigned blocks, unsigned threads,
                               CUstream stream) const {
  CUlaunchAttribute domain = {};
  domain.id = CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN;
  domain.value.memSyncDomain = CU_LAUNCH_MEM_SYNC_DOMAIN_REMOTE;
  CUlaunchConfig config = {};
  config.gridDimX = blocks;
  config.blockDimX = threads;
  config.gridDimY = config.gridDimZ = config.blockDimY = config.blockDimZ = 1;
  config.hStream = stream;
  config.attrs = &domain;
  config.numAttrs = has_domains_ ? 1 : 0;
  void* parameters[] = {parameter};
  const auto call = [&] { return Driver::Loaded().cuLaunchKernelEx(&config, function, parameters, nullptr); };
  return Check(device::cuda::OnStream(*device_, call), "cuLaunchKernelEx");
}

}  // namespace axccl::exec
