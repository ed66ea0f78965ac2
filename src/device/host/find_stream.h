// What applications pass as streams of the host.
#pragma once

#include "src/base/status.h"
#include "src/device/host/stream.h"

namespace axccl::device::host {

// The stream that a handle means: null for NULL and CUDA's legacy handle, the calling thread's own stream (a blocking
// one, made here) for CUDA's per-thread handle, else one of Streams(). kInvalidArgument, with `call` named, if it is
// none.
Result<Stream*> FindStream(const void* handle, const char* call);

}  // namespace axccl::device::host
