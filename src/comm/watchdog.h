// Looks after communicators whose operations no thread of this process drives: those of GPU ranks. When a peer has
// died, failed or left, or a kernel has found something wrong or has waited for longer than AXCCL_TIMEOUT, the
// communicator fails, and its kernels end.
//
// Runs on the service thread, every few milliseconds as long as there is a communicator to look after.
#pragma once

#include "src/base/status.h"

namespace axccl::comm {

class Communicator;

// Between the two calls `comm` is looked after, unless the first fails. Thread-safe; after Unwatch nothing touches it
// any more.
Status Watch(Communicator* comm);
void Unwatch(Communicator* comm);

}  // namespace axccl::comm
