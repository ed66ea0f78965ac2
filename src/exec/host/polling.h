// While somebody drives work that waits for ranks on other machines, that thread takes in messages itself; see
// transport::RemoteRank. Used by the thread that drives the work.
#pragma once

#include <utility>

#include "transports/transport.h"

namespace axccl::exec {

class Polling {
 public:
  Polling() = default;
  Polling(Polling&& other) noexcept : remote_(std::exchange(other.remote_, nullptr)) {}
  Polling& operator=(Polling&&) = delete;
  ~Polling() { End(false); }
  void Begin(transport::RemoteRank* remote) {
    if (remote_ == nullptr) (remote_ = remote)->BeginPolling();
  }
  // `waiting`: for more, but asleep.
  void End(bool waiting) {
    if (remote_ != nullptr) std::exchange(remote_, nullptr)->EndPolling(waiting);
  }

 private:
  transport::RemoteRank* remote_ = nullptr;
};

}  // namespace axccl::exec
