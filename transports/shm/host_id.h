// Decides which processes can share memory: those with equal host ids. The id consists of what sharing requires, not of
// names.
//
// - One running kernel: its boot id.
// - NCCL_HOSTID, with which a user makes ranks of one machine behave as if they were on several.
// - One network namespace, because memory is handed over through sockets with abstract names, which each namespace has
// of
//   its own.
// - One user namespace and one user: a process answers only clients of the same user, and user ids have a meaning only
//   within their namespace.
// - One PID namespace. Ranks send each other process ids, and access memory outside heaps with them
//   (process_vm_readv). In another namespace, such an id belongs to no process or to another one.
//
// Mount, IPC, UTS and cgroup namespaces do not matter: heaps are passed as descriptors and have neither path nor key.
// Equal ids mean that attaching is worth trying; Attach reports when it still fails.
#pragma once

#include "src/base/status.h"
#include "transports/transport.h"

namespace axccl::shm {

// The current id of this process; a process keeps the id that it has when it offers its heap. If /proc is not mounted,
// the host name replaces the boot id, and the namespaces count as equal to those of other processes that do not know
// theirs: heaps are shared, and CanCallCopy finds out whether the peer's process id is good here. kSystemError when no
// descriptor is left to read with: with a wrong id, the process would not share memory with its neighbours.
Result<transport::HostId> CurrentHostId();

// What keeps the two processes from sharing memory, in words ("another machine"), the most helpful reason first; null
// if nothing does.
const char* WhyApart(const transport::HostId& one, const transport::HostId& other);

}  // namespace axccl::shm
