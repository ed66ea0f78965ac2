// Watches communicators whose operations no thread of this process drives: those of GPU ranks. When a peer has died,
// failed or left, or a kernel has reported an error or has waited for longer than AXCCL_TIMEOUT, the communicator
// fails, and its kernels end.
//
// Runs on the service thread, every few milliseconds while there is a communicator to watch.
#pragma once

#include "src/base/status.h"

namespace axccl::comm {

class Communicator;

// `comm` is watched between the two calls, unless the first fails. Thread-safe; after Unwatch, the watchdog does not
// access it any more.
Status Watch(Communicator* comm);
void Unwatch(Communicator* comm);

}  // namespace axccl::comm
