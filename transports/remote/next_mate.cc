#include "transports/remote/next_mate.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <cerrno>
#include <utility>

#include "transports/remote/mates.h"

namespace axccl::remote {
namespace {

constexpr const char* kNextName = "axccl-next-";

}  // namespace

Status NextMate::Start(service::Loop* loop, const ProcessId& self, Ended ended) {
  loop_ = loop;
  self_ = self;
  ended_ = std::move(ended);
  listener_ = service::Fd(socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!listener_) return service::OpenError(errno, "being known to other processes of this machine: a socket");
  sockaddr_un address;
  const socklen_t bytes = Mates::NameOf(kNextName, self, &address);
  if (bind(listener_.get(), reinterpret_cast<const sockaddr*>(&address), bytes) != 0 ||
      listen(listener_.get(), SOMAXCONN) != 0)
    return SystemError(errno, "being known to other processes of this machine: bind");
  return Status();
}

void NextMate::Add(std::span<const ProcessId> mates) {
  mates_.insert(mates.begin(), mates.end());
  (void)Connect();
}

// One that cannot be reached has ended before, or does not share these sockets.
std::vector<NextMate::ProcessId> NextMate::Connect() {
  std::vector<ProcessId> refused;
  while (!mates_.empty()) {
    auto next = mates_.upper_bound(self_);
    if (next == mates_.end()) next = mates_.begin();
    if (connection_ && *next == next_) return refused;
    sockaddr_un address;
    const socklen_t bytes = Mates::NameOf(kNextName, *next, &address);
    service::Fd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!fd) return refused;
    if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), bytes) != 0) {
      if (errno == ECONNREFUSED) refused.push_back(*next);
      mates_.erase(next);
      continue;
    }
    if (connection_) loop_->Unwatch(connection_.get());
    connection_ = std::move(fd);
    next_ = *next;
    (void)loop_->Watch(connection_.get(), EPOLLRDHUP, [this](uint32_t) { OnEnd(); }).ok();
    return refused;
  }
  return refused;
}

// Those behind it may have ended while it was stopped, or just before it.
void NextMate::OnEnd() {
  loop_->Unwatch(connection_.get());
  connection_.Close();
  const ProcessId ended = next_;
  mates_.erase(ended);
  ended_(ended);
  for (const ProcessId& refused : Connect()) ended_(refused);
}

}  // namespace axccl::remote
