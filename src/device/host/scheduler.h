// The host device's scheduler: runs enqueued work when the timelines allow it, on whichever thread is available.
//
// Work is cooperative: Work::Progress does what can be done without waiting and returns. Each host device has a queue.
// Any thread that calls (an enqueueing thread, a synchronising thread, the progress thread) takes the queue's run lock
// if it is free and polls its items. So the common case, enqueue then synchronise, needs no hand-over between threads,
// and speed never depends on the progress thread. That thread is the driver of last resort: it looks now and then, and
// takes over when work is pending, no user thread waits in the library, and no thread has driven that queue for a
// while. Callbacks may block, so they run on worker threads, never on a user's.
//
// Thread-safe.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <vector>

#include "src/base/status.h"
#include "src/device/host/queue.h"
#include "src/device/host/waiting.h"

namespace axccl::device::host {

// The steps that other threads were executing when this was made, in any queue: a group of calls on several devices is
// driven in the queue of one of them. They end in bounded time, as a step does, unless they call a function of the
// application.
class StepsUnderWay {
 public:
  // No steps.
  StepsUnderWay() = default;
  // A step that begins afterwards sees, with sequential consistency, what the caller has stored before.
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

  // Waits until `done()`; helps to drive `own` (may be null) first, then everything. Calls `give_up()` at least every
  // kCheckInterval, which ends the wait when it returns true. Returns whether done() was reached.
  template <class Done, class GiveUp>
  bool Wait(Queue* own, Done&& done, GiveUp&& give_up) {
    const bool attended = own != nullptr && attended_.load(std::memory_order_relaxed) > 0;
    if (attended) own->Disarm();
    if (SpinUntil(own, done)) {
      if (attended && own->pending()) LeaveToAttendant(own);
      return true;
    }
    return WaitSlow(std::function<bool()>(std::ref(done)), std::function<bool()>(std::ref(give_up)));
  }

  // A thread that continues with other things has left work pending: makes sure that some thread will drive it.
  void LeftPending();
  // Something completed or changed: wakes sleepers of this process that may wait for it. A sleeper counts itself as
  // parked, then looks again: the fence between the change and the look at the count excludes a lost wake-up.
  static void Notify() {
    std::atomic_thread_fence(std::memory_order_seq_cst);
    NotifyFenced();
  }
  // As Notify, for callers that have had such a fence since the change.
  static void NotifyFenced() { Doorbells::RingParked(); }
  // Returns when the steps in progress have ended, except for one of the calling thread.
  void Quiesce();
  // Whether the calling thread is inside a step, which has called a function of the application.
  bool InStep() const;
  // Makes sure that there is a progress thread. Must precede enqueueing work that no thread may wait for; if the thread
  // cannot be started, the call that enqueues returns that error.
  Status StartProgress() {
    return progress_state_.load(std::memory_order_relaxed) != kAbsent ? Status() : StartProgressThread();
  }

  // Work that must move while all threads of the application compute: +1 before it begins, -1 when it ends. As long as
  // there is some, the progress thread attends to all queues: it sleeps until something rings, at once moves what there
  // is, and sleeps again. While an application's thread waits here and drives the queues, it leaves them to that.
  void Attend(int change) { attended_.fetch_add(change, std::memory_order_seq_cst); }
  // A thread that has driven such work goes on with other things: what can unblock the work rings the progress thread.
  // It does not wake for this, unless it does not attend yet.
  void LeaveToAttendant(Queue* queue);
  // Such work can go on.
  void WakeAttendant();
  // +1, and -1 later: work may go on without a ring, because a program stores to a word that it waits for.
  void LookOften(int change) { looks_often_.fetch_add(change, std::memory_order_seq_cst); }

  // Number of live threads of the scheduler, including workers (tests).
  int threads() const;

 private:
  Scheduler() = default;
  template <class Done>
  bool SpinUntil(Queue* own, Done& done);
  bool WaitSlow(const std::function<bool()>& done, const std::function<bool()>& give_up);
  // Counts a user thread inside WaitSlow, until it leaves in any way: done() and give_up() may throw.
  class Helping {
   public:
    explicit Helping(Scheduler* scheduler);
    ~Helping();
    Helping(const Helping&) = delete;
    Helping& operator=(const Helping&) = delete;

   private:
    Scheduler* const scheduler_;
  };
  friend class StepsUnderWay;
  template <class F>
  void ForEachQueue(F f) const;
  bool DriveAll();
  bool AnyPending() const;
  bool Unattended() const { return AnyPending() && helpers_.load(std::memory_order_seq_cst) == 0; }
  Status StartProgressThread();
  void ProgressLoop();
  // Of a thread that drives the queues, if nothing rings.
  std::chrono::nanoseconds LongestSleep() const;
  void AttendQueues();
  void DozeWhileUsed();

  static constexpr int kMaxDevices = 1024;
  std::atomic<Queue*> queues_[kMaxDevices] = {};
  std::atomic<int> num_queues_{0};  // 1 + highest device used
  std::mutex mutex_;

  enum ProgressState : uint32_t { kAbsent, kAsleep, kDozing, kActive, kAttending };
  std::atomic<uint32_t> progress_state_{kAbsent};
  std::atomic<uint32_t> progress_wake_{0};
  std::atomic<uint32_t> helpers_{0};  // see Helping
  std::atomic<int> attended_{0}, looks_often_{0};
  std::atomic<int> attendant_{-1};     // doorbell of the progress thread while it attends
  std::atomic<uint32_t> activity_{0};  // LeftPending increments it, the dozing progress thread reads it
};

// Gives up the core to a rank that may need it. Returns false, without that, if unrelated processes would take it.
bool GiveUpCore();

// The number of looks, separated by pauses, that SpinUntil makes. It adapts to whether looking has been successful
// recently. Looking fails when the awaited rank shares this core, or comes late anyway; then the thread gives up the
// core almost at once, as it does between looks for messages.
int SpinLooks();
void NoteSpin(bool paid);
void SpinPause();
// Looks at what a queue waits for, before the thread looks again at what it waits for itself.
inline constexpr int kLooksAtOnce = 32;

template <class Done>
bool Scheduler::SpinUntil(Queue* own, Done& done) {
  if (done()) return true;
  for (int looks = SpinLooks(); looks > 0; --looks) {
    if (own != nullptr && own->pending()) {
      // done() may be true before the work of this queue is.
      int few = std::min(looks, kLooksAtOnce);
      looks -= few;
      own->Watch(&few);
      looks += few;
    }
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
