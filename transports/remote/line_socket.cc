#include "transports/remote/line_socket.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "src/base/log.h"
#include "src/base/param.h"

namespace axccl::remote {
namespace {

constexpr int kSynTries = 3;  // 15 s

void SetInt(int fd, int option, int value) { (void)setsockopt(fd, IPPROTO_TCP, option, &value, sizeof(value)); }

}  // namespace

void Tune(int fd) {
  SetInt(fd, TCP_NODELAY, 1);
  SetInt(fd, TCP_THIN_LINEAR_TIMEOUTS, 1);
  SetInt(fd, TCP_USER_TIMEOUT, static_cast<int>(kLinePatience.count()));
}

void AskWhileIdle(int fd) {
  const int on = 1;
  (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  SetInt(fd, TCP_KEEPIDLE, 1);
  SetInt(fd, TCP_KEEPINTVL, 1);
}

void TuneForData(int fd) {
  const int off = 0;
  SetInt(fd, TCP_NODELAY, 1);
  SetInt(fd, TCP_THIN_LINEAR_TIMEOUTS, 0);
  SetInt(fd, TCP_USER_TIMEOUT, 0);
  (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &off, sizeof off);
  const auto poll = static_cast<int>(param::GetInt("AXCCL_BUSY_POLL"));
  if (poll <= 0 || setsockopt(fd, SOL_SOCKET, SO_BUSY_POLL, &poll, sizeof poll) == 0) return;
  AXCCL_INFO(kNet, "AXCCL_BUSY_POLL=%d: SO_BUSY_POLL: %s; threads look for so long, without the driver's help", poll,
             std::strerror(errno));
}

bool HasEnded(int fd) {
  pollfd socket{fd, POLLRDHUP, 0};
  return poll(&socket, 1, 0) > 0;
}

Result<service::Fd> ListenAt(sockaddr_storage* local) {
  if (local->ss_family == AF_INET6) {
    reinterpret_cast<sockaddr_in6*>(local)->sin6_port = 0;
  } else {
    reinterpret_cast<sockaddr_in*>(local)->sin_port = 0;
  }
  service::Fd fd(socket(local->ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  socklen_t bytes = BytesOf(*local);
  auto* const address = reinterpret_cast<sockaddr*>(local);
  if (!fd || bind(fd.get(), address, bytes) != 0 || listen(fd.get(), SOMAXCONN) != 0 ||
      getsockname(fd.get(), address, &bytes) != 0)
    return SystemError(errno, "listening for ranks of other machines");
  return fd;
}

std::string Reason(int error, const std::string& rail) {
  if (error == 0) return "its process has ended";
  if (error == ECONNRESET || error == EPIPE) return kProcessEnded;
  if (error == ECONNREFUSED) return "its process has ended: nothing listens at its address";
  if (error == ETIMEDOUT || error == EHOSTUNREACH || error == ENETUNREACH)
    return "its machine, or the network to it, has not answered for " + std::to_string(kLinePatience.count()) +
           " ms over " + rail;
  return std::strerror(error);
}

Result<service::Fd> BeginConnect(const sockaddr_storage& address) {
  service::Fd fd(socket(address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) return service::OpenError(errno, "calling a process on another machine: a socket");
  SetInt(fd.get(), TCP_NODELAY, 1);
  SetInt(fd.get(), TCP_SYNCNT, kSynTries);
  if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), BytesOf(address)) != 0 && errno != EINPROGRESS)
    return SystemError(errno, "calling a process on another machine: connect");
  return fd;
}

}  // namespace axccl::remote
