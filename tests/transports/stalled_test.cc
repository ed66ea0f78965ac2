// Which connections count as stalled. tests/net/net_failure_test.cc shows that the connections of a host that is cut
// off do, and can then be closed.
#include "transports/ucx/stalled.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <vector>

#include "src/base/service_fd.h"

namespace axccl::ucx {
namespace {

using service::Fd;
using std::chrono::milliseconds;

struct Connection {
  Fd near, far;
};

Connection Connect() {
  Connection c;
  const Fd listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t bytes = sizeof(address);
  EXPECT_EQ(bind(listener.get(), reinterpret_cast<sockaddr*>(&address), bytes), 0);
  EXPECT_EQ(listen(listener.get(), 1), 0);
  EXPECT_EQ(getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &bytes), 0);
  c.near = Fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  (void)connect(c.near.get(), reinterpret_cast<sockaddr*>(&address), bytes);
  c.far = Fd(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  EXPECT_TRUE(c.far);
  return c;
}

// UCX watches its descriptors like this: an epoll descriptor that watches those of its interfaces.
class Watched : public testing::Test {
 protected:
  Watched() { Watch(outer_, inner_); }
  static void Watch(const Fd& by, const Fd& fd) {
    epoll_event event{};
    event.events = EPOLLIN;
    EXPECT_EQ(epoll_ctl(by.get(), EPOLL_CTL_ADD, fd.get(), &event), 0);
  }
  // The first of the two outer descriptors watches nothing.
  const Fd other_{epoll_create1(EPOLL_CLOEXEC)}, outer_{epoll_create1(EPOLL_CLOEXEC)},
      inner_{epoll_create1(EPOLL_CLOEXEC)};
  const std::vector<int> watched_{other_.get(), outer_.get()};
};

ssize_t Send(const Fd& fd, size_t bytes) {
  const std::vector<char> data(bytes, 'x');
  return send(fd.get(), data.data(), data.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}

TEST_F(Watched, ConnectionsWithRoomAreLeftAloneAtOnce) {
  const Connection c = Connect();
  Watch(inner_, c.near);
  const auto start = std::chrono::steady_clock::now();
  ShutStalled(watched_, {}, std::chrono::minutes(1));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(30));
  EXPECT_EQ(Send(c.near, 10), 10);
}

TEST_F(Watched, PeersThatReadNothingButAnswerKeepTheirConnections) {
  const Connection c = Connect();
  Watch(inner_, c.near);
  while (Send(c.near, 1 << 16) > 0) continue;
  ShutStalled(watched_, {}, milliseconds(700));  // several probes for room in the peer's buffer
  EXPECT_TRUE(Send(c.near, 10) == 10 || errno == EAGAIN) << std::strerror(errno);
}

TEST_F(Watched, SparedHostsAreNotWaitedFor) {
  const Connection c = Connect();
  Watch(inner_, c.near);
  while (Send(c.near, 1 << 16) > 0) continue;
  sockaddr_storage peer{};
  socklen_t bytes = sizeof(peer);
  ASSERT_EQ(getpeername(c.near.get(), reinterpret_cast<sockaddr*>(&peer), &bytes), 0);
  reinterpret_cast<sockaddr_in*>(&peer)->sin_port = 1;
  ShutStalled(watched_, std::vector<sockaddr_storage>{peer}, std::chrono::hours(1));
}

TEST_F(Watched, ListenersAndUnconnectedSocketsAreNotWaitedFor) {
  const Fd listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(listen(listener.get(), 1), 0);
  Watch(inner_, listener);
  ShutStalled(watched_, {}, std::chrono::hours(1));
  ShutStalled(std::vector<int>{-1}, {}, std::chrono::hours(1));
}

}  // namespace
}  // namespace axccl::ucx
