// The one way a thread of AxCCL waits: spin briefly, yield, then sleep on a doorbell.
//
// A thread that is about to sleep claims a doorbell of its process page, tells those who may have news (Arm: peers'
// signals; parked count: completions inside the process), looks once more, and sleeps until rung, at most
// kCheckInterval. Peers find the doorbell through the waiter word next to the counters they signal; ringing it is a
// futex wake across processes.
//
// Lost wake-ups are excluded by the usual pairing: the sleeper stores "I am here" and then looks, the signaller stores
// the news and then looks for sleepers, all sequentially consistent.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <set>

#include "transports/transport.h"

namespace axccl::device::host {

// Slow checks (peer death, abort, deadline, mismatch) happen at least this often while a thread waits.
inline constexpr std::chrono::milliseconds kCheckInterval{20};

inline void CpuRelax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  asm volatile("" ::: "memory");
#endif
}

// Where this process's sleepers sleep: the doorbells of its process page, or private ones before there is a page.
class Doorbells {
 public:
  static Doorbells& Process();

  // Moves to the doorbells of a process page, so that peers can ring them. Before any peer is attached.
  void Adopt(transport::ProcessPage* page);

  // Claims a doorbell for the calling thread until Release; more threads than doorbells share (spurious wake-ups only).
  int Claim();
  void Release(int slot);

  uint32_t Value(int slot) const { return Get(slot).rings.load(std::memory_order_seq_cst); }
  // Sleeps until the doorbell's value differs from `seen`, or the timeout.
  void Sleep(int slot, uint32_t seen, std::chrono::nanoseconds timeout) const;
  void Ring(int slot);
  // Rings every claimed doorbell of this process.
  void RingAll();
  // Number of claimed doorbells; sequentially consistent.
  int parked() const { return parked_.load(std::memory_order_seq_cst); }

 private:
  transport::Doorbell& Get(int slot) const { return table_.load(std::memory_order_acquire)[slot]; }

  std::atomic<transport::Doorbell*> table_;
  std::atomic<uint32_t> users_[transport::kDoorbells] = {};
  std::atomic<uint32_t> next_{0};
  std::atomic<int> parked_{0};
  transport::Doorbell private_[transport::kDoorbells];

  Doorbells() { table_.store(private_); }
};

// Rings doorbell `slot` of any process's page.
void RingDoorbell(transport::ProcessPage* page, int slot);

// How patient a thread is at each stage, from the number of ranks that share the machine's cores.
struct Patience {
  // Looks with a pause between, before yielding, at most (see SpinLooks): some ten microseconds.
  int spins = 1000;
  std::chrono::microseconds yielding{300};  // time of looks with a yield between, before sleeping
};
// What a communicator of this process says of its ranks, as long as it lives. `local_ranks`, of the communicator with
// the most, lower the process's patience when they outnumber the cores it may use. `remote`: this process has peers on
// other machines; its looks ask the kernel for messages, and take as long as giving the core away.
class Crowd {
 public:
  Crowd(int local_ranks, bool remote);
  ~Crowd();
  Crowd(const Crowd&) = delete;
  Crowd& operator=(const Crowd&) = delete;

 private:
  const std::multiset<int>::const_iterator place_;  // among those of the process
  const bool remote_;
};
bool ExpectsMessages();
Patience CurrentPatience();
// Ranks a core of this process has to serve, at least 1.
int Crowding();

}  // namespace axccl::device::host
