#include "src/device/host/waiting.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <mutex>
#include <set>

namespace axccl::device::host {
namespace {

// Shared futexes (no PRIVATE flag): doorbells are rung across processes.
void FutexWait(const std::atomic<uint32_t>* word, uint32_t seen, std::chrono::nanoseconds timeout) {
  const timespec limit{static_cast<time_t>(timeout.count() / 1000000000),
                       static_cast<long>(timeout.count() % 1000000000)};
  syscall(SYS_futex, word, FUTEX_WAIT, seen, &limit, nullptr, 0);
}

void FutexWakeAll(std::atomic<uint32_t>* word) { syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0); }

// After a sequentially consistent change of what the sleeper looks for. If another thread rings in between, the sleeper
// looks after that.
void RingWord(std::atomic<uint32_t>* rings) {
  uint32_t value = rings->load(std::memory_order_seq_cst);
  if (value % 2 == 1 && rings->compare_exchange_strong(value, value + 1, std::memory_order_seq_cst))
    FutexWakeAll(rings);
}

std::atomic<int> g_crowding{1};       // of the most crowded communicator
std::atomic<int> g_with_messages{0};  // number of crowds

class Crowds {
 public:
  static Crowds& Process() {
    static auto* const crowds = new Crowds;  // outlives every communicator
    return *crowds;
  }
  std::multiset<int>::const_iterator Add(int crowding) {
    std::lock_guard lock(mutex_);
    const auto place = crowdings_.insert(crowding);
    Publish();
    return place;
  }
  void Remove(std::multiset<int>::const_iterator place) {
    std::lock_guard lock(mutex_);
    crowdings_.erase(place);
    Publish();
  }

 private:
  void Publish() { g_crowding.store(crowdings_.empty() ? 1 : *crowdings_.rbegin(), std::memory_order_relaxed); }

  std::mutex mutex_;
  std::multiset<int> crowdings_;
};

}  // namespace

Doorbells& Doorbells::Process() {
  static Doorbells* doorbells = new Doorbells;  // outlives every thread
  return *doorbells;
}

void Doorbells::Adopt(transport::ProcessPage* page) {
  transport::Doorbell* old = table_.exchange(page->doorbell.data(), std::memory_order_seq_cst);
  if (old == page->doorbell.data()) return;
  // A thread that sleeps on an old doorbell looks again and moves.
  for (int i = 0; i < transport::kDoorbells; ++i) RingWord(&old[i].rings);
}

int Doorbells::Claim() {
  const int slot = NextSlot();
  users_[slot].fetch_add(1, std::memory_order_seq_cst);
  parked_.fetch_add(1, std::memory_order_seq_cst);
  return slot;
}

void Doorbells::Release(int slot) {
  parked_.fetch_sub(1, std::memory_order_seq_cst);
  users_[slot].fetch_sub(1, std::memory_order_seq_cst);
}

void Doorbells::Sleep(int slot, uint32_t seen, std::chrono::nanoseconds timeout) const {
  FutexWait(&Get(slot).rings, seen, timeout);
}

void Doorbells::Ring(int slot) { RingWord(&Get(slot).rings); }

void Doorbells::RingAll() {
  for (int i = 0; i < transport::kDoorbells; ++i) {
    if (users_[i].load(std::memory_order_seq_cst) != 0) Ring(i);
  }
}

void RingDoorbell(transport::ProcessPage* page, int slot) {
  RingWord(&page->doorbell[static_cast<unsigned>(slot) % transport::kDoorbells].rings);
}

Crowd::Crowd(int crowding, bool remote) : place_(Crowds::Process().Add(crowding)), remote_(remote) {
  if (remote_) g_with_messages.fetch_add(1, std::memory_order_relaxed);
}

Crowd::~Crowd() {
  if (remote_) g_with_messages.fetch_sub(1, std::memory_order_relaxed);
  Crowds::Process().Remove(place_);
}

bool ExpectsMessages() { return g_with_messages.load(std::memory_order_relaxed) != 0; }

Patience CurrentPatience() {
  Patience patience;
  // With more ranks than cores, the awaited rank may need this very core: give it up almost at once.
  if (Crowding() > 1) patience.spins = 8;
  return patience;
}

int Crowding() { return g_crowding.load(std::memory_order_relaxed); }

}  // namespace axccl::device::host
