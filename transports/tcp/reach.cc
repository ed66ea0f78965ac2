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
  peer_->Remove(this);
}

void Reach::DropUnsent() { peer_->DropDelayed(this); }

template <class Send>
void Reach::MakeFrames(const std::shared_ptr<Area>& area, std::span<const Stretch> stretches, LineAt line,
                       const Send& send, bool state, bool in_turn) {
  const auto memory = area != nullptr ? std::static_pointer_cast<remote::Memory>(area) : block_memory();
  const remote::Direction direction{options_.comm, options_.self, options_.peer};
  remote::CutIntoMessages(stretches, line, peer_->most_bytes(), [&](std::span<const Stretch> some, LineAt with_line) {
    remote::OutgoingHeader header;
    const uint64_t number = in_turn ? sent_++ : ++states_sent_;
    header.Write(direction, static_cast<uint32_t>(number), *memory, some, with_line, state);
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
  if (relay_ != nullptr) TakeTurns();
  MakeFrames(area, stretches, line, [&](std::unique_ptr<Outgoing> frame) { peer_->Send(std::move(frame)); });
}

void Reach::PublishLater(const std::shared_ptr<Area>& area, std::span<const Stretch> stretches, LineAt line) {
  std::lock_guard lock(mutex());
  if (peer_->failed()) return;
  if (relay_ != nullptr) TakeTurns();
  MakeFrames(area, stretches, line, [&](std::unique_ptr<Outgoing> frame) { peer_->SendLater(std::move(frame)); });
}

void Reach::PublishAside(std::span<const Stretch> stretches, LineAt line) {
  std::lock_guard lock(mutex());
  if (peer_->failed()) return;
  if (relay_ != nullptr) TakeTurns();
  MakeFrames(nullptr, stretches, line, [&](std::unique_ptr<Outgoing> frame) { peer_->SendAside(std::move(frame)); });
}

// With a turn, once anything has had one, and if there is no relay, but it must come.
void Reach::PublishState(std::span<const Stretch> stretches, LineAt line, bool certain) {
  std::lock_guard lock(mutex());
  if (peer_->failed()) return;
  if (relay_ != nullptr && peer_->called()) TakeTurns();
  if (relay_ != nullptr && PassState(stretches, line, certain)) return;
  const bool in_turn = certain || sent_ != 0 || peer_->called();
  const auto send = [&](std::unique_ptr<Outgoing> frame) {
    in_turn ? peer_->SendAside(std::move(frame)) : peer_->SendState(std::move(frame));
  };
  MakeFrames(nullptr, stretches, line, send, true, in_turn);
}

// ---- states that another process passes on ----

int Reach::relay() const {
  std::lock_guard lock(mutex());
  return relay_ != nullptr ? relay_->rank : -1;
}

// Returns false if none passes it on, and nothing has been sent.
bool Reach::PassState(std::span<const Stretch> stretches, LineAt line, bool certain) {
  while (relay_ != nullptr) {
    told_.Note(*block_memory(), stretches, line);
    uint32_t last = 0;
    bool all = true;
    const auto send = [&](std::unique_ptr<Outgoing> frame) {
      last = peer_->SendStateBy(relay_->process, std::move(frame));
      all &= last != 0;
    };
    MakeFrames(nullptr, stretches, line, send, true, false);
    if (all && certain) {
      certain_ = last;
      certain_since_ = std::chrono::steady_clock::now();
      worker_->WatchRelays();
    }
    if (all) return true;
    LoseRelay();
  }
  return sent_ != 0;  // what was told, this too, has been told again
}

bool Reach::AllPassed() const {
  return certain_ == 0 || remote::Lines::Made()->HasPassed(relay_->process, options_.process, certain_);
}

// The first one that this process watches now, unless that is the peer's own.
const remote::Relay* Reach::NextRelay() const {
  for (const remote::Relay& relay : *options_.relays) {
    if (!remote::Lines::Made()->Watches(relay.process)) continue;
    return relay.process != options_.process ? &relay : nullptr;
  }
  return nullptr;
}

// What must come, and may have been lost, is told the peer itself. What another relay passes on comes after what this
// one has: both have it from the same queue of the peer's.
void Reach::LoseRelay() {
  const remote::Relay* const next = NextRelay();
  if (!AllPassed() || next == relay_) return TakeTurns();
  relay_ = next;
  certain_ = 0;
  told_.Clear();
}

bool Reach::LookAtRelay() {
  if (relay_ == nullptr || AllPassed()) return false;
  if (std::chrono::steady_clock::now() - certain_since_ < kRelayPatience) return true;
  TakeTurns();
  return false;
}

// From now on, everything has a turn. Even what the peer's machine has got may come after that, so it is told again.
void Reach::TakeTurns() {
  relay_ = nullptr;
  const auto send = [&](std::unique_ptr<Outgoing> frame) {
    frame->CopyData();
    peer_->SendAside(std::move(frame));
  };
  told_.ForEach(
      [&](std::span<const Stretch> stretches, LineAt line) { MakeFrames(nullptr, stretches, line, send, true, true); });
  told_.Clear();
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
  if (relay_ != nullptr) TakeTurns();
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
  if (relay_ != nullptr && !AllPassed()) {
    const remote::Relay* const relay = relay_;
    const uint32_t number = certain_;
    lock.unlock();
    const auto patience = std::min(limit, std::chrono::steady_clock::now() + kRelayPatience);
    (void)lines->AwaitPassed(relay->process, options_.process, number, patience);
    lock.lock();
    if (relay_ != nullptr && !AllPassed() && !peer_->failed()) TakeTurns();
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
