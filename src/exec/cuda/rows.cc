#include "src/exec/cuda/rows.h"

#include <cstdio>
#include <cstring>

namespace axccl::exec {
namespace {

using device::cuda::Device;
using device::cuda::Driver;

constexpr int kLeastCapability = 80;

// Returns -1 if the device is not visible to this process.
CUdevice FindDevice(const std::array<uint8_t, 16>& uuid) {
  const Driver& driver = Driver::Loaded();
  int count = 0;
  if (driver.cuDeviceGetCount(&count) != CUDA_SUCCESS) return -1;
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    CUdevice device = 0;
    CUuuid found{};
    if (driver.cuDeviceGet(&device, ordinal) != CUDA_SUCCESS) continue;
    if (driver.cuDeviceGetUuid(&found, device) != CUDA_SUCCESS) continue;
    if (std::memcmp(found.bytes, uuid.data(), uuid.size()) == 0) return device;
  }
  return -1;
}

template <class... Numbers>
std::string Text(const char* format, Numbers... numbers) {
  char text[160];
  std::snprintf(text, sizeof(text), format, numbers...);
  return text;
}

}  // namespace

Rows RowsBetween(const Device& device, const std::vector<cuda_ipc::BlockAddress>& addresses) {
  if (device.capability() < kLeastCapability)
    return {Text("CUDA device %d has compute capability %d.%d, 8.0 is needed", device.ordinal(),
                 device.capability() / 10, device.capability() % 10)};
  Rows rows;
  for (const cuda_ipc::BlockAddress& address : addresses) {
    if (std::memcmp(address.uuid.data(), device.uuid().bytes, address.uuid.size()) == 0) continue;
    const CUdevice peer = FindDevice(address.uuid);
    if (peer < 0) {
      rows = {Text("CUDA device %d does not see the device that is number %d in another process", device.ordinal(),
                   address.device),
              true};
      continue;
    }
    // NVLink supports atomics; PCIe does not, and may split stores.
    int atomics = 0;
    const CUresult result = Driver::Loaded().cuDeviceGetP2PAttribute(
        &atomics, CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED, device.id(), peer);
    if (result != CUDA_SUCCESS || atomics == 0)
      return {Text("CUDA devices %d and %d are not connected by NVLink", device.ordinal(), address.device)};
  }
  return rows;
}

}  // namespace axccl::exec
