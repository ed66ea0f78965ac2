// Watches communicators whose operations no thread of this process drives: those of GPU ranks. When a peer has died,
// failed or left, or a kernel has reported an error or has waited for longer than AXCCL_TIMEOUT, the communicator
// fails, and its kernels end.
//
// Works every few milliseconds while there is a communicator to watch, on two threads. What is found in memory of the
// host is found on the service thread, which asks no driver: a call of the driver may wait for kernels, and these for
// the end that only the watchdog can give them. What needs the driver has a thread of its own, which ends before the
// driver does at the process's exit.
#pragma once

#include "src/base/status.h"

namespace axccl::comm {

class Communicator;

// `comm` is watched between the two calls, unless the first fails. Thread-safe; after Unwatch, the watchdog does not
// access it any more.
Status Watch(Communicator* comm);
void Unwatch(Communicator* comm);

}  // namespace axccl::comm
