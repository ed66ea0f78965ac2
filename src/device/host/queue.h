// Work and the queues it waits in, one for each host device. scheduler.h explains which threads drive them.
//
// Work that must wait for other work is parked at the timeline that it waits for, and comes back when that has advanced
// far enough. So a queue only looks at running work, however much is outstanding: an operation behind 100,000 others
// costs the same as one behind a single other.
//
// Thread-safe. Items start and complete under the queue's run lock; no two threads call Work::Progress at the same
// time.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "src/base/status.h"
#include "src/device/host/timeline.h"
#include "src/device/host/waiting.h"

namespace axccl::device::host {

enum class Poll : uint8_t {
  kDone,     // finished; result() says how
  kBlocked,  // nothing to do until another thread or process acts
  kAgain,    // more can be done at once (long work returns now and then, so that aborts and other work get their turn)
};

// A counter that blocked work waits for: it can continue once the counter has that value.
struct Awaited {
  const std::atomic<uint64_t>* counter = nullptr;  // null: it waits for something else
  uint64_t value = 0;

  bool Reached() const { return counter->load(std::memory_order_acquire) >= value; }
};

class Work {
 public:
  virtual ~Work() = default;
  // Must not throw: the thread that drives the queue would leave it locked.
  virtual Poll Progress() = 0;
  // The thread that drives this work is about to sleep on `doorbell`: makes those that can unblock the work ring it.
  // Called before a last Progress().
  // kNoDoorbell: nobody needs a ring any more.
  virtual void Arm(int doorbell) {}
  static constexpr int kNoDoorbell = -1;
  // What it waits for, after Progress() returned kBlocked; valid until the run lock is released.
  virtual Awaited awaited() const { return {}; }
  // The result, once Progress() returned kDone. An error goes to the timelines that the work is on.
  virtual Status result() const { return Status(); }
  // Whether the work may block a thread and therefore needs a worker. It then holds a WorkerLease (workers.h).
  virtual bool blocking() const { return false; }
};

class Queue;

// Work, with its places on timelines.
struct Item : Waiter {
  std::shared_ptr<Work> work;
  Places places;               // starts when each place's predecessors are done
  std::vector<Mark> after;     // and each of these has been reached
  Mark behind;                 // and this one, which needs no more memory
  bool run_elsewhere = false;  // a worker ran it and has finished
  Queue* queue = nullptr;
  std::unique_ptr<Item> next;  // in its list of the queue: handing an item over must need no memory

  void GoOn(std::unique_ptr<Waiter> self) override;
  // Parks *self at the first timeline that has not advanced far enough; returns false if there is none.
  static bool Park(std::unique_ptr<Item>* self);
  void Finish();
};

// Items that have finished. The last reference to a communicator may go with one, which then parts from its peers, so
// they are destroyed without the run lock.
class EndedItems {
 public:
  EndedItems() = default;
  EndedItems(const EndedItems&) = delete;
  EndedItems& operator=(const EndedItems&) = delete;
  ~EndedItems() {
    while (first_ != nullptr) first_ = std::move(first_->next);
  }
  void Add(std::unique_ptr<Item> item) {
    item->next = std::move(first_);
    first_ = std::move(item);
  }
  void TakeAll(EndedItems* other) {
    while (other->first_ != nullptr) {
      std::unique_ptr<Item> rest = std::move(other->first_->next);
      Add(std::exchange(other->first_, std::move(rest)));
    }
  }

 private:
  std::unique_ptr<Item> first_;
};

class Queue {
 public:
  // Appends an item; starts it at once when it is ready and the queue is free. Also gives some of the running work a
  // turn.
  void Push(std::unique_ptr<Item> item);
  // Polls all running work, unless another thread is doing so. Returns true if something advanced.
  bool Drive() { return Serve(SIZE_MAX); }
  // As Drive. If it leaves a single blocked item, looks at what that waits for up to *looks times, and counts them
  // there: a look at a counter costs much less than a turn of the item.
  bool Watch(int* looks);
  // As Drive, and arms work that stays blocked with `doorbell`. Returns false if that was not complete: another thread
  // is driving, or something advanced or was started meanwhile.
  bool Arm(int doorbell);
  // As Arm, on behalf of the thread that sleeps on `doorbell` (Scheduler::LeaveToAttendant); and the end of that, for a
  // thread that looks for itself.
  bool ArmFor(int doorbell) {
    const bool quiet = Arm(doorbell);
    if (quiet) armed_for_another_.store(true, std::memory_order_relaxed);
    return quiet;
  }
  void Disarm();
  bool pending() const { return pending_.load(std::memory_order_seq_cst) != 0; }
  // For the progress thread alone. Note remembers the current state; Left returns whether work is pending and no thread
  // has driven the queue since.
  void Note() { noted_ = turns_.load(std::memory_order_relaxed); }
  bool Left() const {
    return pending() && !running_.load(std::memory_order_relaxed) && turns_.load(std::memory_order_relaxed) == noted_;
  }

