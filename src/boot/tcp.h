// TCP sockets of the rendezvous. Thread-safe; descriptors are non-blocking and close-on-exec.
#pragma once

#include <errno.h>

#include "src/base/service_fd.h"
#include "src/base/status.h"
#include "src/boot/unique_id.h"

namespace axccl::boot {

// No delay for small frames, and a peer that vanishes without a word is noticed within about 3 s.
void TuneSocket(int fd);

// Whether it is of the kernel's memory that a send failed, which will have some again and does not say when.
inline bool OutOfBuffers(int error) { return error == ENOBUFS || error == ENOMEM; }

// Listens on `address` (port 0: any; `address->port` receives it). `reuse`: take a port whose last owner has just gone.
// *busy (may be null) tells whether it failed because another socket has the port.
Result<service::Fd> Listen(Address* address, bool reuse, bool* busy);

}  // namespace axccl::boot
