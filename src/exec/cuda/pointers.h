// Whether a kernel on a device may use a buffer of the application.
#pragma once

#include "src/base/status.h"
#include "src/device/cuda/device.h"

namespace axccl::exec {

// kInvalidArgument, with `name` as what the buffer is called, for memory of the host that the device does not see,
// memory of another device, and what is no memory at all. Answers are remembered for each thread by allocation: memory
// that has been freed since is not noticed then. A few nanoseconds for a buffer whose allocation was asked about
// lately.
Status CheckPointer(const device::cuda::Device& device, const void* pointer, const char* name);

}  // namespace axccl::exec
