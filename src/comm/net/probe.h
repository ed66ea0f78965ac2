// Measures the connection between this rank and one on another machine: one of the two asks, the other answers.
//
// It measures the path of collective operations: messages of transport::Reach, received by threads that wait for them.
// The asker sends
// - lines that are answered, one after the other: half of the median is the time of a message, including the work at
//   both ends;
// - lines of which only the last is answered: the cost of each at the slower end;
// - pieces of data, several at a time, larger ones if they are fast: the bytes that cross in a second.
// That takes a few milliseconds, some ten if the link carries 100 Mbit/s, and more if it is slower than that or a
// message takes long.
//
// Both ranks must have made their object before either begins (for example with an exchange in between), and each gets
// the address of the other's end. All waits end with the measurement, the peer's death or its giving up, an abort, or a
// deadline. Used by one thread.
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

  // `own`: this rank's block; a thread that sleeps for messages is woken through its waiter word.
  static Result<std::unique_ptr<NetworkProbe>> Create(Peer peer, exec::BlockHeader* own);
  // Must follow TakeMemory, or the end of all sending.
  ~NetworkProbe();
  NetworkProbe(const NetworkProbe&) = delete;
  NetworkProbe& operator=(const NetworkProbe&) = delete;

  // One of the two ranks calls the former, the other the latter. kRemoteError names the peer that died or gave up;
  // kInvalidUsage means an abort, kTimeout the deadline.
  Result<cost::Network> Measure(device::host::Queue* queue, const Patience& patience);
  Status Answer(device::host::Queue* queue, const Patience& patience);
  // Sends the peer that nothing more follows. Does nothing once the measurement has ended well.
  void GiveUp();
  // Returns memory of the heap that may still be sent, which the caller must free once the peer's Reach is not sending;
  // null if there is none.
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
  std::byte* memory_ = nullptr;  // of this rank, in the heap
  std::shared_ptr<transport::Reach::Area> area_;
  std::byte* mirror_ = nullptr;  // of the peer's
  bool over_ = false;
};

}  // namespace axccl::comm
