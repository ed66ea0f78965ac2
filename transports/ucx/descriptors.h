// UCX leaves its descriptors (pipes, timers, sockets) open in programs that this one becomes by exec. They are found
// among what UCX itself watches, so no other descriptor is touched. The caller must hold the lock of worker.h.
#pragma once

#include <set>
#include <vector>

namespace axccl::ucx {

// The epoll descriptors of this process that exec keeps. UCX makes those with which it watches its other descriptors
// when it starts: they are the ones that exist afterwards and not before.
std::set<int> EpollsThatExecKeeps();

// Makes exec close these epoll descriptors, what they watch, and the other ends of pipes among that. Call it again when
// there may be new ones.
void CloseOnExec(const std::vector<int>& epolls);

}  // namespace axccl::ucx
