// Memory of GPUs for the application (ncclMemAlloc).
#include <map>
#include <mutex>

#include "src/device/cuda/device.h"
#include "src/exec/cuda/rank.h"
#include "transports/cuda_ipc/exports.h"
#include "transports/cuda_ipc/memory.h"

namespace axccl::exec {
namespace {

using device::cuda::Device;

struct Allocation {
  const Device* device = nullptr;
  cuda_ipc::Memory memory;
};

struct Allocations {
  std::mutex mutex;
  std::map<void*, Allocation> by_address;
};

Allocations& Process() {
  static Allocations* const allocations = new Allocations;
  return *allocations;
}

}  // namespace

Result<void*> AllocateOnGpu(size_t bytes) {
  AXCCL_ASSIGN_OR_RETURN(const int current, Device::Current());
  AXCCL_ASSIGN_OR_RETURN(const Device* device, Device::Get(current));
  AXCCL_ASSIGN_OR_RETURN(const cuda_ipc::Memory memory, cuda_ipc::Allocate(*device, bytes));
  auto* pointer = reinterpret_cast<void*>(memory.address);
  std::lock_guard lock(Process().mutex);
  Process().by_address[pointer] = {device, memory};
  return pointer;
}

Result<std::shared_ptr<void>> AllocateForPeers(const Device& device, size_t bytes) {
  const device::cuda::Scope scope(device);
  AXCCL_ASSIGN_OR_RETURN(const cuda_ipc::Memory memory, cuda_ipc::Allocate(device, bytes));
  return std::shared_ptr<void>(reinterpret_cast<void*>(memory.address), [&device, memory](void*) {
    const device::cuda::Scope scope(device);
    cuda_ipc::Exports::Freed(memory.address);
    cuda_ipc::Free(device, memory);
  });
}

bool FreeOnGpu(void* memory) {
  Allocation allocation;
  {
    std::lock_guard lock(Process().mutex);
    const auto it = Process().by_address.find(memory);
    if (it == Process().by_address.end()) return false;
    allocation = it->second;
    Process().by_address.erase(it);
  }
  cuda_ipc::Exports::Freed(allocation.memory.address);
  if (allocation.device->was_reset()) return true;
  const device::cuda::Scope scope(*allocation.device);
  // Does not wait for kernels, like NCCL: they may wait for what the calling thread does next, and to wait would end
  // the capture of a stream of the device, whichever thread captures it. (Drivers wait when they free other memory than
  // that of cuMemCreate.)
  if (allocation.memory.mapped == 0) {
    device::cuda::Driver::Loaded().cuMemFree(allocation.memory.address);
  } else {
    cuda_ipc::Free(*allocation.device, allocation.memory);
  }
  return true;
}

}  // namespace axccl::exec
