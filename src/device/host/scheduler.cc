#include "src/device/host/scheduler.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "src/base/detached_thread.h"
#include "src/base/param.h"
#include "src/base/processors.h"
#include "src/device/host/waiting.h"
#include "src/device/host/workers.h"

namespace axccl::device::host {
namespace {

using Clock = std::chrono::steady_clock;

// While operations keep coming, the progress thread wakes by itself instead of being woken for each: often if it has
// found work that no thread drives, seldom if users wait for what they start.
constexpr std::chrono::microseconds kDoze{250}, kLongestDoze{2000};
constexpr std::chrono::milliseconds kQuiet{10};
// Work that no thread has driven for this long is left to the progress thread.
constexpr std::chrono::nanoseconds kLeft{50000};

void SleepOnWord(const std::atomic<uint32_t>* word, uint32_t seen, const std::chrono::nanoseconds* timeout) {
  timespec limit{};
  if (timeout != nullptr) limit = {timeout->count() / 1000000000, timeout->count() % 1000000000};
  syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, timeout != nullptr ? &limit : nullptr, nullptr, 0);
}

void WakeWord(std::atomic<uint32_t>* word) {
  word->fetch_add(1, std::memory_order_seq_cst);
  syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
}

constexpr int kFewestLooks = 8;
// A look for messages is a system call, which keeps the core from ranks that have work to do, and the kernel from the
// very connection that is examined.
constexpr int kMessageLooks = 1;
constexpr int kMostLooks = 1 << 10;
std::atomic<int> g_looks{kMostLooks};

void SetLooks(int looks) {
  if (looks != g_looks.load(std::memory_order_relaxed)) g_looks.store(looks, std::memory_order_relaxed);
}

// Giving up the core hands it to any thread that is ready to run. Among ranks that is intended, but an unrelated
// process (for example a compiler) keeps it for a time slice of milliseconds. When that has happened, threads look
// longer and then sleep for a while, because a thread that is woken runs before one that computes all the time. A rank
// that shares the core and is not waiting looks the same, but not for long. So they sleep for a short while at first,
// and for twice as long whenever the core has been kept again. A core that serves many ranks takes long to serve all.
class Strangers {
 public:
  bool MayYield(Clock::time_point now) {
    if (!about_.load(std::memory_order_relaxed)) return true;
    if (now.time_since_epoch().count() < until_.load(std::memory_order_relaxed)) return false;
    about_.store(false, std::memory_order_relaxed);
    return true;
  }
  void Yielded(Clock::time_point before, Clock::time_point after) {
    if (after - before < kLate * std::max(1, Crowding() / 2)) {
      if (in_time_.load(std::memory_order_relaxed) < kCalm &&
          in_time_.fetch_add(1, std::memory_order_relaxed) + 1 == kCalm)
        memory_.store(kFirstMemory.count(), std::memory_order_relaxed);
      return;
    }
    in_time_.store(0, std::memory_order_relaxed);
    const std::chrono::microseconds memory(memory_.load(std::memory_order_relaxed));
    memory_.store(std::min(2 * memory, kLongestMemory).count(), std::memory_order_relaxed);
    until_.store((after + memory).time_since_epoch().count(), std::memory_order_relaxed);
    about_.store(true, std::memory_order_relaxed);
    SetLooks(kMostLooks);
  }
  bool about() const { return about_.load(std::memory_order_relaxed); }

