#include "src/boot/tcp.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

namespace axccl::boot {
namespace {

// How long the other side may not answer, in ms. While nothing is sent, Linux probes once a second (it counts in
// seconds), and with TCP_USER_TIMEOUT, which overrides TCP_KEEPCNT, gives up at the first check after that time: of n
// seconds, once n - 1 probes in a row have no answer. Where every tenth packet is lost each way, that is 0.19 for each.
// A rank that waits a minute for others would be given up with a probability of 0.85 at 3 s (measured, too), and of
// 0.00002 at 10 s.
constexpr int kPatience = 10'000, kForEach = 50;
constexpr int kFew = 64;

void SetInt(int fd, int level, int option, int value) {
  // Tuning: a kernel that lacks an option costs latency or detection time, not correctness.
  (void)setsockopt(fd, level, option, &value, sizeof value);
}

}  // namespace

void TuneSocket(int fd, int nranks) {
  SetInt(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  // A lost packet is sent again every 200 ms, not after growing delays, so that a network which loses every tenth one
  // seldom counts as broken.
  SetInt(fd, IPPROTO_TCP, TCP_THIN_LINEAR_TIMEOUTS, 1);
  SetInt(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  SetInt(fd, IPPROTO_TCP, TCP_KEEPIDLE, 1);
  SetInt(fd, IPPROTO_TCP, TCP_KEEPINTVL, 1);
  SetInt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, nranks <= kFew ? kPatience : kPatience + nranks * kForEach);
}

Result<service::Fd> Listen(Address* address, bool reuse, bool* busy) {
  const std::string text = ToText(*address);
  service::Fd fd(socket(address->family == 4 ? AF_INET : AF_INET6, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) return service::OpenError(errno, "listening on " + text + ": a socket");
  if (reuse) SetInt(fd.get(), SOL_SOCKET, SO_REUSEADDR, 1);
  // An IPv6 address is this machine's while the kernel still looks for duplicates of it, for a second or two, or has
  // found one. Without this option, bind refuses it.
  if (!reuse) SetInt(fd.get(), IPPROTO_IP, IP_FREEBIND, 1);
  socklen_t bytes;
  sockaddr_storage storage = ToSockaddr(*address, &bytes);
  if (bind(fd.get(), reinterpret_cast<sockaddr*>(&storage), bytes) != 0) {
    if (busy != nullptr) *busy = errno == EADDRINUSE;
    return SystemError(errno,
                       "listening on %s: bind (another process or job on the port, or not an address of this machine?)",
                       text.c_str());
  }
  if (listen(fd.get(), SOMAXCONN) != 0) return SystemError(errno, "listening on %s: listen", text.c_str());
  bytes = sizeof storage;
  if (getsockname(fd.get(), reinterpret_cast<sockaddr*>(&storage), &bytes) != 0) {
    return SystemError(errno, "listening on %s: getsockname", text.c_str());
  }
  address->port = FromSockaddr(reinterpret_cast<sockaddr*>(&storage)).port;
  return fd;
}

}  // namespace axccl::boot
