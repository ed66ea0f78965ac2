#include "src/base/service_acceptor.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <utility>

#include "src/base/log.h"

namespace axccl::service {
namespace {

// Connections accepted per wake-up: few enough that guests which have sent something are read before further ones are
// accepted and push them out.
constexpr int kAcceptBatch = 16;
constexpr std::chrono::milliseconds kPause{50};

}  // namespace

Acceptor::Acceptor(Loop* loop, Fd listener, std::function<std::unique_ptr<Guest>(Fd)> make_guest,
                   std::function<size_t()> cap)
    : loop_(loop), listener_(std::move(listener)), make_guest_(std::move(make_guest)), cap_(std::move(cap)) {}

Acceptor::~Acceptor() {
  loop_->Cancel(pause_timer_);
  if (listener_) loop_->Unwatch(listener_.get());
  while (!guests_.empty()) Drop(guests_.begin());
}

Status Acceptor::Start() {
  return loop_->Watch(listener_.get(), EPOLLIN, [this](uint32_t) { OnListener(); });
}

void Acceptor::OnListener() {
  for (int i = 0; i < kAcceptBatch; ++i) {
    Fd fd(accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!fd) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      if (errno != EAGAIN && errno != EWOULDBLOCK) Pause();
      return;
    }
    const Status added = CatchAll("service thread", [&] { return AddGuest(std::move(fd)), Status(); });
    if (!added.ok()) AXCCL_WARN("%s", added.message().data());  // the guest's connection ends
  }
}

// Called when descriptors or memory run out. The listener stays readable, so the thread stops watching it for a while;
// otherwise it would spin.
void Acceptor::Pause() {
  AXCCL_WARN("service thread: accept failed (errno %d), connections wait; raise the limit on open files if it persists",
             errno);
  if (loop_->Modify(listener_.get(), 0).ok()) {
    pause_timer_ = loop_->CallAt(Clock::now() + kPause, [this] {
      pause_timer_ = 0;
      if (Status status = loop_->Modify(listener_.get(), EPOLLIN); !status.ok()) {
        AXCCL_WARN("%s", status.message().data());
      }
    });
  }
}

void Acceptor::AddGuest(Fd fd) {
  std::unique_ptr<Guest> guest = make_guest_(std::move(fd));
  if (guest == nullptr) return;
  const size_t cap = cap_();
  while (!guests_.empty() && guests_.size() >= cap) Drop(guests_.begin());
  const int number = guest->fd();
  guests_.push_back(Entry{std::move(guest), 0});
  const Iterator entry = std::prev(guests_.end());
  const Status status = CatchAll("service thread", [&]() -> Status {
    AXCCL_RETURN_IF_ERROR(loop_->Watch(number, EPOLLIN, [this, entry](uint32_t) { OnGuest(entry); }));
    entry->timer = loop_->CallAt(Clock::now() + kGuestTime, [this, entry] {
      entry->timer = 0;
      Drop(entry);
    });
    return Status();
  });
  if (status.ok()) return;
  AXCCL_WARN("%s", status.message().data());
  entry->guest->Unheard(status);
  Drop(entry);
}

void Acceptor::OnGuest(Iterator entry) {
  Guest::Verdict verdict = Guest::Verdict::kDrop;
  const Status asked = CatchAll("service thread", [&] { return verdict = entry->guest->OnEvent(), Status(); });
  if (!asked.ok()) AXCCL_WARN("%s", asked.message().data());
  if (verdict == Guest::Verdict::kWait) return;
  std::unique_ptr<Guest> guest = std::move(entry->guest);
  loop_->Unwatch(guest->fd());
  loop_->Cancel(entry->timer);
  guests_.erase(entry);
  // Must come last: it may destroy this acceptor.
  if (verdict == Guest::Verdict::kAdmit) guest->Admitted(std::move(guest->fd_));
}

void Acceptor::AskGuests() {
  for (Iterator entry = guests_.begin(); entry != guests_.end();) OnGuest(entry++);
}

void Acceptor::Drop(Iterator entry) {
  loop_->Unwatch(entry->guest->fd());
  loop_->Cancel(entry->timer);
  guests_.erase(entry);
}

}  // namespace axccl::service