  // The fast path: tries to take the run lock while nothing is pending. The holder may poll work of its own and must
  // call Leave().
  bool TryEnterIdle() {
    if (pending_.load(std::memory_order_relaxed) != 0) return false;
    if (running_.exchange(true, std::memory_order_seq_cst)) return false;
    driver_.store(ThisThread(), std::memory_order_relaxed);
    if (pending_.load(std::memory_order_seq_cst) == 0) return true;
    Leave();
    return false;
  }
  void Leave();
  // Leave() for a holder that has just completed a ticket on each of two timelines (Timeline::Done): releases what
  // waits for them, and notifies sleepers, with one fence for all.
  void LeaveAndNotify(Timeline* a, Timeline* b) {
    Exit(std::memory_order_release);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    a->LetGoOn();
    b->LetGoOn();
    Doorbells::RingParked();
    if (has_inbox_.load(std::memory_order_seq_cst)) Drive();
  }
  // Hands work that was started on the fast path to the queue. For the holder of the run lock.
  void AddStarted(std::unique_ptr<Item> item);
  // How often items were polled (tests).
  uint64_t looks() const { return looks_.load(std::memory_order_relaxed); }
  // Accepts an item that was parked.
  void TakeBack(std::unique_ptr<Item> item);

 private:
  friend class Scheduler;
  friend class StepsUnderWay;
  // A thread that fails here relies on the holder to look at the inbox after it has left. That look and this one are
  // both sequentially consistent, so at least one of a pushing thread and a leaving holder sees the other.
  bool TryEnter() {
    if (running_.load(std::memory_order_seq_cst) || running_.exchange(true, std::memory_order_seq_cst)) return false;
    driver_.store(ThisThread(), std::memory_order_relaxed);
    return true;
  }
  void Exit(std::memory_order order) {
    turns_.store(turns_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
    driver_.store(nullptr, std::memory_order_relaxed);
    running_.store(false, order);
  }
  // An address that no other thread has.
  static const void* ThisThread() {
    static thread_local char here;
    return &here;
  }
  // Polls what has arrived, and up to `turns` items that were running before.
  bool Serve(size_t turns);
  void AddToInbox(std::unique_ptr<Item> item);
  // For the holder of the run lock; they return true if something advanced.
  bool TakeInbox();
  bool PollStarted(size_t turns);
  bool WatchStarted(int* looks);
  bool Start(std::unique_ptr<Item> item);
  void KeepStarted(std::unique_ptr<Item> item);
  void RunOnWorker(std::unique_ptr<Item> item);
  void End(Item* item);
  void CountLook() { looks_.store(looks() + 1, std::memory_order_relaxed); }
  // Polls a started item; returns false if it has finished.
  bool PollItem(Item* item, bool* advanced);

  std::atomic<bool> running_{false};
  std::atomic<const void*> driver_{nullptr};  // ThisThread() of the holder of the run lock; null if there is none
  std::atomic<uint32_t> turns_{0};            // times the run lock was released; written under it
  uint32_t noted_ = 0;                        // by the progress thread
  std::atomic<uint32_t> pending_{0};
  std::atomic<bool> has_inbox_{false};
  std::atomic<bool> armed_for_another_{false};  // and not disarmed since
  std::mutex inbox_mutex_;
  std::unique_ptr<Item> inbox_;  // newest first
  // Guarded by the run lock.
  std::unique_ptr<Item> started_;            // except for what workers run
  size_t count_ = 0;                         // number of started items
  EndedItems ended_;                         // since the lock was taken
  std::unique_ptr<Item>* turn_ = &started_;  // link to the item whose turn is next; null: the first one
  std::atomic<uint64_t> looks_{0};           // written under the run lock
};

}  // namespace axccl::device::host
