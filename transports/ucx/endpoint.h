// A process that this one sends to: a UCX endpoint for each pair of rails.
//
// Over TCP no message is sent before the connection is there, both ways. UCX makes connections by messages of its own,
// which it puts aside while TCP is at it; if the peer dies then, UCX 1.13 comes upon what it put aside and ends the
// process (an assertion). A greeting is short, so that UCX sends it at once or not at all and puts nothing aside. When
// one has gone, and the peer's has come, by every pair, the endpoint is open and messages go.
//
// Whoever calls holds the lock of worker.h.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "transports/ucx/library.h"
#include "transports/ucx/rail.h"

namespace axccl::ucx {

class Reach;

class Endpoint {
 public:
  using ProcessId = std::array<uint8_t, 16>;
  // By one pair of rails.
  struct Lane {
    Rail* rail = nullptr;
    ucp_ep_h ep = nullptr;
    uint64_t unsent = 0;                    // bytes that UCX has not done with yet
    bool to_greet = false, greeted = true;  // the peer; by the peer
  };

  explicit Endpoint(const ProcessId& process) : process(process) {}

  void Add(Rail* rail, ucp_ep_h ep);
  // Over which of them a message with so much data goes: one that is not large over the first, so that those after each
  // other arrive in order and find each other in the processor's caches; a large one where least is under way.
  size_t Choose(size_t bytes);
  // The lane of a rail, the first where there is none.
  Lane& LaneOf(const Rail* rail);

  // Messages may be sent.
  bool open() const { return open_; }
  // Greets the peer wherever that can be done now, in the name of `self`, and opens if all is said, or kPatience over.
  // True: there is nothing more to do.
  bool Greet(const Library& ucx, const ProcessId& self);
  // The peer's greeting has come.
  void Hear(const Rail* rail, bool asks);

  const ProcessId process;
  std::vector<Lane> lanes;
  bool failed = false;  // one of them is as good as all; `ep` are null
  std::vector<Reach*> users;

 private:
  static constexpr std::chrono::seconds kPatience{2};
  using Clock = std::chrono::steady_clock;

  Clock::time_point until_ = Clock::now() + kPatience;
  size_t turn_ = 0;
  bool open_ = false;
};

}  // namespace axccl::ucx
