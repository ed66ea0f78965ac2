// A process to which this one sends: a UCX endpoint for each pair of rails.
//
// Over TCP, no message is sent before the connection exists in both directions. UCX makes connections by messages of
// its own, which it keeps while TCP connects; if the peer dies then, UCX 1.13 fails an assertion on what it kept, and
// ends the process. A greeting is short, so UCX sends it at once or not at all and keeps nothing. When one has been
// sent, and the peer's has arrived, on every pair, the endpoint is open and messages are sent.
//
// The caller must hold the lock of worker.h.
#pragma once

#include <sys/socket.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "transports/remote/outgoing.h"
#include "transports/ucx/library.h"
#include "transports/ucx/rail.h"

namespace axccl::ucx {

class Reach;

class Endpoint {
 public:
  using ProcessId = std::array<uint8_t, 16>;
  // The endpoint of one pair of rails.
  struct Lane {
    Rail* rail = nullptr;
    ucp_ep_h ep = nullptr;
    sockaddr_storage peer{};                // the peer's address there, without UCX's port
    uint64_t unsent = 0;                    // bytes that UCX has not finished sending
    bool to_greet = false, greeted = true;  // whether the peer must be greeted; whether the peer has greeted
  };

  explicit Endpoint(const ProcessId& process) : process(process) {}

  void Add(Rail* rail, ucp_ep_h ep, const sockaddr_storage& peer);
  // Selects the lane for a message with that much data.
  size_t Choose(size_t bytes);
  // The lane of a rail, or the first if there is none.
  Lane& LaneOf(const Rail* rail);

  // Whether messages may be sent.
  bool open() const { return open_; }
  // Greets the peer on all lanes where that is possible now, in the name of `self`, and opens if all greetings were
  // exchanged, or after kPatience. Returns true if nothing more needs to be done.
  bool Greet(const Library& ucx, const ProcessId& self);
  // The peer's greeting has arrived.
  void Hear(const Rail* rail, bool asks);

  const ProcessId process;
  std::vector<Lane> lanes;
  bool failed = false;  // one failure counts for all; each `ep` is null then
  std::vector<Reach*> users;

 private:
  static constexpr std::chrono::seconds kPatience{2};
  using Clock = std::chrono::steady_clock;

  Clock::time_point until_ = Clock::now() + kPatience;
  remote::LaneChoice choice_;
  bool open_ = false;
};

}  // namespace axccl::ucx
