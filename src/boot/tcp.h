// TCP sockets of the rendezvous. Thread-safe; descriptors are non-blocking and close-on-exec.
#pragma once

#include <errno.h>

#include "src/base/service_fd.h"
#include "src/base/status.h"
#include "src/boot/unique_id.h"

namespace axccl::boot {

// Disables delays of small frames, and makes the kernel notice within about 10 s that a peer has vanished. Between many
// ranks, which have megabytes for each other and may be slow to read them, that takes longer while some of it is on its
// way: the kernel cannot tell a peer that does not read from one that is gone.
void TuneSocket(int fd, int nranks = 1);

// Whether a send failed because the kernel is short of memory. It recovers, but no event announces that.
inline bool OutOfBuffers(int error) { return error == ENOBUFS || error == ENOMEM; }

// Listens on `address` (port 0: any; `address->port` receives it). `reuse`: take a port whose last owner has just gone;
// false: the address is known to be one of this machine, even if the kernel does not let it be used yet. Sets *busy
// (may be null) if it failed because another socket has the port.
Result<service::Fd> Listen(Address* address, bool reuse, bool* busy);

}  // namespace axccl::boot
