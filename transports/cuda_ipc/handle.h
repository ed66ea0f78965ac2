// Memory of devices of other processes: allocations of any kind that CUDA lets processes share (of cudaMalloc, of
// ncclMemAlloc, of virtual memory management with files), found by a pointer into them.
//
// Files are taken from the exporting process by pidfd_getfd, which needs the same user and what ptrace needs.
// Thread-safe.
#pragma once

#include <cstdint>

#include "src/base/service_fd.h"
#include "src/base/status.h"
#include "src/device/cuda/device.h"
#include "transports/cuda_ipc/address.h"

namespace axccl::cuda_ipc {

// The allocation that a pointer is in.
struct Range {
  CUdeviceptr base = 0;
  uint64_t bytes = 0;
  uint64_t id = 0;  // another one for what is allocated at the same address later
};
Result<Range> RangeOf(const device::cuda::Device& device, CUdeviceptr pointer);

// What other processes need of it.
struct Exported {
  Handle handle;
  service::Fd file;  // to be kept until all have imported it
};
// An error says why nobody can.
Result<Exported> Export(const device::cuda::Device& device, const Range& range);

// An allocation of another process, for kernels of one device.
struct Imported {
  CUdeviceptr address = 0;
  uint64_t mapped = 0;  // bytes; 0: by a legacy handle
};
Result<Imported> Import(const device::cuda::Device& device, const Handle& handle);
// No kernel uses it any more.
void Close(const device::cuda::Device& device, const Imported& imported);

}  // namespace axccl::cuda_ipc
