// Memory of other processes' devices: allocations of any kind that CUDA lets processes share (cudaMalloc, ncclMemAlloc,
// virtual memory management with files), found by a pointer into them.
//
// Thread-safe.
#pragma once

#include <cstdint>

#include "src/base/status.h"
#include "src/device/cuda/device.h"
#include "transports/cuda_ipc/address.h"
#include "transports/shm/offered_file.h"

namespace axccl::cuda_ipc {

// The allocation that contains a pointer.
struct Range {
  CUdeviceptr base = 0;
  uint64_t bytes = 0;
  uint64_t id = 0;  // differs for a later allocation at the same address
};
Result<Range> RangeOf(const device::cuda::Device& device, CUdeviceptr pointer);

// What other processes need to import an allocation.
struct Exported {
  Handle handle;
  shm::OfferedFile file;  // must stay until all have imported it
};
// Returns an error that says why, if no process can import it.
Result<Exported> Export(const device::cuda::Device& device, const Range& range);

// The same for an object of so many bytes that is not found by a pointer, and the other side of that, which may be this
// process: the object is its to release.
Result<Exported> OfferObject(CUmemGenericAllocationHandle object, uint64_t bytes);
Result<CUmemGenericAllocationHandle> TakeObject(const Handle& handle);

// An imported allocation, for kernels of one device.
struct Imported {
  CUdeviceptr address = 0;
  uint64_t mapped = 0;  // bytes; 0: imported by a legacy handle
};
Result<Imported> Import(const device::cuda::Device& device, const Handle& handle);
// No kernel may use it any more.
void Close(const device::cuda::Device& device, const Imported& imported);

}  // namespace axccl::cuda_ipc
