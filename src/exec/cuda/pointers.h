// Checks whether a kernel on a device may use a buffer of the application.
#pragma once

#include "src/base/status.h"
#include "src/device/cuda/device.h"
#include "src/exec/call/operands.h"
#include "src/exec/prepared/program.h"

namespace axccl::exec {

// kInvalidArgument, with the name `name`, for host memory that the device cannot access, memory of another device, and
// addresses that are not memory. Each thread remembers the results by allocation, so memory that has been freed since
// is not noticed. Takes a few nanoseconds for a buffer whose allocation was checked recently.
Status CheckPointer(const device::cuda::Device& device, const void* pointer, const char* name);
// The same, and kInvalidArgument for memory of cuMemCreate or of a pool that its owner has not made accessible to all
// devices in `peers`, one bit for the ordinal of each. An access by their kernels would end all work of the process.
Status CheckShared(const device::cuda::Device& device, const void* pointer, uint64_t peers, const char* name);
// The same for all buffers of a list. The devices in `peers` use those of the input, of the output, or both.
Status CheckViews(const device::cuda::Device& device, const ViewList& views, uint64_t peers, BuffersForOthers used);

}  // namespace axccl::exec
