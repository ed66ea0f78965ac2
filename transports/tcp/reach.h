// A rank that data lines lead to. See remote/reach.h.
#pragma once

#include <atomic>
#include <chrono>
#include <deque>
#include <memory>
#include <span>

#include "src/base/status.h"
#include "transports/remote/lines.h"
#include "transports/remote/reach.h"
#include "transports/remote/told_states.h"
#include "transports/tcp/outgoing.h"

namespace axccl::tcp {

class Peer;
class Worker;

class Reach final : public remote::Reach {
 public:
  static Result<std::shared_ptr<Reach>> Create(Worker* worker, std::shared_ptr<Peer> peer,
                                               remote::ConnectOptions options);
  ~Reach() override;

  const char* Name() const override { return "tcp"; }
  transport::Inbox* inbox() const override;
  void Publish(const std::shared_ptr<Area>& area, std::span<const Stretch> stretches, LineAt line) override;
  void PublishLater(const std::shared_ptr<Area>& area, std::span<const Stretch> stretches, LineAt line) override;
  void PublishAside(std::span<const Stretch> stretches, LineAt line, bool passes) override;
  void PublishState(std::span<const Stretch> stretches, LineAt line) override;
  int relay() const override;
  bool PublishKept() override;
  bool sending() const override { return held_.load(std::memory_order_acquire) != 0; }
  void Detach() override;

  const std::shared_ptr<Peer>& peer() const { return peer_; }
  // Whether that process passes on what goes aside.
  bool RelaysBy(const remote::Lines::ProcessId& process) const {
    return relay_ != nullptr && relay_->process == process;
  }
  // It does not any more; another one may.
  void LoseRelay();
  // Tells the peer itself what the relay has not passed on for Lines::kRelayPatience. Returns whether there is
  // something that it may still pass on in time.
  bool LookAtRelay();
  // Frames that wait to be sent.
  void AddHeld(int frames) { held_.fetch_add(frames, std::memory_order_release); }

 private:
  Reach(Worker* worker, std::shared_ptr<Peer> peer, remote::ConnectOptions options, std::shared_ptr<Mirror> mirror);
  template <class Send>  // (std::unique_ptr<Outgoing>)
  void MakeFrames(const std::shared_ptr<Area>& area, std::span<const Stretch> stretches, LineAt line, const Send& send,
                  uint16_t flags = 0, bool in_turn = true);
  void SendAside(std::span<const Stretch> stretches, LineAt line, uint16_t flags);
  void SendInTurn(std::unique_ptr<Outgoing> frame);
  bool Pass(std::unique_ptr<Outgoing>* frame);
  void PassState(std::span<const Stretch> stretches, LineAt line);
  // Whether something has gone, or may go, by way of the relay, that what has a turn must not overtake.
  bool aside() const { return relay_ != nullptr || !told_.empty(); }
  const remote::Relay* NextRelay() const;
  void ForgetPassed();
  // Whether the relay has not passed on all; all states.
  bool IsMissing() const { return !passed_.empty() || IsStateMissing(); }
  bool IsStateMissing() const;
  void SendAgain();
  void StopRelaying();
  void GiveTurns();
  void DropUnsent() override;
  void AnswerFlush(const void* connection, const remote::WireControl& answer) override;
  std::condition_variable& changed() override;
  bool failed() const override;
  size_t lanes() const override;
  void SendFlush(size_t lane, uint32_t number) override;
  void AwaitAside(std::chrono::steady_clock::time_point limit) override;
  void ReceiveOnce(std::unique_lock<std::mutex>* lock) override;

  Worker* const worker_;
  const std::shared_ptr<Peer> peer_;
  uint64_t sent_ = 0;                     // messages and flushes
  uint64_t states_sent_ = 0;              // without a turn
  const remote::Relay* relay_ = nullptr;  // one of options_.relays; null: the peer is told everything itself
  remote::ToldStates told_;               // by way of the relay, without a turn
  uint32_t last_state_ = 0;               // Lines::TellBy: of the last of these, by the present relay
  std::chrono::steady_clock::time_point state_since_;  // of the first of these that it has not passed on
  // What the relay is to pass on, until it has: copies.
  struct Passed {
    uint32_t number = 0;  // Lines::TellBy
    std::chrono::steady_clock::time_point since;
    std::unique_ptr<Outgoing> frame;
  };
  std::deque<Passed> passed_;
  std::atomic<int> held_{0};
};

}  // namespace axccl::tcp
