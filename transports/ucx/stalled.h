// Before a connection is given up: sees to it that UCX can.
//
// UCX says goodbye on every TCP connection that it closes, and where the socket has no room it tries again and again.
// When the way to the peer is cut there is none for as long as TCP hopes, which is a quarter of an hour. On a
// connection that has been shut it fails at once.
#pragma once

#include <chrono>
#include <span>

namespace axccl::ucx {

// Shuts the connections that UCX has under `event_fds`, its descriptors for events, and that the peer does not answer
// any more: those that have no room, and whose data or questions for room were sent again in vain. Waits, at most for
// `patience`, as long as it cannot tell. A peer that answers but takes in nothing, such as a process that is stopped,
// keeps its connection.
void ShutStalled(std::span<const int> event_fds, std::chrono::milliseconds patience);

}  // namespace axccl::ucx
