#include "src/exec/cuda/interpreter.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>

#include "kernels/cuda/fatbin.h"
#include "kernels/cuda/ring.h"
#include "src/base/sizes.h"
#include "src/cost/machine.h"

namespace axccl::exec {

using device::cuda::Check;
using device::cuda::Device;
using device::cuda::Driver;
using device::cuda::Scope;
namespace cuda = kernels::cuda;

namespace {

constexpr unsigned kLeastThreads = 64, kMostThreads = cuda::kMaxThreads;

// On an H100, with the most that the kernel may declare (cuda_resources_test).
constexpr uint64_t kKiB = 1024;
static_assert(cuda::RingBytesInFlight(cuda::RingBytes({228 * kKiB, 227 * kKiB, kKiB, 31 * kKiB})) ==
              cost::Gpu::kCopyBytesInFlight);

}  // namespace

Status CudaInterpreter::Load(const Device& device) {
  const Driver& driver = Driver::Loaded();
  AXCCL_ASSIGN_OR_RETURN(const CUmodule module, device.Load(axccl_cuda_fatbin));
  const Scope scope(device);
  device_ = &device;
  AXCCL_RETURN_IF_CUDA_ERROR(driver.cuModuleGetFunction(&run_, module, "axccl_run"));
  AXCCL_RETURN_IF_CUDA_ERROR(driver.cuModuleGetFunction(&run_one_, module, "axccl_run_one"));
  AXCCL_RETURN_IF_CUDA_ERROR(driver.cuModuleGetFunction(&probe_, module, "axccl_probe_multicast"));
  has_domains_ = device.capability() >= 90;
  AXCCL_RETURN_IF_ERROR(FindRing(device));
  int of_multiprocessor = 0;
  AXCCL_RETURN_IF_CUDA_ERROR(
      driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(&of_multiprocessor, run_, kMostThreads, ring_bytes_));
  resident_blocks_ = static_cast<uint32_t>(std::max(1, of_multiprocessor * device.multiprocessors()));
  // The first launch of a kernel may load it, and wait for others.
  cuda::Launch nothing;
  for (const CUfunction function : {run_, run_one_})
    AXCCL_RETURN_IF_ERROR(Launch(function, &nothing, {1, kLeastThreads, ring_bytes_}, device.stream()));
  return Check(driver.cuStreamSynchronize(device.stream()), "cuStreamSynchronize");
}

// What cuda.h promises of a function's attributes. MAX_DYNAMIC_SHARED_SIZE_BYTES: "If the user-specified dynamic shared
// memory size is larger than this value, the launch will fail"; unless set, it is 48 KiB less what the kernel declares,
// and "can be increased to CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN -
// CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES". PREFERRED_SHARED_MEMORY_CARVEOUT: the part of the memory of a multiprocessor
// that is not cache, "only a hint, and the driver can choose a different ratio if required to execute the function".
//
// Of another such preference, cuFuncSetCacheConfig, it says: "Launching a kernel with a different preference than the
// most recent preference setting may insert a device-side synchronization point". Kernels of a rank wait for those of
// others, so all ask for the same carveout, however much they need.
Status CudaInterpreter::FindRing(const Device& device) {
  const Driver& driver = Driver::Loaded();
  constexpr int kAllShared = 100;  // percent
  const auto set = [&](CUfunction_attribute attribute, int value) {
    for (const CUfunction function : {run_, run_one_})
      AXCCL_RETURN_IF_CUDA_ERROR(driver.cuFuncSetAttribute(function, attribute, value));
    return Status();
  };
  AXCCL_RETURN_IF_ERROR(set(CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, kAllShared));
  if (device.capability() < 90) return Status();
  int of_multiprocessor = 0, of_block = 0, reserved = 0, declared = 0;
  for (const auto& [attribute, value] :
       {std::pair{CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, &of_multiprocessor},
        {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, &of_block},
        {CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK, &reserved}})
    AXCCL_RETURN_IF_CUDA_ERROR(driver.cuDeviceGetAttribute(value, attribute, device.id()));
  for (const CUfunction function : {run_, run_one_}) {
    int bytes = 0;
    AXCCL_RETURN_IF_CUDA_ERROR(driver.cuFuncGetAttribute(&bytes, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, function));
    declared = std::max(declared, bytes);
  }
  ring_bytes_ = cuda::RingBytes({static_cast<uint64_t>(of_multiprocessor), static_cast<uint64_t>(of_block),
                                 static_cast<uint64_t>(reserved), static_cast<uint64_t>(declared)});
  return set(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, static_cast<int>(ring_bytes_));
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

// As many threads as there are words of 16 bytes. Whole warps, because rows require them.
CudaInterpreter::Shape CudaInterpreter::ShapeOf(unsigned blocks, uint64_t bytes) const {
  const uint64_t threads = std::clamp<uint64_t>(RoundUp(bytes / 16, 32), kLeastThreads, kMostThreads);
  return {blocks, static_cast<unsigned>(threads), bytes >= cuda::kBulkLeastBytes ? ring_bytes_ : 0};
}

Status CudaInterpreter::Launch(cuda::Launch* launch, unsigned blocks, uint64_t bytes, CUstream stream) const {
  const bool one = launch->num_tasks == 1 && launch->more == nullptr;
  return Launch(one ? run_one_ : run_, launch, ShapeOf(blocks, bytes), stream);
}

Status CudaInterpreter::Run(cuda::MulticastProbe* probe) const {
  const Scope scope(*device_);
  AXCCL_RETURN_IF_ERROR(Launch(probe_, probe, {1, cuda::MulticastProbe::kBytes / 16, 0}, device_->stream()));
  return Check(Driver::Loaded().cuStreamSynchronize(device_->stream()), "cuStreamSynchronize");
}

// What the kernel publishes would otherwise wait for what kernels of the application store meanwhile, too. Fences order
// across domains because theirs reach the whole system.
Status CudaInterpreter::Launch(CUfunction function, void* parameter, const Shape& shape, CUstream stream) const {
  CUlaunchAttribute domain = {};
  domain.id = CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN;
  domain.value.memSyncDomain = CU_LAUNCH_MEM_SYNC_DOMAIN_REMOTE;
  CUlaunchConfig config = {};
  config.gridDimX = shape.blocks;
  config.blockDimX = shape.threads;
  config.sharedMemBytes = shape.dynamic_shared_bytes;
  config.gridDimY = config.gridDimZ = config.blockDimY = config.blockDimZ = 1;
  config.hStream = stream;
  config.attrs = &domain;
  config.numAttrs = has_domains_ ? 1 : 0;
  void* parameters[] = {parameter};
  const auto call = [&] { return Driver::Loaded().cuLaunchKernelEx(&config, function, parameters, nullptr); };
  return Check(device::cuda::OnStream(*device_, call), "cuLaunchKernelEx");
}

}  // namespace axccl::exec
