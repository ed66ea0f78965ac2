// Measures what goes between this rank and one on another machine: one of the two asks, the other answers.
//
// What is measured is the path of collective operations: messages of transport::Reach, taken in by threads that
// wait for them. The asker sends
// - lines that are answered, one after the other: half of the median is how long a message takes, both ends' work
// included;
// - lines of which only the last is answered: what each costs the end that is slower at it;
// - pieces of data, several under way at a time, larger ones where they go fast: how many bytes cross in a second.
// That takes a few milliseconds, some ten where the link carries 100 Mbit/s, and more where it is slower than that or a
// message takes long.
//
// Made by both ranks before either begins, e.g. with an exchange between; each side's end is told to the other. All
// waiting ends with the measurement, the peer's death or its giving up, an abort, or a deadline. Used by one thread.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "src/base/status.h"
#include "src/cost/network.h"
#include "src/device/host/scheduler.h"
#include "src/exec/layout.h"
#include "transports/transport.h"

namespace axccl::comm {

class NetworkProbe {
 public:
  struct Peer {
    int rank = 0;
    std::shared_ptr<transport::Reach> reach;
  };
  struct Patience {
    std::chrono::steady_clock::time_point deadline;
    const std::atomic<bool>* abort = nullptr;  // or null
  };

  // `own`: of this rank's block; whoever sleeps for messages is rung by its waiter word.
  static Result<std::unique_ptr<NetworkProbe>> Create(Peer peer, exec::BlockHeader* own);
  // After TakeMemory, or once nothing is being sent any more.
  ~NetworkProbe();
  NetworkProbe(const NetworkProbe&) = delete;
  NetworkProbe& operator=(const NetworkProbe&) = delete;

  // One of the two calls the former, the other the latter. kRemoteError names the peer that died or gave up,
  // kInvalidUsage is an abort, kTimeout the deadline.
  Result<cost::Network> Measure(device::host::Queue* queue, const Patience& patience);
  Status Answer(device::host::Queue* queue, const Patience& patience);
  // Tells the peer that nothing more comes from here. No-op once the measurement has ended well.
  void GiveUp();
  // Memory of the heap that may still be sent: to be freed once the peer's Reach is not sending. Null where it is not.
  void* TakeMemory();

 private:
  class Side;
  class Asker;
  class Answerer;

  explicit NetworkProbe(Peer peer, exec::BlockHeader* own) : peer_(std::move(peer)), own_(own) {}
  Status Wait(const std::shared_ptr<Side>& side, device::host::Queue* queue, const Patience& patience);
  Status Trouble(const Patience& patience) const;

  const Peer peer_;
  exec::BlockHeader* const own_;
  std::byte* memory_ = nullptr;  // own, in the heap
  std::shared_ptr<transport::Reach::Area> area_;
  std::byte* mirror_ = nullptr;  // of the peer's
  bool over_ = false;
};

}  // namespace axccl::comm
