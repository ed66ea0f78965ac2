// Which processes can share memory: those with equal host ids. It goes by what sharing takes, not by names.
//
// - One running kernel: its boot id.
// - NCCL_HOSTID, by which ranks of one machine may be told to behave as if they were on several.
// - One network namespace, as the sockets that memory is handed out at have abstract names, which are each namespace's
// own.
// - One user namespace and one user: what asks is answered only if it is the same user, and ids of users mean something
// only
//   within their namespace.
// - One PID namespace. Peers are told process ids, and memory that is not in a heap is reached by them
//   (process_vm_readv, pidfd_getfd): in another namespace they are of nobody, or of somebody else.
//
// Mount, IPC, UTS and cgroup namespaces do not count: heaps are passed as descriptors and have neither path nor key.
// Equal ids are a promise that attaching is worth trying; Attach says so when it fails all the same.
#pragma once

#include "src/base/status.h"
#include "transports/transport.h"

namespace axccl::shm {

// The id of this process as it is now; processes keep the one they have when they offer their heap. Where /proc is not
// mounted, the host name stands in for the boot id, and namespaces are taken for equal to those of others that do not
// know theirs. kSystemError when there is no descriptor left to look with: a process that took itself for another then
// would share no memory with its neighbours.
Result<transport::HostId> CurrentHostId();

// What keeps the two from sharing memory, in words ("another machine"), the most telling first; null where nothing
// does.
const char* WhyApart(const transport::HostId& one, const transport::HostId& other);

}  // namespace axccl::shm