 private:
  static constexpr std::chrono::microseconds kLate{500};
  static constexpr std::chrono::microseconds kFirstMemory{1000}, kLongestMemory{128000};
  static constexpr int kCalm = 64;
  std::atomic<bool> about_{false};
  std::atomic<int64_t> until_{0};
  std::atomic<int64_t> memory_{kFirstMemory.count()};  // microseconds
  std::atomic<int> in_time_{0};                        // yields since the last late one, up to kCalm
};
Strangers g_strangers;

// Ranks that look for messages keep the core for long, which looks like an unrelated process.
bool MayYield(Clock::time_point now) { return ExpectsMessages() || g_strangers.MayYield(now); }
void NoteYield(Clock::time_point before) {
  if (!ExpectsMessages()) g_strangers.Yielded(before, Clock::now());
}

// How long a thread that waits for messages looks before it gives up its core.
std::chrono::microseconds BusyPoll() {
  static const std::chrono::microseconds limit(param::GetInt("AXCCL_BUSY_POLL"));
  return ExpectsMessages() ? limit : std::chrono::microseconds(0);
}

// Notices that this thread shares its core with the one it waits for, although there are enough cores: looking never
// succeeds, and giving up the core always does. The kernel may leave two such threads together for a hundred
// milliseconds, because both seem busy and neither sleeps for long.
class SharedCore {
 public:
  void LookingPaid() {
    // Two ranks that send each other messages in turn each find one at once whenever they have just sent their own.
    if (!ExpectsMessages()) given_away_ = 0;
    if (++paid_ >= kCalm) patience_ = kFirst;
  }
  // A wait ended after some yields, without sleep. A message costs only a few system calls, so waits for messages are
  // judged by samples.
  void YieldingPaid() {
    if (ExpectsMessages() && ++unseen_ < kMessageWaits) return;
    const long waits = ExpectsMessages() ? kMessageWaits : 1;
    unseen_ = 0;
    rusage usage;
    if (Crowding() > 1 || getrusage(RUSAGE_THREAD, &usage) != 0) return;
    const long before = std::exchange(switches_, usage.ru_nvcsw + usage.ru_nivcsw);
    if (switches_ - before < waits) {
      // No other thread wanted the core: looking a little longer would have been enough.
      given_away_ = 0;
      SetLooks(std::min(2 * g_looks.load(std::memory_order_relaxed), kMostLooks));
      return;
    }
    paid_ = 0;
    if (++given_away_ < patience_) return;
    given_away_ = 0;
    // The other thread notices the same. Only one may move, or they meet again on the other core.
    coin_ = coin_ * 6364136223846793005u + 1442695040888963407u;
    if (coin_ >> 63 != 0) return;
    patience_ = std::min(2 * patience_, kLast);  // there may be no better core
    if (!AllProcessorsTaken()) MoveToAnotherProcessor();
  }

 private:
  static constexpr int kFirst = 4, kLast = 4096, kCalm = 256;
  static constexpr int kMessageWaits = 16;

  int given_away_ = 0, paid_ = 0, patience_ = kFirst;
  int unseen_ = 0;  // waits since the last sample
  long switches_ = 0;
  uint64_t coin_ = static_cast<uint64_t>(gettid()) << 32;
};
thread_local SharedCore t_shared_core;

}  // namespace

bool GiveUpCore() {
  const Clock::time_point now = Clock::now();
  if (!MayYield(now)) return false;
  sched_yield();
  NoteYield(now);
  return true;
}

int SpinLooks() {
  if (ExpectsMessages()) return kMessageLooks;
  return std::min(CurrentPatience().spins, g_looks.load(std::memory_order_relaxed));
}

void NoteSpin(bool paid) {
  if (paid) t_shared_core.LookingPaid();
  const int looks = g_looks.load(std::memory_order_relaxed);
  if (!paid && g_strangers.about()) return;
  SetLooks(paid ? std::min(looks + 16, kMostLooks) : std::max(looks / 2, kFewestLooks));
}
void SpinPause() { CpuRelax(); }

// ---- Scheduler ----

Scheduler& Scheduler::Process() {
  static Scheduler* scheduler = new Scheduler;  // outlives every thread
  return *scheduler;
}

