// Memory of a device that processes can share, made by virtual memory management where the device has it, so that it
// can be handed over as a file; else as cudaMalloc makes it. Thread-safe.
#pragma once

#include <cstddef>

#include "src/base/status.h"
#include "src/device/cuda/device.h"

namespace axccl::cuda_ipc {

struct Memory {
  CUdeviceptr address = 0;
  size_t mapped = 0;  // bytes of address space that belong to it; 0: of cuMemAlloc
};

// Zeroed. Kernels of all devices that can be peers of this one reach it.
Result<Memory> Allocate(const device::cuda::Device& device, size_t bytes);
// Nothing may use it any more; waits for nothing (but see Device::Free).
void Free(const device::cuda::Device& device, const Memory& memory);

// ---- parts of it, for those who import ----

// Addresses for `bytes` of `object`, for kernels of `devices`; the object lives as long as they do.
Result<CUdeviceptr> MapObject(CUmemGenericAllocationHandle object, size_t bytes, const int* devices,
                              size_t num_devices);
void UnmapObject(CUdeviceptr address, size_t bytes);

}  // namespace axccl::cuda_ipc
