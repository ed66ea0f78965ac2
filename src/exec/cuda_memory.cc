// Memory of GPUs for the application (ncclMemAlloc).
#include <map>
#include <mutex>

#include "src/device/cuda/device.h"
#include "src/exec/gpu.h"

namespace axccl::exec {
namespace {

using device::cuda::Device;

struct Allocations {
  std::mutex mutex;
  std::map<void*, const Device*> devices;
};

Allocations& Process() {
  static Allocations* const allocations = new Allocations;
  return *allocations;
}

}  // namespace

Result<void*> AllocateOnGpu(size_t bytes) {
  AXCCL_ASSIGN_OR_RETURN(const int current, Device::Current());
  AXCCL_ASSIGN_OR_RETURN(const Device* device, Device::Get(current));
  AXCCL_ASSIGN_OR_RETURN(const CUdeviceptr memory, device->Allocate(bytes));
  auto* pointer = reinterpret_cast<void*>(memory);
  std::lock_guard lock(Process().mutex);
  Process().devices[pointer] = device;
  return pointer;
}

bool FreeOnGpu(void* memory) {
  const Device* device = nullptr;
  {
    std::lock_guard lock(Process().mutex);
    const auto it = Process().devices.find(memory);
    if (it == Process().devices.end()) return false;
    device = it->second;
    Process().devices.erase(it);
  }
  device->Free(reinterpret_cast<CUdeviceptr>(memory));
  return true;
}

}  // namespace axccl::exec