Queue* Scheduler::GetQueue(int device) {
  Queue* queue = queues_[device].load(std::memory_order_acquire);
  if (queue != nullptr) return queue;
  std::lock_guard lock(mutex_);
  queue = queues_[device].load(std::memory_order_acquire);
  if (queue == nullptr) {
    queue = new Queue;
    queues_[device].store(queue, std::memory_order_release);
    if (num_queues_.load() <= device) num_queues_.store(device + 1, std::memory_order_release);
  }
  return queue;
}

template <class F>
void Scheduler::ForEachQueue(F f) const {
  const int n = num_queues_.load(std::memory_order_acquire);
  for (int i = 0; i < n; ++i) {
    Queue* queue = queues_[i].load(std::memory_order_acquire);
    if (queue != nullptr) f(queue);
  }
}

StepsUnderWay StepsUnderWay::InProcess() {
  StepsUnderWay under_way;
  Scheduler::Process().ForEachQueue([&](const Queue* queue) {
    const uint32_t turn = queue->turns_.load(std::memory_order_seq_cst);
    const bool running = queue->running_.load(std::memory_order_seq_cst);
    if (running && queue->driver_.load(std::memory_order_relaxed) != Queue::ThisThread())
      under_way.steps_.push_back({queue, turn});
  });
  return under_way;
}

bool StepsUnderWay::Ended() {
  std::erase_if(steps_, [](const Step& step) {
    return step.queue->turns_.load(std::memory_order_acquire) != step.turn ||
           !step.queue->running_.load(std::memory_order_seq_cst);
  });
  return steps_.empty();
}

void Scheduler::Quiesce() {
  StepsUnderWay steps = StepsUnderWay::InProcess();
  Doorbells& bells = Doorbells::Process();
  const auto start = Clock::now();
  while (!steps.Ended()) {
    if (Clock::now() - start < CurrentPatience().yielding) {
      sched_yield();
      continue;
    }
    // The thread that has advanced rings when it leaves its queue.
    const int slot = bells.Claim();
    const uint32_t seen = bells.Listen(slot);
    if (!steps.Ended()) bells.Sleep(slot, seen, kCheckInterval);
    bells.Release(slot);
  }
}

bool Scheduler::InStep() const {
  bool here = false;
  ForEachQueue(
      [&](const Queue* queue) { here |= queue->driver_.load(std::memory_order_relaxed) == Queue::ThisThread(); });
  return here;
}

bool Scheduler::DriveAll() {
  bool advanced = false;
  ForEachQueue([&](Queue* queue) {
    if (queue->pending()) advanced |= queue->Drive();
  });
  return advanced;
}

bool Scheduler::AnyPending() const {
  bool any = false;
  ForEachQueue([&](const Queue* queue) { any |= queue->pending(); });
  return any;
}

// Yields while things move, and parks when they stop. Shared by waiting users and the progress thread.
bool Scheduler::WaitSlow(const std::function<bool()>& done, const std::function<bool()>& give_up) {
  const Helping helping(this);
  Doorbells& bells = Doorbells::Process();
  const Patience patience = CurrentPatience();
  bool reached = false, slept = false;
  const std::chrono::microseconds busy_poll = BusyPoll();
  const std::chrono::nanoseconds first_sleep = kFirstSleep * Crowding();
  std::chrono::nanoseconds sleep = first_sleep;
  auto last_move = Clock::now();
  auto next_check = last_move + kCheckInterval;
  for (;;) {
    const bool advanced = DriveAll();
    if ((reached = done())) break;
    const auto now = Clock::now();
    if (now >= next_check) {
      if (give_up()) {
        // The reason to give up may have come after what this thread waits for.
        DriveAll();
        reached = done();
        break;
      }
      Workers::Process().StartLacking();
      next_check = now + kCheckInterval;
    }
    if (advanced) last_move = now;
    if (now - last_move < busy_poll) continue;
    if (now - last_move < patience.yielding && GiveUpCore()) continue;
    const int slot = bells.Claim();
    const uint32_t seen = bells.Listen(slot);
    bool quiet = true;
    ForEachQueue([&](Queue* queue) {
      if (queue->pending()) quiet &= queue->Arm(slot);
    });
    reached = done();
    // If it is not quiet, a thread drives that may not ring when it leaves. It may also need this very core.
    if (!reached && (quiet || !DriveAll())) {
      slept = true;
      bells.Sleep(slot, seen, quiet ? sleep : first_sleep);
      if (quiet) sleep = LongestSleep();
    }
    bells.Release(slot);
    if (reached) break;
    if (bells.Rung(slot, seen)) {  // rung: things move again, and the word that named the doorbell has been cleared
      last_move = Clock::now();
      sleep = first_sleep;
    }
  }
  if (reached && !slept) (void)CatchAll("moving a thread", [] { return t_shared_core.YieldingPaid(), Status(); });
  return reached;
}

