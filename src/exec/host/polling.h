// While a thread drives work that waits for messages, it receives them itself; see transport::Inbox. Used by the thread
// that drives the work.
#pragma once

#include <utility>

#include "transports/transport.h"

namespace axccl::exec {

class Polling {
 public:
  Polling() = default;
  Polling(Polling&& other) noexcept : inbox_(std::exchange(other.inbox_, nullptr)) {}
  Polling& operator=(Polling&&) = delete;
  ~Polling() { End(false); }
  void Begin(transport::Inbox* inbox) {
    if (inbox_ == nullptr) (inbox_ = inbox)->BeginPolling();
  }
  // `waiting`: for more messages, but asleep.
  void End(bool waiting) {
    if (inbox_ != nullptr) std::exchange(inbox_, nullptr)->EndPolling(waiting);
  }

 private:
  transport::Inbox* inbox_ = nullptr;
};

}  // namespace axccl::exec
