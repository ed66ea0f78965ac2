#include "transports/remote/next_mate.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
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
  Ring ring(mates.begin(), mates.end());
  if (std::find(rings_.begin(), rings_.end(), ring) != rings_.end()) return;
  const std::vector<ProcessId> refused = Connect(&ring);
  if (!ring.empty()) rings_.push_back(std::move(ring));
  for (const ProcessId& mate : refused) ended_(mate);
}

// One that cannot be reached, but does not refuse, does not share these sockets.
std::vector<NextMate::ProcessId> NextMate::Connect(Ring* ring) {
  std::vector<ProcessId> refused;
  while (!ring->empty()) {
    auto next = ring->upper_bound(self_);
    if (next == ring->end()) next = ring->begin();
    const ProcessId mate = *next;
    if (connections_.contains(mate)) return refused;
    sockaddr_un address;
    const socklen_t bytes = Mates::NameOf(kNextName, mate, &address);
    service::Fd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!fd) return refused;
    if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), bytes) != 0) {
      if (errno == ECONNREFUSED) refused.push_back(mate);
      ring->erase(next);
      continue;
    }
    (void)loop_->Watch(fd.get(), EPOLLRDHUP, [this, mate](uint32_t) { OnEnd(mate); }).ok();
    connections_.emplace(mate, std::move(fd));
    return refused;
  }
  return refused;
}

// Those behind it may have ended while it was stopped, or just before it.
void NextMate::OnEnd(ProcessId ended) {
  const auto connection = connections_.find(ended);
  loop_->Unwatch(connection->second.get());
  connections_.erase(connection);
  std::vector<ProcessId> all{ended};
  for (Ring& ring : rings_) {
    if (ring.erase(ended) == 0) continue;
    const std::vector<ProcessId> refused = Connect(&ring);
    all.insert(all.end(), refused.begin(), refused.end());
  }
  std::erase_if(rings_, [](const Ring& ring) { return ring.empty(); });
  for (const ProcessId& mate : all) ended_(mate);
}

}  // namespace axccl::remote
