#include "transports/cuda_ipc/pinned.h"

#include <map>
#include <mutex>

namespace axccl::cuda_ipc {
namespace {

using device::cuda::Check;
using device::cuda::Driver;
using device::cuda::Scope;

struct Pinned {
  std::mutex mutex;
  std::map<std::byte*, int> users;
};

Pinned& PinnedOfProcess() {
  static Pinned* const pinned = new Pinned;
  return *pinned;
}

}  // namespace

Result<CUdeviceptr> Pin(const device::cuda::Device& device, std::byte* memory, size_t bytes) {
  const Driver& driver = Driver::Loaded();
  const Scope scope(device);
  std::lock_guard lock(PinnedOfProcess().mutex);
  std::map<std::byte*, int>& users = PinnedOfProcess().users;
  if (!users.contains(memory))
    AXCCL_RETURN_IF_CUDA_ERROR(
        driver.cuMemHostRegister(memory, bytes, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP));
  CUdeviceptr address = 0;
  const Status status = Check(driver.cuMemHostGetDevicePointer(&address, memory, 0), "cuMemHostGetDevicePointer");
  if (!status.ok()) {
    if (!users.contains(memory)) driver.cuMemHostUnregister(memory);
    return status;
  }
  ++users[memory];
  return address;
}

void Unpin(const device::cuda::Device& device, std::byte* memory) {
  const Scope scope(device);
  std::lock_guard lock(PinnedOfProcess().mutex);
  const auto found = PinnedOfProcess().users.find(memory);
  if (--found->second != 0) return;
  Driver::Loaded().cuMemHostUnregister(memory);
  PinnedOfProcess().users.erase(found);
}

}  // namespace axccl::cuda_ipc
