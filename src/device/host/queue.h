// Work and the queues it waits in, one for each host device. Who drives them, see scheduler.h.
//
// Work that has to wait for others is parked with a timeline it waits for, and comes back when that has got there, so a
// queue only looks at what is under way, however much is outstanding: an operation costs the same behind one and behind
// 100,000.
//
// Thread-safe. Items start and complete under the queue's run lock; Work::Progress is never called by two threads at
// once.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "src/base/status.h"
#include "src/device/host/timeline.h"

namespace axccl::device::host {

enum class Poll : uint8_t {
  kDone,     // finished; result() says how
  kBlocked,  // nothing to do before somebody else acts
  kAgain,    // more can be done right away (long work comes back now and then so that aborts and others get their turn)
};

class Work {
 public:
  virtual ~Work() = default;
  // Throws nothing, or whoever drives the queue would leave it locked.
  virtual Poll Progress() = 0;
  // The thread that drives this work is about to sleep on `doorbell`: make whoever can unblock it ring. Called before a
  // last Progress().
  virtual void Arm(int doorbell) {}
  // The outcome, once Progress() returned kDone. An error goes to the timelines the work is on.
  virtual Status result() const { return Status(); }
  // Whether the work may block a thread and so needs a worker. It holds a WorkerLease then (workers.h).
  virtual bool blocking() const { return false; }
};

class Queue;

// Work on its timelines.
struct Item : Waiter {
  std::shared_ptr<Work> work;
  std::vector<Place> places;   // starts when each place's predecessors are done
  std::vector<Mark> after;     // and each of these is reached
  bool run_elsewhere = false;  // by a worker, which has finished
  Queue* queue = nullptr;
  std::unique_ptr<Item> next;  // in its list of the queue: what is handed over must not need memory

  void GoOn(std::unique_ptr<Waiter> self) override;
  // Leaves *self with the first timeline that has not got as far as it must; false if there is none.
  static bool Park(std::unique_ptr<Item>* self);
  void Finish();
};

class Queue {
 public:
  // Appends; starts it at once when it is ready and the queue is free. Gives some of what is under way a turn, too.
  void Push(std::unique_ptr<Item> item);
  // Polls everything that is under way, if nobody else is doing so. True if something advanced.
  bool Drive() { return Serve(SIZE_MAX); }
  // As Drive, arming what stays blocked with `doorbell`. False if that was not all: another thread is driving, or
  // something advanced or was started meanwhile.
  bool Arm(int doorbell);
  bool pending() const { return pending_.load(std::memory_order_seq_cst) != 0; }
  // For the progress thread alone: notes where things stand, and tells whether work is pending of which nobody has been
  // at the queue since they were noted.
  void Note() { noted_ = turns_.load(std::memory_order_relaxed); }
  bool Left() const {
    return pending() && !running_.load(std::memory_order_relaxed) && turns_.load(std::memory_order_relaxed) == noted_;
  }

  // The fast path: tries to take the run lock while nothing is pending. The holder may poll work of its own and must
  // call Leave().
  bool TryEnterIdle();
  void Leave();
  // Leave() for the holder that has just done a ticket on each of two timelines (Timeline::Done): lets go on what waits
  // for them, and notifies sleepers, with one fence for all.
  void LeaveAndNotify(Timeline* a, Timeline* b);
  // Hands work that was started on the fast path to the queue. By the holder of the run lock.
  void AddStarted(std::unique_ptr<Item> item);
  // How often an item was looked at (tests; while nobody drives).
  uint64_t looks() const { return looks_; }
  // Takes back what was parked.
  void TakeBack(std::unique_ptr<Item> item);

 private:
  friend class Scheduler;
  friend class StepsUnderWay;
  // Whoever fails here counts on the holder to look at the inbox after it has left. Like that look, this one is
  // sequentially consistent: of a pusher and a leaving holder at least one sees the other.
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
  // Polls what has come in and up to `turns` of what was under way before.
  bool Serve(size_t turns);
  void AddToInbox(std::unique_ptr<Item> item);
  // These with the run lock held; true if something advanced.
  bool TakeInbox();
  bool PollStarted(size_t turns);
  bool Start(std::unique_ptr<Item> item);
  void KeepStarted(std::unique_ptr<Item> item);
  void RunOnWorker(std::unique_ptr<Item> item);
  void End(Item* item);
  // Polls an item that has been started; false if it has finished.
  bool PollItem(Item* item, bool* advanced);

  std::atomic<bool> running_{false};
  std::atomic<const void*> driver_{nullptr};  // ThisThread() of who holds the run lock; null where nobody does
  std::atomic<uint32_t> turns_{0};            // times the run lock was given back; written under it
  uint32_t noted_ = 0;                        // of the progress thread
  std::atomic<uint32_t> pending_{0};
  std::atomic<bool> has_inbox_{false};
  std::mutex inbox_mutex_;
  std::unique_ptr<Item> inbox_;  // the last that came first
  // Guarded by the run lock.
  std::unique_ptr<Item> started_;            // but for what workers run
  size_t count_ = 0;                         // of these
  std::unique_ptr<Item>* turn_ = &started_;  // holds the one whose turn it is; null: the first one's
  uint64_t looks_ = 0;
};

}  // namespace axccl::device::host
