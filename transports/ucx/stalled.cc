#include "transports/ucx/stalled.h"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "src/base/log.h"

namespace axccl::ucx {
namespace {

constexpr std::chrono::milliseconds kBetweenLooks(20);
constexpr int kDepth = 4;                        // of nested epoll descriptors
constexpr int kProbes = 2;                       // one may be on its way to a peer that answers
constexpr int kEstablished = 1, kCloseWait = 8;  // states of TCP, as the kernel numbers them

bool Ask(int fd, tcp_info* info) {
  socklen_t bytes = sizeof(*info);
  return getsockopt(fd, IPPROTO_TCP, TCP_INFO, info, &bytes) == 0;
}

bool Sends(const tcp_info& info) { return info.tcpi_state == kEstablished || info.tcpi_state == kCloseWait; }

// Lists the connections that an epoll descriptor watches, also through others.
void ListSockets(int event_fd, int depth, std::vector<pollfd>* sockets) {
  std::FILE* const file = std::fopen(("/proc/self/fdinfo/" + std::to_string(event_fd)).c_str(), "re");
  if (file == nullptr) return;
  char line[256];
  int fd = -1;
  tcp_info info;
  while (std::fgets(line, sizeof(line), file) != nullptr) {
    if (std::sscanf(line, "tfd: %d", &fd) != 1) continue;
    if (Ask(fd, &info)) {
      if (Sends(info)) sockets->push_back({fd, POLLOUT, 0});
    } else if (depth > 1) {
      ListSockets(fd, depth - 1, sockets);
    }
  }
  std::fclose(file);
}

bool Unanswered(int fd) {
  tcp_info info{};
  if (!Ask(fd, &info)) return false;
  return (info.tcpi_unacked > 0 && info.tcpi_retransmits > 0) || info.tcpi_probes >= kProbes;
}

bool LeadsTo(int fd, std::span<const sockaddr_storage> hosts) {
  sockaddr_storage peer{};
  socklen_t bytes = sizeof(peer);
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &bytes) != 0) return false;
  return std::any_of(hosts.begin(), hosts.end(), [&](const auto& host) { return OfSameHost(peer, host); });
}

}  // namespace

bool OfSameHost(const sockaddr_storage& a, const sockaddr_storage& b) {
  if (a.ss_family != b.ss_family) return false;
  const auto same = [&](auto address, auto member) {
    const auto* const one = reinterpret_cast<const decltype(address)*>(&a);
    const auto* const other = reinterpret_cast<const decltype(address)*>(&b);
    return std::memcmp(&(one->*member), &(other->*member), sizeof(one->*member)) == 0;
  };
  return a.ss_family == AF_INET6 ? same(sockaddr_in6{}, &sockaddr_in6::sin6_addr)
                                 : same(sockaddr_in{}, &sockaddr_in::sin_addr);
}

void ShutStalled(std::span<const int> event_fds, std::span<const sockaddr_storage> spared,
                 std::chrono::milliseconds patience) {
  const auto limit = std::chrono::steady_clock::now() + patience;
  std::vector<pollfd> sockets;
  for (const int event_fd : event_fds) ListSockets(event_fd, kDepth, &sockets);
  std::erase_if(sockets, [&](const pollfd& socket) { return LeadsTo(socket.fd, spared); });
  for (int wait = 0; !sockets.empty(); wait = static_cast<int>(kBetweenLooks.count())) {
    // Ends early only when a socket finds room.
    if (poll(sockets.data(), sockets.size(), wait) < 0) return;
    std::erase_if(sockets, [](const pollfd& socket) {
      if (socket.revents != 0) return true;
      if (!Unanswered(socket.fd)) return false;
      AXCCL_INFO(kNet, "shutting a connection of UCX (descriptor %d) that is not answered any more", socket.fd);
      shutdown(socket.fd, SHUT_RDWR);
      return true;
    });
    if (std::chrono::steady_clock::now() >= limit) return;
  }
}

}  // namespace axccl::ucx
