// Translates the stream handles that applications pass for host ranks.
#pragma once

#include "src/base/status.h"
#include "src/device/host/stream.h"

namespace axccl::device::host {

// Finds null for NULL and CUDA's legacy handle, the calling thread's own stream (a blocking one, made here) for CUDA's
// per-thread handle, and otherwise one of Streams(). kInvalidArgument, naming `call`, if the handle is none of these.
Status FindStream(const void* handle, const char* call, Stream** stream);

}  // namespace axccl::device::host
