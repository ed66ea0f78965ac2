#include "transports/shm/handover_client.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "src/base/format.h"

namespace axccl::shm {

using service::Fd;
using service::Wait;
using transport::ProcessPage;

Status WaitError(Wait wait, const Patience& patience, const char* what) {
  if (wait == Wait::kStopped) {
    return MakeStatus(Code::kInvalidUsage, "%s: aborted by the caller while %s", patience.what.c_str(), what);
  }
  if (wait == Wait::kTimeout) {
    return MakeStatus(Code::kTimeout, "%s: deadline passed while %s; is the process stopped?", patience.what.c_str(),
                      what);
  }
  return SystemError(errno, "%s: poll", patience.what.c_str());
}

Status Gone(const Patience& patience) {
  return MakeStatus(Code::kRemoteError, "%s: the process is gone", patience.what.c_str());
}

namespace {

Status CheckServerUser(int fd, const Patience& patience) {
  ucred peer{};
  socklen_t length = sizeof peer;
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) {
    return SystemError(errno, "%s: SO_PEERCRED", patience.what.c_str());
  }
  if (peer.uid != geteuid()) {
    return MakeStatus(Code::kInvalidUsage, "%s: its socket is now held by user %u, not by user %u",
                      patience.what.c_str(), peer.uid, geteuid());
  }
  return Status();
}

Result<Fd> Connect(const std::array<char, 48>& name, const Patience& patience) {
  Fd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) return service::OpenError(errno, patience.what + ": Unix socket");
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const size_t length = strnlen(name.data(), name.size());
  std::memcpy(address.sun_path + 1, name.data(), length);
  const socklen_t bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length);
  while (connect(fd.get(), reinterpret_cast<sockaddr*>(&address), bytes) != 0) {
    if (errno == EINTR) continue;
    if (errno == ECONNREFUSED) return Gone(patience);
    if (errno != EAGAIN) return SystemError(errno, "%s: connect", patience.what.c_str());
    // The peer's queue of connections is full, and a Unix socket cannot be polled for room in it.
    const auto retry = std::min(patience.deadline, service::Clock::now() + std::chrono::milliseconds(1));
    const Wait wait = service::PollUntil(-1, 0, retry, patience.stop);
    if (wait != Wait::kTimeout || retry == patience.deadline) return WaitError(wait, patience, "waiting for a place");
  }
  AXCCL_RETURN_IF_ERROR(CheckServerUser(fd.get(), patience));
  return fd;
}

// Receives the reply and the one descriptor that must come with it; closes all other descriptors.
Result<Fd> ReceiveFile(int fd, Reply* reply, const Patience& patience) {
  iovec data{reply, sizeof *reply};
  constexpr int kRoom = 4;
  alignas(cmsghdr) char control[CMSG_SPACE(kRoom * sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  ssize_t n = recvmsg(fd, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  // The hang-up is reported before the data that was sent first.
  if (n < 0 && errno == ECONNRESET) n = recvmsg(fd, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  const int error = errno;
  Fd received[kRoom];
  int count = 0;
  if (n >= 0) {
    for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr; header = CMSG_NXTHDR(&message, header)) {
      if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
      const int fds = static_cast<int>((header->cmsg_len - CMSG_LEN(0)) / sizeof(int));
      for (int i = 0; i < fds && count < kRoom; ++i) {
        int number;
        std::memcpy(&number, CMSG_DATA(header) + i * sizeof(int), sizeof number);
        received[count++] = Fd(number);
      }
    }
  }
  if (n < 0 && error != ECONNRESET) return SystemError(error, "%s: recvmsg", patience.what.c_str());
  if (n <= 0) return Gone(patience);
  if (n == sizeof *reply && reply->magic == Reply::kMagic && reply->heap_bytes == 0 && reply->trouble[0] != 0) {
    return MakeStatus(
        Code::kRemoteError, "%s: it lives, but could not hand out its memory: %s", patience.what.c_str(),
        Printable({reply->trouble.data(), strnlen(reply->trouble.data(), reply->trouble.size())}).c_str());
  }
  if (n == sizeof *reply && reply->magic == Reply::kMagic && reply->heap_bytes == 0) {
    return MakeStatus(Code::kInvalidUsage,
                      "%s: it refused; the address is not its own, or it uses version %u of the protocol "
                      "and this process %u",
                      patience.what.c_str(), reply->version, ProcessPage::kVersion);
  }
  if (n != sizeof *reply || reply->magic != Reply::kMagic || reply->version != ProcessPage::kVersion || count != 1 ||
      (message.msg_flags & (MSG_CTRUNC | MSG_TRUNC)) != 0) {
    return MakeStatus(Code::kInvalidUsage,
                      "%s: unexpected answer (%zd bytes, %d descriptors, flags 0x%x); do both processes "
                      "use the same version of the library, and is a descriptor free (ulimit -n)?",
                      patience.what.c_str(), n, count, static_cast<unsigned>(message.msg_flags));
  }
  return std::move(received[0]);
}

}  // namespace

Result<Fd> RequestFile(const std::array<char, 48>& name, const std::array<uint8_t, 16>& token, const Patience& patience,
                       Reply* reply) {
  AXCCL_ASSIGN_OR_RETURN(const Fd socket, Connect(name, patience));
  Request request;
  request.token = token;
  // A peer that has hung up may have sent a reason before.
  if (send(socket.get(), &request, sizeof request, MSG_NOSIGNAL) != sizeof request && errno != EPIPE &&
      errno != ECONNRESET)
    return SystemError(errno, "%s: send", patience.what.c_str());
  const Wait wait = service::PollUntil(socket.get(), POLLIN, patience.deadline, patience.stop);
  if (wait != Wait::kReady) return WaitError(wait, patience, "waiting for its memory");
  return ReceiveFile(socket.get(), reply, patience);
}

}  // namespace axccl::shm
