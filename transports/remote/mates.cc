#include "transports/remote/mates.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "src/base/format.h"

namespace axccl::remote {
namespace {

// Until a mate's queue may have room: no event says so.
constexpr std::chrono::milliseconds kTryAgain{5};
constexpr size_t kMostBytes = 64u << 10;
constexpr int kMostAtOnce = 64;  // others have their turn then
constexpr int kMostTurns = 16;   // a queue has 10 datagrams, or 512 where systemd sets that

constexpr const char* kName = "axccl-mate-";

// Returns the length of a datagram of this user; 0: it is of another one, or too long; negative: there is none.
ssize_t ReceiveOwn(int fd, std::span<std::byte> buffer) {
  iovec to{buffer.data(), buffer.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(ucred))];
  msghdr header{};
  header.msg_iov = &to;
  header.msg_iovlen = 1;
  header.msg_control = control;
  header.msg_controllen = sizeof control;
  const ssize_t got = recvmsg(fd, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (got < 0) return errno == EINTR ? 0 : -1;
  const cmsghdr* const first = CMSG_FIRSTHDR(&header);
  if ((header.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0 || first == nullptr || first->cmsg_level != SOL_SOCKET ||
      first->cmsg_type != SCM_CREDENTIALS)
    return 0;
  ucred sender;
  std::memcpy(&sender, CMSG_DATA(first), sizeof sender);
  return sender.uid == getuid() ? got : 0;
}

}  // namespace

socklen_t Mates::NameOf(const std::string& purpose, const ProcessId& process, sockaddr_un* address) {
  *address = {};
  address->sun_family = AF_UNIX;
  std::string name = purpose;
  for (const uint8_t byte : process) name += Format("%02x", byte);
  std::memcpy(address->sun_path + 1, name.data(), name.size());
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
}

Status Mates::Start(service::Loop* loop, const ProcessId& self, Hear hear) {
  loop_ = loop;
  hear_ = std::move(hear);
  fd_ = service::Fd(socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd_) return service::OpenError(errno, "hearing other processes of this machine: a socket");
  const int on = 1;
  sockaddr_un address;
  const socklen_t bytes = NameOf(kName, self, &address);
  if (setsockopt(fd_.get(), SOL_SOCKET, SO_PASSCRED, &on, sizeof on) != 0 ||
      bind(fd_.get(), reinterpret_cast<const sockaddr*>(&address), bytes) != 0)
    return SystemError(errno, "hearing other processes of this machine: bind");
  return loop_->Watch(fd_.get(), EPOLLIN, [this](uint32_t) { Receive(); });
}

void Mates::Add(const ProcessId& mate) { mates_.try_emplace(mate); }

bool Mates::Tell(const ProcessId& mate, const Head& head, std::span<const std::byte> bytes) {
  const auto found = mates_.find(mate);
  if (found == mates_.end()) return false;
  Message message(sizeof head + bytes.size());
  std::memcpy(message.data(), &head, sizeof head);
  if (!bytes.empty()) std::memcpy(message.data() + sizeof head, bytes.data(), bytes.size());
  std::deque<Message>& waiting = found->second.waiting;
  if (waiting.empty() && Send(mate, message, &found->second)) return true;
  waiting.push_back(std::move(message));
  if (!std::exchange(waiting_, true)) loop_->CallAt(service::Clock::now() + kTryAgain, [this] { SendWaiting(); });
  return true;
}

void Mates::TellAll(const Head& head) {
  for (const auto& [mate, messages] : mates_) (void)Tell(mate, head, {});
}

size_t Mates::Waiting(const ProcessId& mate, const ProcessId& about) const {
  const auto found = mates_.find(mate);
  if (found == mates_.end()) return 0;
  const auto is_about = [&](const Message& message) {
    Head head;
    std::memcpy(&head, message.data(), sizeof head);
    return head.kind == Head::kPassed && head.about == about;
  };
  const std::deque<Message>& waiting = found->second.waiting;
  const auto count = std::count_if(waiting.begin(), waiting.end(), is_about);
  return static_cast<size_t>(count);
}

bool Mates::Misses(const ProcessId& mate) const {
  const auto found = mates_.find(mate);
  return found != mates_.end() && found->second.misses;
}

void Mates::HearAll() {
  for (int turn = 0; turn < kMostTurns && Receive(); ++turn) continue;
}

bool Mates::Receive() {
  std::vector<std::byte> buffer(kMostBytes);
  for (int count = 0; count < kMostAtOnce; ++count) {
    const ssize_t got = ReceiveOwn(fd_.get(), buffer);
    if (got < 0) return false;
    Head head;
    if (static_cast<size_t>(got) < sizeof head) continue;
    std::memcpy(&head, buffer.data(), sizeof head);
    hear_(head, std::span(buffer).subspan(sizeof head, static_cast<size_t>(got) - sizeof head));
  }
  return true;
}

bool Mates::Send(const ProcessId& id, const Message& message, Mate* mate) {
  sockaddr_un address;
  const socklen_t bytes = NameOf(kName, id, &address);
  const auto* const to = reinterpret_cast<const sockaddr*>(&address);
  if (sendto(fd_.get(), message.data(), message.size(), MSG_DONTWAIT | MSG_NOSIGNAL, to, bytes) >= 0) return true;
  if (errno == EAGAIN || errno == ENOBUFS || errno == ENOMEM || errno == EINTR) return false;
  mate->misses |= errno != ECONNREFUSED;  // the mate has not ended
  return true;
}

void Mates::SendWaiting() {
  waiting_ = false;
  for (auto& [id, mate] : mates_) {
    while (!mate.waiting.empty() && Send(id, mate.waiting.front(), &mate)) mate.waiting.pop_front();
    waiting_ |= !mate.waiting.empty();
  }
  if (waiting_) loop_->CallAt(service::Clock::now() + kTryAgain, [this] { SendWaiting(); });
  if (taken_) taken_();
}

}  // namespace axccl::remote
