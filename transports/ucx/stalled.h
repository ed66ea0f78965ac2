// Prepares a connection before it is given up, so that UCX does not hang.
//
// UCX sends a last message on every TCP connection that it closes, and retries while the socket has no room. If the
// path to the peer is cut, there is no room until TCP gives up, which takes a quarter of an hour. On a connection that
// has been shut down, it fails at once.
#pragma once

#include <sys/socket.h>

#include <chrono>
#include <span>

namespace axccl::ucx {

// Shuts down the connections of UCX under `event_fds`, its descriptors for events, that the peer no longer answers:
// those without room whose data or window probes were retransmitted without an answer. Waits, at most for `patience`,
// while that is undecided. A peer that answers but receives nothing, such as a stopped process, keeps its connection.
// Connections to the addresses `spared`, at any port, stay as they are: what such a peer does not answer for a moment
// may just have been lost.
void ShutStalled(std::span<const int> event_fds, std::span<const sockaddr_storage> spared,
                 std::chrono::milliseconds patience);

// Whether two addresses differ at most in their ports.
bool OfSameHost(const sockaddr_storage& a, const sockaddr_storage& b);

}  // namespace axccl::ucx
