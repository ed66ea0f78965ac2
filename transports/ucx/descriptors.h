// UCX leaves its descriptors (pipes, timers, sockets) to programs that this one becomes by exec. They are found by what
// UCX itself watches, so that nobody else's is touched. Whoever calls holds the lock of worker.h.
#pragma once

#include <set>
#include <vector>

namespace axccl::ucx {

// The epoll descriptors of this process that exec keeps. UCX makes those that it watches its others by when it starts:
// what is there afterwards and was not before.
std::set<int> EpollsThatExecKeeps();

// Has exec close these epoll descriptors, what they watch, and the other ends of pipes among that. Again where there
// may be new ones.
void CloseOnExec(const std::vector<int>& epolls);

}  // namespace axccl::ucx
