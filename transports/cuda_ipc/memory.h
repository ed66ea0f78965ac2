// Device memory that processes can share. It is made by virtual memory management if the device supports that, so that
// it can be shared as a file, and otherwise as cudaMalloc makes it. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>

#include "src/base/status.h"
#include "src/device/cuda/device.h"

namespace axccl::cuda_ipc {

// Of GPUs: large objects are best mapped at multiples of it, as multicast objects have such pages only.
inline constexpr uint64_t kLargestPage = uint64_t{512} << 20;

struct Memory {
  CUdeviceptr address = 0;
  size_t mapped = 0;  // bytes of address space that belong to it; 0: made by cuMemAlloc
};

// Whether there is virtual memory that processes can share as a file.
bool HasMapped(const device::cuda::Device& device);
// Virtual memory that processes can share as a file, in whole pages of the device and with any content; an error if the
// device has none. Kernels of all devices that can be peers of this one can access it.
Result<Memory> AllocateMapped(const device::cuda::Device& device, size_t bytes);
// Returns zeroed memory. Kernels of all devices that can be peers of this one can access it.
Result<Memory> Allocate(const device::cuda::Device& device, size_t bytes);
// Frees memory that nothing uses any more; does not wait (but see Device::Free).
void Free(const device::cuda::Device& device, const Memory& memory);

// ---- for the rest of this folder ----

// Of memory on the device that other processes can get as a file.
CUmemAllocationProp ShareableOn(const device::cuda::Device& device);

// Maps `bytes` of `object` at a reserved address, for kernels of `devices`; the object lives as long as its mappings.
Status MapAt(CUdeviceptr address, CUmemGenericAllocationHandle object, size_t bytes, const int* devices,
             size_t num_devices);
// The same at an address that is reserved for it.
Result<CUdeviceptr> MapObject(CUmemGenericAllocationHandle object, size_t bytes, const int* devices,
                              size_t num_devices);
void UnmapObject(CUdeviceptr address, size_t bytes);

}  // namespace axccl::cuda_ipc
