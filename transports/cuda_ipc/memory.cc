#include "transports/cuda_ipc/memory.h"

#include <vector>

namespace axccl::cuda_ipc {
namespace {

using device::cuda::Check;
using device::cuda::Device;
using device::cuda::Driver;
using device::cuda::Scope;

// CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED and CU_MEM_HANDLE_TYPE_FABRIC, which cuda.h has since CUDA 12.3.
constexpr auto kFabricSupported = static_cast<CUdevice_attribute>(128);
constexpr int kFabricHandle = 8;

// The device and its peers. Uses no context of the peers, which would take memory.
Result<std::vector<int>> DevicesThatReach(const Device& device) {
  const Driver& driver = Driver::Loaded();
  std::vector<int> reaching{device.ordinal()};
  AXCCL_ASSIGN_OR_RETURN(const int count, Device::Count());
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    CUdevice other = 0;
    int can = 0;
    if (ordinal == device.ordinal()) continue;
    AXCCL_RETURN_IF_CUDA_ERROR(driver.cuDeviceGet(&other, ordinal));
    AXCCL_RETURN_IF_CUDA_ERROR(driver.cuDeviceCanAccessPeer(&can, other, device.id()));
    if (can != 0) reaching.push_back(ordinal);
  }
  return reaching;
}

// Rounds `bytes` up. Processes of other machines can have the memory, too (fabric handles), where the device says so.
// Even there, cuMemCreate fails if the user may not open an IMEX channel, and cuda.h does not say by which error.
Result<CUmemGenericAllocationHandle> CreateObject(const Device& device, size_t* bytes) {
  const Driver& driver = Driver::Loaded();
  CUmemAllocationProp properties = ShareableOn(device);
  size_t unit = 0;
  AXCCL_RETURN_IF_CUDA_ERROR(
      driver.cuMemGetAllocationGranularity(&unit, &properties, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
  *bytes = (*bytes + unit - 1) / unit * unit;
  CUmemGenericAllocationHandle object = 0;
  if (device.Attribute(kFabricSupported) != 0) {
    CUmemAllocationProp more = properties;
    more.requestedHandleTypes = static_cast<CUmemAllocationHandleType>(properties.requestedHandleTypes | kFabricHandle);
    if (driver.cuMemCreate(&object, *bytes, &more, 0) == CUDA_SUCCESS) return object;
  }
  AXCCL_RETURN_IF_CUDA_ERROR(driver.cuMemCreate(&object, *bytes, &properties, 0));
  return object;
}

}  // namespace

Result<Memory> AllocateMapped(const Device& device, size_t bytes) {
  const Scope scope(device);
  const Driver& driver = Driver::Loaded();
  if (!HasMapped(device))
    return MakeStatus(Code::kInvalidUsage, "CUDA device %d has no virtual memory that processes can share as a file",
                      device.ordinal());
  AXCCL_ASSIGN_OR_RETURN(const std::vector<int> devices, DevicesThatReach(device));
  Memory memory;
  memory.mapped = bytes;
  AXCCL_ASSIGN_OR_RETURN(const CUmemGenericAllocationHandle object, CreateObject(device, &memory.mapped));
  const Result<CUdeviceptr> address = MapObject(object, memory.mapped, devices.data(), devices.size());
  driver.cuMemRelease(object);
  if (!address.ok()) return address.status();
  memory.address = address.value();
  return memory;
}

bool HasMapped(const Device& device) {
  return device.Attribute(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) != 0 &&
         device.Attribute(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED) != 0;
}

CUmemAllocationProp ShareableOn(const Device& device) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = device.ordinal();
  // Adapters may then read and write it (GPUDirect RDMA).
  properties.allocFlags.gpuDirectRDMACapable =
      device.Attribute(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED) != 0 ? 1 : 0;
  return properties;
}

Result<Memory> Allocate(const Device& device, size_t bytes) {
  const Scope scope(device);
  if (const Result<Memory> memory = AllocateMapped(device, bytes); memory.ok()) {
    const Status cleared = device.Clear(memory.value().address, memory.value().mapped);
    if (cleared.ok()) return memory;
    Free(device, memory.value());
    return cleared;
  }
  AXCCL_ASSIGN_OR_RETURN(const CUdeviceptr address, device.Allocate(bytes));
  return Memory{address, 0};
}

void Free(const Device& device, const Memory& memory) {
  const Scope scope(device);
  if (memory.mapped != 0) {
    UnmapObject(memory.address, memory.mapped);
  } else {
    device.Free(memory.address);
  }
}

Status MapAt(CUdeviceptr address, CUmemGenericAllocationHandle object, size_t bytes, const int* devices,
             size_t num_devices) {
  const Driver& driver = Driver::Loaded();
  std::vector<CUmemAccessDesc> accesses(num_devices);
  for (size_t i = 0; i < num_devices; ++i) {
    accesses[i].location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    accesses[i].location.id = devices[i];
    accesses[i].flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  }
  AXCCL_RETURN_IF_CUDA_ERROR(driver.cuMemMap(address, bytes, 0, object, 0));
  const Status status = Check(driver.cuMemSetAccess(address, bytes, accesses.data(), num_devices), "cuMemSetAccess");
  if (!status.ok()) driver.cuMemUnmap(address, bytes);
  return status;
}

Result<CUdeviceptr> MapObject(CUmemGenericAllocationHandle object, size_t bytes, const int* devices,
                              size_t num_devices) {
  const Driver& driver = Driver::Loaded();
  CUdeviceptr address = 0;
  AXCCL_RETURN_IF_CUDA_ERROR(driver.cuMemAddressReserve(&address, bytes, 0, 0, 0));
  const Status status = MapAt(address, object, bytes, devices, num_devices);
  if (status.ok()) return address;
  driver.cuMemAddressFree(address, bytes);
  return status;
}

void UnmapObject(CUdeviceptr address, size_t bytes) {
  const Driver& driver = Driver::Loaded();
  driver.cuMemUnmap(address, bytes);
  driver.cuMemAddressFree(address, bytes);
}

}  // namespace axccl::cuda_ipc
