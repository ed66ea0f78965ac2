// Memory of other processes' devices: allocations of any kind that CUDA lets processes share (cudaMalloc, ncclMemAlloc,
// virtual memory management with files), found by a pointer into them.
//
// A program may map several objects of virtual memory management one behind the other and use them as one (PyTorch
// does: expandable_segments). CUDA gives the bounds of the mapping that a pointer is in (cuMemGetAddressRange), and its
// object (cuMemRetainAllocationHandle), which has the same value wherever it is mapped. It does not tell which part of
// the object is mapped there; that is taken to be all of it, as in NCCL. So an object that is there twice is not
// shared.
//
// Thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "src/base/status.h"
#include "src/device/cuda/device.h"
#include "transports/cuda_ipc/address.h"
#include "transports/cuda_ipc/flat_memory.h"
#include "transports/shm/offered_file.h"

namespace axccl::cuda_ipc {

// The allocation that contains a buffer, or several that follow each other.
struct Range {
  CUdeviceptr base = 0;
  uint64_t bytes = 0;
  uint64_t id = 0;                // differs for later allocations at the same addresses
  std::vector<uint64_t> parts{};  // the bytes of each of several allocations
};
// kInvalidUsage: [pointer, pointer + bytes) ends behind its allocations.
Result<Range> RangeOf(const device::cuda::Device& device, CUdeviceptr pointer, uint64_t bytes = 1);

// What other processes need to import an allocation.
struct Exported {
  Handle handle;
  shm::OfferedFile file;                  // must stay until all have imported it,
  std::vector<shm::OfferedFile> parts{};  // and so must these
};
// Returns an error that says why, if no process can import it.
Result<Exported> Export(const device::cuda::Device& device, const Range& range);

// The same for an object of so many bytes that is not found by a pointer, and the other side of that, which may be this
// process: the object is its to release.
Result<Exported> OfferObject(CUmemGenericAllocationHandle object, uint64_t bytes);
Result<CUmemGenericAllocationHandle> TakeObject(const Handle& handle);

// Whether kernels of the device may use allocations of this process, on any device, where they are. Those of virtual
// memory management belong to the devices that the program has given access (cuMemSetAccess); others to all peers.
bool MayUse(const device::cuda::Device& device, CUdeviceptr base, const Handle& handle);

// An imported allocation, for kernels of one device.
struct Imported {
  CUdeviceptr address = 0;
  std::shared_ptr<FlatMemory> files{};  // null: imported by a legacy handle
};
Result<Imported> Import(const device::cuda::Device& device, const Handle& handle);
// No kernel may use it any more.
void Close(const device::cuda::Device& device, const Imported& imported);

}  // namespace axccl::cuda_ipc
