#include "transports/tcp/reach.h"

#include <algorithm>
#include <utility>

#include "transports/remote/outgoing.h"
#include "transports/tcp/peer.h"
#include "transports/tcp/worker.h"

namespace axccl::tcp {
Reach::Reach(Worker* worker, std::shared_ptr<Peer> peer, remote::ConnectOptions options, std::shared_ptr<Mirror> mirror)
    : remote::Reach(&peer->mutex(), std::move(options), std::move(mirror)), worker_(worker), peer_(std::move(peer)) {
  const bool any = options_.relays != nullptr && !options_.relays->empty();
  if (any && !options_.watch) relay_ = &options_.relays->front();
}

Result<std::shared_ptr<Reach>> Reach::Create(Worker* worker, std::shared_ptr<Peer> peer,
                                             remote::ConnectOptions options) {
  AXCCL_ASSIGN_OR_RETURN(std::shared_ptr<Mirror> mirror, MakeMirror(options));
  std::shared_ptr<Reach> reach(new Reach(worker, std::move(peer), std::move(options), std::move(mirror)));
  std::lock_guard lock(reach->mutex());
  if (reach->peer_->failed())
    return MakeStatus(Code::kRemoteError, "rank %u (%s) was lost while it was being connected", reach->options_.peer,
                      reach->Place().c_str());
  reach->peer_->Add(reach.get());
  return reach;
}

// The last owner may be a frame that has just been sent, with the lock held.
Reach::~Reach() {
  if (!detached_) Detach();
}

transport::Inbox* Reach::inbox() const { return worker_; }

void Reach::Detach() {
  std::lock_guard lock(mutex());
  if (std::exchange(detached_, true)) return;
  // Without waiting. (Nobody owns it any more where the destructor calls this.)
  if (IsMissing() && !peer_->failed() && !weak_from_this().expired()) StopRelaying();
  peer_->Remove(this);
}

void Reach::DropUnsent() {
  peer_->DropDelayed(this);
  passed_.clear();
}

template <class Send>
void Reach::MakeFrames(const std::shared_ptr<Area>& area, std::span<const Stretch> stretches, LineAt line,
                       const Send& send, uint16_t flags, bool in_turn) {
  const auto memory = area != nullptr ? std::static_pointer_cast<remote::Memory>(area) : block_memory();
  const remote::Direction direction{options_.comm, options_.self, options_.peer};
  remote::CutIntoMessages(stretches, line, peer_->most_bytes(), [&](std::span<const Stretch> some, LineAt with_line) {
    remote::OutgoingHeader header;
    const uint64_t number = in_turn ? sent_++ : ++states_sent_;
    header.Write(direction, static_cast<uint32_t>(number), *memory, some, with_line, flags);
    std::unique_ptr<Outgoing> frame = peer_->TakeSpare();
    frame->Begin(FrameKind::kMessage, header.bytes.data(), header.size);
    for (const Stretch& stretch : some) frame->Add(remote::BytesOf(*memory, stretch), stretch.bytes);
    frame->End();
    frame->owner = std::static_pointer_cast<Reach>(shared_from_this());
    frame->memory = memory;
    send(std::move(frame));
  });
}

void Reach::Publish(const std::shared_ptr<Area>& area, std::span<const Stretch> stretches, LineAt line) {
  std::lock_guard lock(mutex());
  if (peer_->failed()) return;
  if (aside()) StopRelaying();
  MakeFrames(area, stretches, line, [&](std::unique_ptr<Outgoing> frame) { peer_->Send(std::move(frame)); });
}

void Reach::PublishLater(const std::shared_ptr<Area>& area, std::span<const Stretch> stretches, LineAt line) {
  std::lock_guard lock(mutex());
  if (peer_->failed()) return;
  if (aside()) StopRelaying();
  MakeFrames(area, stretches, line, [&](std::unique_ptr<Outgoing> frame) { peer_->SendLater(std::move(frame)); });
}

void Reach::PublishAside(std::span<const Stretch> stretches, LineAt line, bool passes) {
  std::lock_guard lock(mutex());
  if (peer_->failed()) return;
  if (relay_ != nullptr && (!passes || peer_->called())) StopRelaying();
  SendAside(stretches, line, 0);
}

// With a turn, once anything has had one.
void Reach::PublishState(std::span<const Stretch> stretches, LineAt line) {
  std::lock_guard lock(mutex());
  if (peer_->failed()) return;
  if (aside() && peer_->called()) StopRelaying();
  if (sent_ != 0 || peer_->called()) return SendAside(stretches, line, remote::kState);
  if (relay_ != nullptr) return PassState(stretches, line);
  const auto send = [&](std::unique_ptr<Outgoing> frame) { peer_->SendState(std::move(frame)); };
  MakeFrames(nullptr, stretches, line, send, remote::kState, false);
}

// ---- what goes aside, and may be passed on by another process ----

int Reach::relay() const {
  std::lock_guard lock(mutex());
  return relay_ != nullptr ? relay_->rank : -1;
}

void Reach::SendAside(std::span<const Stretch> stretches, LineAt line, uint16_t flags) {
  if (!told_.empty()) GiveTurns();
  const bool passes = relay_ != nullptr;
  const auto send = [&](std::unique_ptr<Outgoing> frame) {
    if (!passes) return peer_->SendAside(std::move(frame));
    frame->CopyData();
    SendInTurn(std::move(frame));
  };
  MakeFrames(nullptr, stretches, line, send, flags | (passes ? remote::kRepeats : 0));
}

// With data of its own.
void Reach::SendInTurn(std::unique_ptr<Outgoing> frame) {
  while (relay_ != nullptr) {
    if (Pass(&frame)) return;
    LoseRelay();
  }
  frame->owner = std::static_pointer_cast<Reach>(shared_from_this());
  peer_->SendAside(std::move(frame));
}

// Returns false if the relay does not take it.
bool Reach::Pass(std::unique_ptr<Outgoing>* frame) {
  const uint32_t number = peer_->SendBy(relay_->process, remote::Notice::kMessage, **frame);
  if (number == 0) return false;
  ForgetPassed();
  (*frame)->owner = nullptr;  // it would keep this alive
  passed_.push_back({number, std::chrono::steady_clock::now(), std::move(*frame)});
  worker_->WatchRelays();
  return true;
}

void Reach::PassState(std::span<const Stretch> stretches, LineAt line) {
  told_.Note(*block_memory(), stretches, line);
  const auto send = [&](std::unique_ptr<Outgoing> frame) {
    const uint32_t number = relay_ != nullptr ? peer_->SendBy(relay_->process, remote::Notice::kState, *frame) : 0;
    if (number != 0) {
      if (!IsStateMissing()) state_since_ = std::chrono::steady_clock::now();
      last_state_ = number;
      worker_->WatchRelays();
      return peer_->PutSpare(std::move(frame));
    }
    if (relay_ != nullptr) LoseRelay();
    peer_->SendState(std::move(frame));
  };
  MakeFrames(nullptr, stretches, line, send, remote::kState, false);
}

// The first one that this process watches now, unless that is the peer's own.
const remote::Relay* Reach::NextRelay() const {
  for (const remote::Relay& relay : *options_.relays) {
    if (!remote::Lines::Made()->Watches(relay.process)) continue;
    return relay.process != options_.process ? &relay : nullptr;
  }
  return nullptr;
}

bool Reach::IsStateMissing() const {
  return relay_ != nullptr && !told_.empty() && last_state_ != 0 &&
         !remote::Lines::Made()->HasPassed(relay_->process, options_.process, last_state_);
}

void Reach::ForgetPassed() {
  remote::Lines& lines = *remote::Lines::Made();
  while (!passed_.empty() && lines.HasPassed(relay_->process, options_.process, passed_.front().number))
    passed_.pop_front();
}

// What it may not have passed on, another one does, or the peer is told itself. What has come all the same is ignored.
void Reach::LoseRelay() {
  const bool state_missing = IsStateMissing();
  ForgetPassed();
  const remote::Relay* const next = NextRelay();
  relay_ = next != relay_ ? next : nullptr;
  last_state_ = 0;
  if (state_missing) GiveTurns();
  SendAgain();
}

bool Reach::LookAtRelay() {
  ForgetPassed();
  const bool state_missing = IsStateMissing();
  if (passed_.empty() && !state_missing) return false;
  auto since = passed_.empty() ? state_since_ : passed_.front().since;
  if (state_missing) since = std::min(since, state_since_);
  if (std::chrono::steady_clock::now() - since < remote::Lines::kRelayPatience) return true;
  StopRelaying();
  return false;
}

void Reach::SendAgain() {
  for (Passed& passed : std::exchange(passed_, {})) SendInTurn(std::move(passed.frame));
}

// From now on, the peer is told everything itself.
void Reach::StopRelaying() {
  ForgetPassed();
  relay_ = nullptr;
  if (!told_.empty()) GiveTurns();
  SendAgain();
}

// What was told without a turn may come after that, or not at all, so it is told again before anything has a turn, and
// if the relay does not pass it on.
void Reach::GiveTurns() {
  const uint16_t flags = remote::kState | (relay_ != nullptr ? remote::kRepeats : 0);
  const auto send = [&](std::unique_ptr<Outgoing> frame) {
    frame->CopyData();
    SendInTurn(std::move(frame));
  };
  const remote::ToldStates told = std::exchange(told_, {});
  told.ForEach(
      [&](std::span<const Stretch> stretches, LineAt line) { MakeFrames(nullptr, stretches, line, send, flags); });
}

bool Reach::PublishKept() {
  std::lock_guard lock(mutex());
  return peer_->SendKept(this);
}

// ---- flushes ----

// Goes back the way that the flush came.
void Reach::AnswerFlush(const void* connection, const remote::WireControl& answer) {
  peer_->SendControl(peer_->LaneOf(connection), answer, nullptr);
}

void Reach::SendFlush(size_t lane, uint32_t number) {
  if (aside()) StopRelaying();
  const remote::WireControl flush{options_.comm,
                                  options_.self,
                                  options_.peer,
                                  remote::WireControl::kFlush,
                                  number,
                                  static_cast<uint32_t>(sent_++),
                                  0};
  peer_->SendControl(lane, flush, std::static_pointer_cast<Reach>(shared_from_this()));
}

// If the relay does not pass on what must come, because it has ended or is stopped, the peer is told itself.
void Reach::AwaitAside(std::chrono::steady_clock::time_point limit) {
  remote::Lines* const lines = remote::Lines::Made();
  std::unique_lock lock(mutex());
  ForgetPassed();
  if (IsMissing()) {
    const remote::Relay* const relay = relay_;
    const uint32_t number = std::max(passed_.empty() ? 0 : passed_.back().number, told_.empty() ? 0 : last_state_);
    lock.unlock();
    const auto patience = std::min(limit, std::chrono::steady_clock::now() + remote::Lines::kRelayPatience);
    (void)lines->AwaitPassed(relay->process, options_.process, number, patience);
    lock.lock();
    ForgetPassed();
    if (IsMissing() && !peer_->failed()) StopRelaying();
  }
  const remote::Lines::ProcessId told = relay_ != nullptr ? relay_->process : options_.process;
  lock.unlock();
  lines->AwaitTold(told, limit);
}

std::condition_variable& Reach::changed() { return peer_->changed(); }
bool Reach::failed() const { return peer_->failed(); }
size_t Reach::lanes() const { return peer_->called() ? peer_->lanes() : 0; }

// The worker's lock comes before the peer's.
void Reach::ReceiveOnce(std::unique_lock<std::mutex>* lock) {
  lock->unlock();
  worker_->ProgressThenLeave();
  lock->lock();
}

}  // namespace axccl::tcp
