#include "src/base/service_acceptor.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <utility>

#include "src/base/log.h"

namespace axccl::service {
namespace {

// Connections accepted per wake-up: few enough that guests which have sent something are read before further ones are
// accepted and push them out.
constexpr int kAcceptBatch = 16;
constexpr std::chrono::milliseconds kPause{50};

size_t MostStrangers() {
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0) return kMostStrangers;
  return std::clamp<rlim_t>(files.rlim_cur / 8, 2 * kAcceptBatch, kMostStrangers);
}

}  // namespace

Acceptor::Acceptor(Loop* loop, Fd listener, std::function<std::unique_ptr<Guest>(Fd)> make_guest,
                   std::function<Places()> places)
    : loop_(loop), listener_(std::move(listener)), make_guest_(std::move(make_guest)), places_(std::move(places)) {}

Acceptor::~Acceptor() {
  loop_->Cancel(pause_timer_);
  if (listener_) loop_->Unwatch(listener_.get());
  while (!strangers_.empty()) Drop(strangers_.begin());
  while (!recognised_.empty()) Drop(recognised_.begin()->second.begin());
  Acceptor** link = &first_;
  while (*link != nullptr && *link != this) link = &(*link)->next_;
  if (*link == this) *link = next_;
}

Status Acceptor::Start() {
  AXCCL_RETURN_IF_ERROR(loop_->Watch(listener_.get(), EPOLLIN, [this](uint32_t) { OnListener(); }));
  next_ = std::exchange(first_, this);
  return Status();
}

size_t Acceptor::guests() const {
  size_t count = strangers_.size();
  for (const auto& [name, entries] : recognised_) count += entries.size();
  return count;
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

// For one stranger. Those at one port do not push out what comes to another.
void Acceptor::MakeRoom() {
  const size_t of_this = places_().strangers, of_all = MostStrangers();
  while (!strangers_.empty() && strangers_.size() >= of_this) Drop(strangers_.begin());
  for (;;) {
    size_t count = 0;
    Acceptor* fullest = this;
    for (Acceptor* each = first_; each != nullptr; each = each->next_) {
      if (each->loop_ != loop_) continue;
      count += each->strangers_.size();
      if (each->strangers_.size() > fullest->strangers_.size()) fullest = each;
    }
    if (count < of_all) return;
    fullest->Drop(fullest->strangers_.begin());
  }
}

void Acceptor::AddGuest(Fd fd) {
  std::unique_ptr<Guest> guest = make_guest_(std::move(fd));
  if (guest == nullptr) return;
  MakeRoom();
  const int number = guest->fd();
  strangers_.push_back(Entry{std::move(guest), &strangers_});
  const Iterator entry = std::prev(strangers_.end());
  const Status status = CatchAll("service thread", [&]() -> Status {
    AXCCL_RETURN_IF_ERROR(loop_->Watch(number, EPOLLIN, [this, entry](uint32_t) { OnGuest(entry); }));
    LimitTime(entry);
    return Status();
  });
  if (status.ok()) return;
  AXCCL_WARN("%s", status.message().data());
  entry->guest->Unheard(status);
  Drop(entry);
}

void Acceptor::LimitTime(Iterator entry) {
  loop_->Cancel(std::exchange(entry->timer, 0));
  entry->timer = loop_->CallAt(Clock::now() + kGuestTime, [this, entry] {
    entry->timer = 0;
    Drop(entry);
  });
}

void Acceptor::OnGuest(Iterator entry) {
  Guest::Verdict verdict = Guest::Verdict::kDrop;
  const Status asked = CatchAll("service thread", [&] {
    verdict = entry->guest->OnEvent();
    const Guest::Name* const name = entry->guest->Named();
    if (verdict == Guest::Verdict::kWait && name != nullptr && entry->among == &strangers_) Recognise(entry, *name);
    return Status();
  });
  if (!asked.ok()) AXCCL_WARN("%s", asked.message().data());
  if (asked.ok() && verdict == Guest::Verdict::kWait) return;
  const std::unique_ptr<Guest> guest = Leave(entry);
  // Must come last: it may destroy this acceptor.
  if (verdict == Guest::Verdict::kAdmit) guest->Admitted(std::move(guest->fd_));
}

void Acceptor::Recognise(Iterator entry, const Guest::Name& name) {
  const size_t most = places_().of_a_name;
  Entries& same = recognised_[name];
  same.splice(same.end(), strangers_, entry);
  entry->among = &same;
  while (same.size() > most) Drop(same.begin());
  LimitTime(entry);
}

void Acceptor::AskStrangers() {
  for (Iterator entry = strangers_.begin(); entry != strangers_.end();) OnGuest(entry++);
}

std::unique_ptr<Guest> Acceptor::Leave(Iterator entry) {
  std::unique_ptr<Guest> guest = std::move(entry->guest);
  loop_->Unwatch(guest->fd());
  loop_->Cancel(entry->timer);
  Entries* const among = entry->among;
  among->erase(entry);
  if (among != &strangers_ && among->empty())
    std::erase_if(recognised_, [among](const auto& each) { return &each.second == among; });
  return guest;
}

}  // namespace axccl::service
