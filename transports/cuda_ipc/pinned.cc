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

Pinned& Process() {
  static Pinned* const pinned = new Pinned;
  return *pinned;
}

}  // namespace

Result<CUdeviceptr> Pin(const device::cuda::Device& device, std::byte* memory, size_t bytes) {
  const Driver& driver = Driver::Loaded();
  const Scope scope(device);
  std::lock_guard lock(Process().mutex);
  std::map<std::byte*, int>& users = Process().users;
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
  std::lock_guard lock(Process().mutex);
  const auto found = Process().users.find(memory);
  if (--found->second != 0) return;
  Driver::Loaded().cuMemHostUnregister(memory);
  Process().users.erase(found);
}

}  // namespace axccl::cuda_ipc
