// Checks whether a kernel on a device may use a buffer of the application.
#pragma once

#include "src/base/status.h"
#include "src/device/cuda/device.h"
#include "src/exec/call/call.h"

namespace axccl::exec {

// kInvalidArgument, with the name `name`, for host memory that the device cannot access, memory of another device, and
// addresses that are not memory. Each thread remembers the results by allocation, so memory that has been freed since
// is not noticed. Takes a few nanoseconds for a buffer whose allocation was checked recently.
Status CheckPointer(const device::cuda::Device& device, const void* pointer, const char* name);
// The same for all buffers of a list.
Status CheckPointers(const device::cuda::Device& device, const ViewList& views);

// Whether the buffer, which CheckPointer has passed, is memory of a device, or managed. Copies between two such buffers
// never wait in the host. CUDA promises of a copy from host memory to host memory that it does, and lets others do so
// where pageable memory is part of them (CUDA driver API, "API synchronization behavior").
bool IsOnDevice(const device::cuda::Device& device, const void* pointer);

// How many blocks of a rank's buffers other ranks use where they are.
struct BlocksForOthers {
  int input = 0, output = 0;
};

// The same for what others use of a call's buffers, and kInvalidArgument for memory of cuMemCreate or of a pool that
// its owner has not made accessible to all devices in `peers`, one bit for the ordinal of each. An access by their
// kernels would end all work of the process. Asks the driver once for each allocation, because another one may be at
// the addresses since; only access that is taken away from memory that stays is not noticed.
Status CheckShared(const device::cuda::Device& device, const Call& call, const BlocksForOthers& blocks, uint64_t peers);

}  // namespace axccl::exec