Scheduler::Helping::Helping(Scheduler* scheduler) : scheduler_(scheduler) {
  scheduler_->helpers_.fetch_add(1, std::memory_order_seq_cst);
}

Scheduler::Helping::~Helping() {
  const bool last_helper = scheduler_->helpers_.fetch_sub(1, std::memory_order_seq_cst) == 1;
  if (!scheduler_->AnyPending()) return;
  scheduler_->Notify();  // sleepers may have counted on this thread
  if (last_helper) scheduler_->LeftPending();
}

void Scheduler::LeftPending() {
  activity_.store(activity_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  // Waiting users drive everything, so the progress thread stays out of their way. A sleeping one must be woken for new
  // work.
  if (helpers_.load(std::memory_order_seq_cst) != 0) Notify();
  const uint32_t state = progress_state_.load(std::memory_order_seq_cst);
  if (state == kAsleep) {
    WakeWord(&progress_wake_);
  } else if (state == kAttending) {
    WakeAttendant();
  } else if (state == kAbsent) {
    (void)StartProgressThread().ok();
  }
}

int Scheduler::threads() const {
  return Workers::Process().threads() + (progress_state_.load(std::memory_order_seq_cst) != kAbsent ? 1 : 0);
}

Status Scheduler::StartProgressThread() {
  std::lock_guard lock(mutex_);
  if (progress_state_.load(std::memory_order_seq_cst) != kAbsent) return Status();
  progress_state_.store(kActive, std::memory_order_seq_cst);
  (void)Workers::Process();  // exists before any thread that waits looks at it
  const Status started = StartDetached("the progress of work that no thread waits for", [this] { ProgressLoop(); });
  if (!started.ok()) progress_state_.store(kAbsent, std::memory_order_seq_cst);
  return started;
}

void Scheduler::WakeAttendant() {
  const int slot = attendant_.load(std::memory_order_seq_cst);
  if (slot >= 0) return Doorbells::Process().Ring(slot);
  Notify();
  const uint32_t state = progress_state_.load(std::memory_order_seq_cst);
  if (state == kAsleep || state == kDozing) WakeWord(&progress_wake_);
}

// The progress thread leaves work to threads that wait in here, so these are told. If it stops attending meanwhile, it
// sees that there is work again before it sleeps.
void Scheduler::LeaveToAttendant(Queue* queue) {
  if (helpers_.load(std::memory_order_seq_cst) != 0) return Notify();
  const int slot = attendant_.load(std::memory_order_seq_cst);
  if (slot >= 0 && queue->ArmFor(slot)) return;
  if (queue->pending()) WakeAttendant();
}

std::chrono::nanoseconds Scheduler::LongestSleep() const {
  constexpr std::chrono::milliseconds kOften{1};
  const bool often = attended_.load(std::memory_order_relaxed) > 0 && looks_often_.load(std::memory_order_relaxed) != 0;
  return often ? kOften : kCheckInterval;
}

void Scheduler::AttendQueues() {
  Doorbells& bells = Doorbells::Process();
  progress_state_.store(kAttending, std::memory_order_seq_cst);
  const int slot = bells.ClaimAside();
  attendant_.store(slot, std::memory_order_seq_cst);
  for (bool idle = false; !idle;) {
    const auto attends = [this] { return attended_.load(std::memory_order_seq_cst) > 0; };
    const auto left_to_others = [this] { return helpers_.load(std::memory_order_seq_cst) != 0; };
    if (!left_to_others() && attends() && DriveAll()) continue;
    const uint32_t seen = bells.Listen(slot);
    std::chrono::nanoseconds sleep = kCheckInterval;
    if (!attends()) {
      // Between two steps of an application. Other work wants this thread to doze.
      if (AnyPending()) break;
    } else if (!left_to_others()) {  // otherwise the last of them rings when it leaves
      bool quiet = true;
      ForEachQueue([&](Queue* queue) {
        if (queue->pending()) quiet &= queue->ArmFor(slot);
      });
      if (!quiet && DriveAll()) continue;
      // If it is not quiet, a thread drives that may not ring when it leaves.
      sleep = quiet ? LongestSleep() : kFirstSleep;
    }
    bells.Sleep(slot, seen, sleep);
    idle = !attends() && !bells.Rung(slot, seen);
  }
  attendant_.store(-1, std::memory_order_seq_cst);
}

// Dozes as long as operations keep coming.
void Scheduler::DozeWhileUsed() {
  const auto attended = [this] { return attended_.load(std::memory_order_seq_cst) > 0; };
  // Nothing is pending, or a user thread in here drives it.
  auto served = [&] { return !AnyPending() || helpers_.load(std::memory_order_seq_cst) > 1 || attended(); };
  auto never = [] { return false; };
  std::chrono::nanoseconds doze = kDoze, quiet{0};
  uint32_t activity = activity_.load(std::memory_order_relaxed);
  progress_state_.store(kDozing, std::memory_order_seq_cst);
  while (quiet < kQuiet) {
    const uint32_t wake = progress_wake_.load(std::memory_order_seq_cst);
    if (attended()) return;
    // If ranks outnumber the cores, so do their progress threads: together, they doze as often as one.
    const std::chrono::nanoseconds sleep = doze * Crowding();
    SleepOnWord(&progress_wake_, wake, &sleep);
    bool needed = Unattended();
    if (needed) {
      // A thread that has just started the work, or has begun to wait for it, is not counted yet.
      ForEachQueue([](Queue* queue) { queue->Note(); });
      SleepOnWord(&progress_wake_, wake, &kLeft);
      bool left = false;
      ForEachQueue([&](const Queue* queue) { left |= queue->Left(); });
      needed = left && helpers_.load(std::memory_order_seq_cst) == 0;
    }
    if (needed) {
      progress_state_.store(kActive, std::memory_order_seq_cst);
      WaitSlow(served, never);
      progress_state_.store(kDozing, std::memory_order_seq_cst);
    }
    const uint32_t now = activity_.load(std::memory_order_relaxed);
    const bool used = std::exchange(activity, now) != now;
    quiet = used ? std::chrono::nanoseconds(0) : quiet + doze;
    if (needed) {
      doze = kDoze;
    } else if (used) {
      doze = std::min<std::chrono::nanoseconds>(2 * doze, kLongestDoze);
    }
  }
}

void Scheduler::ProgressLoop() {
  BecomeOwnThread("axccl-progress");
  for (;;) {
    DozeWhileUsed();
    if (attended_.load(std::memory_order_seq_cst) > 0) {
      AttendQueues();
      continue;
    }
    const uint32_t wake = progress_wake_.load(std::memory_order_seq_cst);
    progress_state_.store(kAsleep, std::memory_order_seq_cst);
    if (Unattended() || attended_.load(std::memory_order_seq_cst) > 0) continue;
    SleepOnWord(&progress_wake_, wake, nullptr);
  }
}

}  // namespace axccl::device::host
