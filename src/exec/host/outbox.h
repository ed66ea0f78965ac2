// Messages between an operation and members that do not share this rank's memory. With its signals, it sends the slots
// that they publish, and before the first of them its op record; while it is driven, it receives what they send.
//
// Part of an operation, used by the thread that drives it. Does nothing if there are no such members.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "src/exec/host/binding.h"
#include "src/exec/host/polling.h"

namespace axccl::exec {

class Outbox {
 public:
  // As Members::inbox.
  explicit Outbox(transport::Inbox* inbox) : inbox_(inbox) {}

  // Sends the slots that travel with a signal of the lane, and the signal's line. Those for members that are not
  // connected are held.
  void Send(const Binding& binding, const Step& step, uint32_t lane, uint64_t turn) {
    if (inbox_ != nullptr) SendSignal(binding, step, lane, turn);
  }
  // Sends what has been held in this turn, to members that are connected by now.
  void SendHeld(const Binding& binding, uint64_t turn);
  // This thread drives the operation. `look`: receives what has come for this rank or others of the process.
  void TakeMessages(bool look) {
    if (inbox_ == nullptr) return;
    if (!std::exchange(last_look_, false)) polling_.Begin(inbox_);
    if (look) inbox_->Progress();
  }
  // The driving thread is about to sleep, after one more look.
  void Sleep() {
    polling_.End(true);
    last_look_ = true;
  }
  // No more messages are needed.
  void Close() { polling_.End(false); }

 private:
  struct Held {
    int position;  // of the member
    const Step* step;
    uint32_t lane;
  };

  void SendSignal(const Binding& binding, const Step& step, uint32_t lane, uint64_t turn);

  transport::Inbox* const inbox_;
  std::vector<Held> held_;
  Polling polling_;
  bool last_look_ = false;
};

}  // namespace axccl::exec
