// The one way a thread of AxCCL waits: spin briefly, yield, then sleep on a doorbell.
//
// A thread that is about to sleep claims a doorbell of its process page and publishes it to whatever may wake it (Arm:
// peers' signals; parked count: completions inside the process). It looks once more, and sleeps until the doorbell
// rings, for at most kCheckInterval. Peers find the doorbell in the waiter word next to the counters that they signal;
// ringing it is a futex wake across processes.
//
// The sleeper stores "I am here" and then looks; who changes something stores that and then looks for sleepers. If all
// four were sequentially consistent, none could miss the other. Inside the process they are. But a peer's signal would
// then wait until the line that it writes has come from the core that has read it last, which is half the time of a
// small call; so a signal is a release store only, and may still be on its way when the peer finds nobody asleep. It
// arrives within a microsecond. Therefore, the first sleep after the words in the blocks have changed is short
// (kFirstSleep): the look after it sees what the look before it could not.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <set>

#include "transports/transport.h"

namespace axccl::device::host {

// Slow checks (peer death, abort, deadline, mismatch) happen at least this often while a thread waits.
inline constexpr std::chrono::milliseconds kCheckInterval{20};
// A sleep that must not last long, because a signal may have been missed. Longer where ranks share cores, which a
// thread that wakes for nothing would disturb.
inline constexpr std::chrono::microseconds kFirstSleep{50};

inline void CpuRelax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  asm volatile("" ::: "memory");
#endif
}

// The words on which this process's threads sleep: the doorbells of its process page, or private ones before there is a
// page.
class Doorbells {
 public:
  static Doorbells& Process();

  // Moves to the doorbells of a process page, so that peers can ring them. Call it before any peer attaches.
  void Adopt(transport::ProcessPage* page);

  // Claims a doorbell for the calling thread until Release; more threads than doorbells share (spurious wake-ups only).
  int Claim();
  void Release(int slot);
  // A doorbell that only those ring who know its number: RingAll does not. Not to be released.
  int ClaimAside() { return NextSlot(); }

  // Announces that the calling thread may sleep; to be called before its last look. Returns what Sleep needs.
  uint32_t Listen(int slot) { return Get(slot).rings.fetch_or(1, std::memory_order_seq_cst) | 1; }
  // Whether the doorbell has been rung since Listen returned `seen`.
  bool Rung(int slot, uint32_t seen) const { return Get(slot).rings.load(std::memory_order_seq_cst) != seen; }
  // Sleeps until Rung, or the timeout.
  void Sleep(int slot, uint32_t seen, std::chrono::nanoseconds timeout) const;
  void Ring(int slot);
  // Rings every claimed doorbell of this process.
  void RingAll();
  // The number of claimed doorbells; sequentially consistent.
  static int parked() { return parked_.load(std::memory_order_seq_cst); }
  // Rings every claimed doorbell of this process, if there is one.
  static void RingParked() {
    if (parked() != 0) Process().RingAll();
  }

 private:
  int NextSlot() { return static_cast<int>(next_.fetch_add(1, std::memory_order_relaxed) % transport::kDoorbells); }
  transport::Doorbell& Get(int slot) const { return table_.load(std::memory_order_acquire)[slot]; }

  std::atomic<transport::Doorbell*> table_;
  std::atomic<uint32_t> users_[transport::kDoorbells] = {};
  std::atomic<uint32_t> next_{0};
  static inline constinit std::atomic<int> parked_{0};  // claimed doorbells
  transport::Doorbell private_[transport::kDoorbells];

  Doorbells() { table_.store(private_); }
};

// Rings doorbell `slot` of any process's page. A doorbell is silent from one ring until a thread listens again, which
// then looks: a thread that is awake, but has no core, would otherwise cost whoever has one a system call for each
// ring.
void RingDoorbell(transport::ProcessPage* page, int slot);

// The duration of each stage of a wait, derived from the number of ranks that share the machine's cores.
struct Patience {
  // Most looks, with a pause between them, before yielding (see SpinLooks): some ten microseconds.
  int spins = 1000;
  std::chrono::microseconds yielding{300};  // time of looks with a yield between, before sleeping
};
// What a communicator of this process declares about its ranks, as long as it lives. `crowding`: the ranks that each
// processor has to serve (topo::Crowding); the largest one counts, and above 1 it lowers the process's patience.
// `remote`: this process has peers on other machines; its looks ask the kernel for messages, and take as long as giving
// up the core.
class Crowd {
 public:
  Crowd(int crowding, bool remote);
  ~Crowd();
  Crowd(const Crowd&) = delete;
  Crowd& operator=(const Crowd&) = delete;

 private:
  const std::multiset<int>::const_iterator place_;  // in the list of the process
  const bool remote_;
};
bool ExpectsMessages();
Patience CurrentPatience();
// The number of ranks that a processor of this process has to serve, at least 1.
int Crowding();

}  // namespace axccl::device::host
