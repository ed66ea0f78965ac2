// Messages between an operation and members that do not share this rank's memory: it sends with its signals the slots
// they publish, and before the first of them what it has called; and takes in what they send while it is driven.
//
// Part of an operation, used by the thread that drives it. Does nothing where there are none.
#pragma once

#include <utility>

#include "src/exec/host/binding.h"
#include "src/exec/host/polling.h"

namespace axccl::exec {

class Outbox {
 public:
  // As Members::inbox.
  explicit Outbox(transport::Inbox* inbox) : inbox_(inbox) {}

  // What travels with a signal of the lane, and the signal's line.
  void Send(const Binding& binding, const Step& step, uint32_t lane, uint64_t turn) {
    if (inbox_ != nullptr) SendSignal(binding, step, lane, turn);
  }
  // This thread drives the operation. `look`: takes in what has come for this rank or others of the process.
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
  // Nothing more is waited for.
  void Close() { polling_.End(false); }

 private:
  static void SendSignal(const Binding& binding, const Step& step, uint32_t lane, uint64_t turn);

  transport::Inbox* const inbox_;
  Polling polling_;
  bool last_look_ = false;
};

}  // namespace axccl::exec
