#include "transports/tcp/worker.h"

#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "src/base/detached_thread.h"
#include "src/base/log.h"

namespace axccl::tcp {
namespace {

// So few connections are read without asking first which of them have something.
constexpr size_t kFew = 2;
// For how many looks after something has come more is expected at once, and how often a look asks the others.
constexpr uint64_t kWarmLooks = 256, kLooksAtOthers = 8;

}  // namespace

Result<Worker*> Worker::Get(const std::vector<remote::RailAddress>& rails) {
  static Worker* const worker = new Worker;
  static const Status* const status = new Status(worker->Start(rails));
  if (!status->ok()) return *status;
  return worker;
}

Status Worker::Start(const std::vector<remote::RailAddress>& rails) {
  rails_ = rails;
  ready_ = service::Fd(epoll_create1(EPOLL_CLOEXEC));
  woken_ = service::Fd(epoll_create1(EPOLL_CLOEXEC));
  if (!ready_ || !woken_) return service::OpenError(errno, "watching connections to other machines: epoll_create1");
  epoll_event event{};
  event.events = EPOLLONESHOT;
  if (epoll_ctl(woken_.get(), EPOLL_CTL_ADD, ready_.get(), &event) != 0)
    return SystemError(errno, "watching connections to other machines");
  remote::Lines* const lines = remote::Lines::Made();
  AXCCL_RETURN_IF_ERROR(
      lines->Add({.lost = [this](const ProcessId& process, const std::string& why) { Fail(process, why); },
                  .in_use = [this] { return InUse(); },
                  .losing = [this](const ProcessId& process) { return ReceiveLast(process); },
                  .relay_lost = [this](const ProcessId& process) { LoseRelay(process); }}));
  AXCCL_RETURN_IF_ERROR(lines->TakeMessages(
      [this](const ProcessId& from, const remote::Notice& notice) { return TakeMessage(from, notice); }));
  AXCCL_RETURN_IF_ERROR(
      lines->TakeDataLines([this](const remote::Lines::Key& key, service::Fd fd, const remote::LineSession& session) {
        Take(key, std::move(fd), session);
      }));
  return StartDetached("messages over TCP", [this] { Main("axccl-tcp", woken_); });
}

// ---- peers ----

std::shared_ptr<Peer> Worker::PeerOf(const ProcessId& process, const std::vector<uint8_t>& rails,
                                     const Protection& protection) {
  std::unique_lock lock(peers_mutex_);
  std::shared_ptr<Peer>& known = peers_[process];
  if (known != nullptr) {
    std::lock_guard of_peer(known->mutex());
    if (!known->failed()) return known;
  }
  const std::shared_ptr<Peer> peer = known = std::make_shared<Peer>(this, process, rails, protection);
  std::vector<std::pair<uint8_t, Early>> early;
  for (auto it = early_.lower_bound({process, 0}); it != early_.end() && it->first.process == process;) {
    early.emplace_back(it->first.rail, std::move(it->second));
    it = early_.erase(it);
  }
  lock.unlock();
  for (auto& [rail, line] : early) Open(peer, rail, std::move(line.fd), line.session);
  return peer;
}

bool Worker::InUse() {
  std::lock_guard lock(peers_mutex_);
  return std::any_of(peers_.begin(), peers_.end(), [](const auto& entry) {
    std::lock_guard of_peer(entry.second->mutex());
    return entry.second->has_reaches();
  });
}

void Worker::Take(const remote::Lines::Key& key, service::Fd fd, const remote::LineSession& session) {
  std::shared_ptr<Peer> peer;
  {
    std::lock_guard lock(peers_mutex_);
    const auto it = peers_.find(key.process);
    if (it != peers_.end()) peer = it->second;
    bool failed = false;
    if (peer != nullptr) {
      std::lock_guard of_peer(peer->mutex());
      failed = peer->failed();
    }
    if (peer == nullptr || failed) {
      early_.insert_or_assign(key, Early{std::move(fd), session});
      return;
    }
  }
  Open(peer, key.rail, std::move(fd), session);
}

bool Worker::TakeMessage(const ProcessId& from, const remote::Notice& notice) {
  Frame frame;
  if (!ParseFrame(notice.text, &frame) || frame.head.kind != FrameKind::kMessage) return false;
  const std::shared_ptr<Peer> peer = Find(from);
  if (peer == nullptr) return true;
  std::lock_guard lock(peer->mutex());
  return peer->failed() || peer->Take(frame.header, frame.data, notice.kind == remote::Notice::kMessage);
}

std::shared_ptr<Peer> Worker::Find(const ProcessId& process) {
  std::lock_guard lock(peers_mutex_);
  const auto it = peers_.find(process);
  return it != peers_.end() ? it->second : nullptr;
}

void Worker::Open(const std::shared_ptr<Peer>& peer, uint8_t rail, service::Fd fd, const remote::LineSession& session) {
  std::lock_guard lock(mutex());
  std::lock_guard of_peer(peer->mutex());
  const std::shared_ptr<Connection> connection = peer->Opened(rail, std::move(fd), session);
  if (connection == nullptr) return;
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.ptr = connection.get();
  if (epoll_ctl(ready_.get(), EPOLL_CTL_ADD, connection->fd(), &event) != 0)
    return peer->Fail(std::string(SystemError(errno, "watching a connection").message()));
  connection->warm_until = looks_ + kWarmLooks;
  connections_.push_back({peer, connection});
  peer->SendDelayed();
  if (!polled()) Listen();
}

bool Worker::ReceiveLast(const ProcessId& from) {
  const std::shared_ptr<Peer> peer = Find(from);
  if (peer == nullptr) return false;
  {
    std::lock_guard lock(peer->mutex());
    if (peer->failed() || !peer->called()) return false;
  }
  ReceiveSoon();
  return true;
}

void Worker::Fail(const ProcessId& process, const std::string& why) {
  std::shared_ptr<Peer> peer;
  {
    std::lock_guard lock(peers_mutex_);
    std::erase_if(early_, [&](const auto& entry) { return entry.first.process == process; });
    const auto it = peers_.find(process);
    if (it == peers_.end()) return;
    peer = it->second;
  }
  std::lock_guard lock(peer->mutex());
  peer->Fail(why);
}

// Reaches that end meanwhile are left out.
template <class Look>
void Worker::ForEachReach(const Look& look) {
  std::vector<std::shared_ptr<Peer>> peers;
  const Status looked = CatchAll("telling other machines again", [&] {
    {
      std::lock_guard lock(peers_mutex_);
      for (const auto& [id, peer] : peers_) peers.push_back(peer);
    }
    for (const std::shared_ptr<Peer>& peer : peers) {
      std::vector<std::shared_ptr<Reach>> reaches;  // outlive the lock
      std::lock_guard lock(peer->mutex());
      if (peer->failed()) continue;
      reaches = peer->Reaches();
      for (const std::shared_ptr<Reach>& reach : reaches) look(reach.get());
    }
    return Status();
  });
  if (!looked.ok()) AXCCL_WARN("%s", looked.message().data());
}

void Worker::LoseRelay(const ProcessId& process) {
  ForEachReach([&](Reach* reach) {
    if (reach->RelaysBy(process)) reach->LoseRelay();
  });
}

void Worker::WatchRelays() {
  if (watches_relays_.exchange(true)) return;
  const Status watched = CatchAll("waiting for another process to pass something on", [&]() -> Status {
    AXCCL_ASSIGN_OR_RETURN(service::Loop* const loop, service::Loop::Get());
    return loop->Post([this, loop] {
      loop->CallAt(service::Clock::now() + remote::Lines::kRelayPatience, [this] { LookAtRelays(); });
    });
  });
  if (watched.ok()) return;
  AXCCL_WARN("%s", watched.message().data());
  watches_relays_ = false;
}

void Worker::LookAtRelays() {
  watches_relays_ = false;
  bool again = false;
  ForEachReach([&](Reach* reach) { again |= reach->LookAtRelay(); });
  if (again) WatchRelays();
}

void Worker::WantToSend(Connection* connection, bool wants) {
  AddUnsent(wants ? 1 : -1);
  epoll_event event{};
  event.events = EPOLLIN | (wants ? EPOLLOUT : 0u);
  event.data.ptr = connection;
  (void)epoll_ctl(ready_.get(), EPOLL_CTL_MOD, connection->fd(), &event);
}

// ---- progress ----

bool Worker::Watch() {
  epoll_event event{};
  event.events = EPOLLIN | EPOLLONESHOT;
  return epoll_ctl(woken_.get(), EPOLL_CTL_MOD, ready_.get(), &event) == 0;
}

void Worker::Attend() {
  Drive();
  Listen();
}

// Each connection that a look asks costs a system call, even if nothing has come. So a look asks those from which
// something came lately, and only some looks ask for the others, by one call.
void Worker::Drive() {
  ++looks_;
  const size_t warm = ServeWarm();
  const bool others = warm < connections_.size() && looks_ % kLooksAtOthers == 0;
  if (warm > kFew || others || any_unsent() || !polled()) ServeReady();
  std::erase_if(connections_, [&](const Watched& watched) {
    if (!watched.connection->ended()) return false;
    (void)epoll_ctl(ready_.get(), EPOLL_CTL_DEL, watched.connection->fd(), nullptr);
    std::lock_guard of_peer(watched.peer->mutex());
    watched.connection->Close();
    return true;
  });
}

// Returns how many there are, more than kFew if it has asked none: to ask for all at once takes less time then.
size_t Worker::ServeWarm() {
  std::array<Connection*, kFew> warm;
  size_t count = 0;
  for (const Watched& watched : connections_) {
    if (watched.connection->warm_until < looks_) continue;
    if (count == kFew) return kFew + 1;
    warm[count++] = watched.connection.get();
  }
  for (size_t i = 0; i < count; ++i) Serve(warm[i]);
  return count;
}

void Worker::ServeReady() {
  epoll_event events[32];
  const int count = epoll_wait(ready_.get(), events, 32, 0);
  for (int i = 0; i < count; ++i) Serve(static_cast<Connection*>(events[i].data.ptr));
}

void Worker::Serve(Connection* connection) {
  std::lock_guard lock(connection->peer()->mutex());
  if (connection->wants_to_send()) connection->SendMore();
  if (connection->Receive()) connection->warm_until = looks_ + kWarmLooks;
}

void Worker::ProgressThenLeave() {
  std::lock_guard lock(mutex());
  Drive();
  LeaveToThread();
}

}  // namespace axccl::tcp
