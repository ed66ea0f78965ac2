// The host device's scheduler: runs enqueued work when the timelines allow it, on whichever thread is there to do it.
//
// Work is cooperative: Poll() does what can be done without waiting and returns. Each host device has a queue; whoever
// calls (an enqueueing thread, a synchronising thread, the progress thread) takes the queue's run lock if it is free and
// polls its items. So the common case, enqueue then synchronise, needs no hand-over between threads, and nothing depends on
// the progress thread for speed. The progress thread is the driver of last resort: it looks now and then, and takes over when
// work is pending, no user thread is waiting in the library, and nobody has driven that queue for a while. Callbacks may block,
// so they run on worker threads, never on a user's.
//
// Thread-safe. Items start and complete under the queue's run lock; Work::Poll is never called by two threads at once.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
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
  virtual Poll Progress() = 0;
  // The thread that drives this work is about to sleep on `doorbell`: make whoever can unblock it ring. Called before a
  // last Progress().
  virtual void Arm(int doorbell) {}
  // The outcome, once Progress() returned kDone. An error goes to the timelines the work is on.
  virtual Status result() const { return Status(); }
  // Whether the work may block a thread and so needs a worker.
  virtual bool blocking() const { return false; }
};

// Work on its timelines.
struct Item {
  std::shared_ptr<Work> work;
  std::vector<Place> places;  // starts when each place's predecessors are done
  std::vector<Mark> after;    // and each of these is reached
  bool started = false;
  std::atomic<bool> finished_elsewhere{false};  // a worker has run it

  bool Ready() const;
  void Finish();
};

// The work queue of one host device.
class Queue {
 public:
  // Appends; starts it at once when it is ready and the queue is free.
  void Push(std::unique_ptr<Item> item);
  // Polls everything that can run, if nobody else is doing so. True if something advanced.
  bool Drive();
  // As Drive, arming what stays blocked with `doorbell`. False if that was not all: another thread is driving, or something
  // advanced or was started meanwhile.
  bool Arm(int doorbell);
  bool pending() const { return pending_.load(std::memory_order_seq_cst) != 0; }
  // For the progress thread alone: notes where things stand, and tells whether work is pending of which nobody has been at
  // the queue since they were noted.
  void Note() { noted_ = turns_.load(std::memory_order_relaxed); }
  bool Left() const {
    return pending() && !running_.load(std::memory_order_relaxed) && turns_.load(std::memory_order_relaxed) == noted_;
  }

  // The fast path: tries to take the run lock while nothing is pending. The holder may poll work of its own and must
  // call Leave().
  bool TryEnterIdle();
  void Leave();
  // Leave() and Scheduler::Notify() for the holder that has just completed something, with one fence for both.
  void LeaveAndNotify();
  // Hands work that was started on the fast path to the queue. By the holder of the run lock.
  void AddStarted(std::unique_ptr<Item> item);

 private:
  friend class StepsUnderWay;
  // Whoever fails here counts on the holder to look at the inbox after it has left. Like that look, this one is sequentially
  // consistent: of a pusher and a leaving holder at least one sees the other.
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
  bool PollItems();
  bool PollItem(Item* item, bool* done);
  void TakeInbox();

  std::atomic<bool> running_{false};
  std::atomic<const void*> driver_{nullptr};  // ThisThread() of who holds the run lock; null where nobody does
  std::atomic<uint32_t> turns_{0};            // times the run lock was given back; written under it
  uint32_t noted_ = 0;                        // of the progress thread
  std::atomic<uint32_t> pending_{0};
  std::atomic<bool> has_inbox_{false};
  std::mutex inbox_mutex_;
  std::vector<std::unique_ptr<Item>> inbox_;
  std::vector<std::unique_ptr<Item>> items_;  // guarded by the run lock
};

// What other threads were in the middle of when this was made, in whichever queue: a group of calls on several devices is
// driven in the queue of one of them. Ends in bounded time, as a step does, unless it calls a function of the application.
class StepsUnderWay {
 public:
  // Nothing.
  StepsUnderWay() = default;
  // A step that begins afterwards sees what the caller has stored before, with sequential consistency.
  static StepsUnderWay InProcess();
  bool Ended();

 private:
  struct Step {
    const Queue* queue;
    uint32_t turn;
  };
  std::vector<Step> steps_;
};

class Scheduler {
 public:
  static Scheduler& Process();

  // The queue of host device `device`; created at first use, lives as long as the process.
  Queue* GetQueue(int device);

  // Waits until `done()`; helps to drive `own` (may be null) first, then everything. `give_up()` is asked every
  // kCheckInterval at least and ends the wait when true. Returns whether done() was reached.
  template <class Done, class GiveUp>
  bool Wait(Queue* own, Done&& done, GiveUp&& give_up) {
    if (SpinUntil(own, done)) return true;
    return WaitSlow(std::function<bool()>(std::ref(done)), std::function<bool()>(std::ref(give_up)));
  }

  // Work was left pending by a thread that goes on with other things: makes sure somebody will drive it.
  void LeftPending();
  // Something completed or changed: wakes sleepers of this process that may wait for it. A sleeper counts itself as parked,
  // then looks again: the fence between the change and the look at the count excludes a lost wake-up.
  void Notify();
  // Returns when the steps under way have ended.
  void Quiesce();
  // Runs fn on a worker thread.
  void RunOnWorker(std::function<void()> fn);

  // Threads of the scheduler alive (tests).
  int threads() const { return threads_.load(); }

 private:
  Scheduler() = default;
  template <class Done>
  bool SpinUntil(Queue* own, Done& done);
  bool WaitSlow(const std::function<bool()>& done, const std::function<bool()>& give_up);
  friend class StepsUnderWay;
  template <class F>
  void ForEachQueue(F f) const;
  bool DriveAll();
  bool AnyPending() const;
  bool Unattended() const { return AnyPending() && helpers_.load(std::memory_order_seq_cst) == 0; }
  void StartProgressThread();
  void ProgressLoop();
  void WorkerLoop();

  static constexpr int kMaxDevices = 1024;
  std::atomic<Queue*> queues_[kMaxDevices] = {};
  std::atomic<int> num_queues_{0};  // 1 + highest device used
  std::mutex mutex_;

  enum ProgressState : uint32_t { kAbsent, kAsleep, kDozing, kActive };
  std::atomic<uint32_t> progress_state_{kAbsent};
  std::atomic<uint32_t> progress_wake_{0};
  std::atomic<uint32_t> helpers_{0};   // user threads inside WaitSlow
  std::atomic<uint32_t> activity_{0};  // bumped by LeftPending, read by the dozing progress thread
  std::atomic<int> threads_{0};

  struct Workers;
  Workers* workers_ = nullptr;  // guarded by mutex_ until created; never destroyed
};

// Number of pause-separated looks SpinUntil makes: adapts to whether looking has paid lately. It does not when the rank waited
// for shares this core, or comes late anyway; then the core is given up almost at once, as it is between looks for messages.
int SpinLooks();
void NoteSpin(bool paid);
void SpinPause();

template <class Done>
bool Scheduler::SpinUntil(Queue* own, Done& done) {
  if (done()) return true;
  for (int looks = SpinLooks(); looks > 0; --looks) {
    if (own != nullptr && own->pending()) own->Drive();
    if (done()) {
      NoteSpin(true);
      return true;
    }
    SpinPause();
  }
  NoteSpin(false);
  return false;
}

}  // namespace axccl::device::host
