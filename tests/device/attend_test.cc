// Work that moves while no thread of the application is in the library: the progress thread sleeps until it is rung.
#include <gtest/gtest.h>

#include "src/device/host/scheduler.h"
#include "src/device/host/waiting.h"
#include "tests/device/work.h"

namespace axccl::device::host {
namespace {

// Attended for as long as it lives.
class Attended {
 public:
  Attended() : queue_(NewQueue()) {
    EXPECT_TRUE(Scheduler::Process().StartProgress().ok());
    Scheduler::Process().Attend(1);
  }
  ~Attended() { Scheduler::Process().Attend(-1); }
  Attended(const Attended&) = delete;
  Queue* queue() const { return queue_; }
  // Adds work and leaves it to the progress thread, which has armed it when this returns.
  void Leave(const std::shared_ptr<TestWork>& work) const {
    queue_->Push(MakeItem(work));
    Scheduler::Process().LeaveToAttendant(queue_);
    AwaitTrue([&] { return work->armed != Work::kNoDoorbell; });
  }

 private:
  Queue* const queue_;
};

TEST(Attend, ARingMovesTheWork) {
  const Attended attended;
  for (int i = 0; i < 100; ++i) {
    const auto work = std::make_shared<GatedWork>();
    attended.Leave(work);
    work->open = true;
    Doorbells::Process().Ring(work->armed);
    AwaitTrue([&] { return work->done.load(); });
    EXPECT_NE(work->last_thread, std::this_thread::get_id());
    AwaitTrue([&] { return !attended.queue()->pending(); });
  }
}

// The sleep between two looks at peers' health is kCheckInterval: in a second there are some 50 of them, where a thread
// that dozes for 250 microseconds makes thousands.
TEST(Attend, NobodyPollsMeanwhile) {
  const Attended attended;
  const auto work = std::make_shared<GatedWork>();
  attended.Leave(work);
  const int before = work->polls;
  const auto end = std::chrono::steady_clock::now() + 20 * kCheckInterval;
  AwaitTrue([&] { return std::chrono::steady_clock::now() > end; });
  EXPECT_LT(work->polls - before, 200);
  work->open = true;
  Doorbells::Process().Ring(work->armed);
  AwaitTrue([&] { return work->done.load(); });
}

// A thread that waits looks for itself: nothing needs to ring the progress thread, until the waiting thread leaves.
TEST(Attend, AThreadThatWaitsTakesTheDoorbellOutAndPutsItBack) {
  const Attended attended;
  const auto work = std::make_shared<GatedWork>();
  attended.Leave(work);
  int looks = 0, armed_inside = 0;
  EXPECT_TRUE(WaitThrough(attended.queue(), [&] {
    armed_inside += work->armed != Work::kNoDoorbell;
    return ++looks > 8;
  }));
  EXPECT_EQ(armed_inside, 0);
  AwaitTrue([&] { return work->armed != Work::kNoDoorbell; });
  work->open = true;
  Doorbells::Process().Ring(work->armed);
  AwaitTrue([&] { return work->done.load(); });
}

// Without a ring, because a program stores to a word.
TEST(Attend, LooksOftenWhereItIsAsked) {
  const Attended attended;
  Scheduler::Process().LookOften(1);
  const auto work = std::make_shared<GatedWork>();
  attended.Leave(work);
  work->open = true;
  AwaitTrue([&] { return work->done.load(); });
  Scheduler::Process().LookOften(-1);
}

// Work that is not attended still finds the dozing progress thread.
TEST(Attend, OtherWorkIsLeftToAThreadThatDozes) {
  {
    const Attended attended;
    const auto work = std::make_shared<GatedWork>();
    attended.Leave(work);
    work->open = true;
    Doorbells::Process().Ring(work->armed);
    AwaitTrue([&] { return !attended.queue()->pending(); });
  }
  Queue* const queue = NewQueue();
  std::atomic<int> steps{0};
  const auto work = std::make_shared<TestWork>([&] { return ++steps < 10 ? Poll::kBlocked : Poll::kDone; });
  queue->Push(MakeItem(work));
  Scheduler::Process().LeftPending();
  AwaitTrue([&] { return work->done.load(); });
}

}  // namespace
}  // namespace axccl::device::host
