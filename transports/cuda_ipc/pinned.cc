#include "transports/cuda_ipc/pinned.h"

#include <map>
#include <mutex>

namespace axccl::cuda_ipc {
namespace {

using device::cuda::Check;
using device::cuda::Driver;
using device::cuda::Scope;

// A registration is of one device's context, and ends when the application resets that.
struct Registration {
  const device::cuda::Device* device;
  int users = 0;
};
struct Pinned {
  std::mutex mutex;
  std::map<std::byte*, Registration> registrations;
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
  auto& registrations = PinnedOfProcess().registrations;
  const auto found = registrations.find(memory);
  const bool is_there = found != registrations.end() && !found->second.device->was_reset();
  if (!is_there) AXCCL_RETURN_IF_ERROR(Check(device::cuda::Pin(memory, bytes), "cuMemHostRegister"));
  CUdeviceptr address = 0;
  const Status status = Check(driver.cuMemHostGetDevicePointer(&address, memory, 0), "cuMemHostGetDevicePointer");
  if (!status.ok()) {
    if (!is_there) driver.cuMemHostUnregister(memory);
    return status;
  }
  Registration& registration = registrations[memory];
  if (!is_there) registration.device = &device;
  ++registration.users;
  return address;
}

void Unpin(const device::cuda::Device& device, std::byte* memory) {
  const Scope scope(device);
  std::lock_guard lock(PinnedOfProcess().mutex);
  const auto found = PinnedOfProcess().registrations.find(memory);
  if (--found->second.users != 0) return;
  Driver::Loaded().cuMemHostUnregister(memory);
  PinnedOfProcess().registrations.erase(found);
}

}  // namespace axccl::cuda_ipc
