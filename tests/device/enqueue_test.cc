// The fast path in a process that never needed a thread of the scheduler; tests that need one are elsewhere.
#include <gtest/gtest.h>

#include "tests/device/work.h"

namespace axccl::device::host {
namespace {

// Work with one step, in which a thread stays until the test releases it.
class Station {
 public:
  Station()
      : work(std::make_shared<TestWork>([this] {
          inside = true;
          AwaitTrue([this] { return leave.load(); });
          left = true;
          return Poll::kDone;
        })) {}
  std::atomic<bool> inside{false}, leave{false}, left{false};
  const std::shared_ptr<TestWork> work;
};

TEST(Enqueue, ReadyWorkIsDoneOnTheCallersThread) {
  Queue* queue = NewQueue();
  auto work = std::make_shared<TestWork>([] { return Poll::kDone; });
  queue->Push(MakeItem(work));
  EXPECT_TRUE(work->done);
  EXPECT_EQ(work->last_thread, std::this_thread::get_id());
  EXPECT_FALSE(queue->pending());
  EXPECT_EQ(Scheduler::Process().threads(), 0);
}

TEST(Enqueue, TheThreadThatWaitsDoesTheWork) {
  Queue* queue = NewQueue();
  for (int round = 0; round < 100; ++round) {
    int left = 1000;
    auto work = std::make_shared<TestWork>([&left] { return --left == 0 ? Poll::kDone : Poll::kAgain; });
    queue->Push(MakeItem(work));
    EXPECT_TRUE(WaitThrough(queue, [&] { return work->done.load(); }));
    EXPECT_EQ(work->last_thread, std::this_thread::get_id());
    EXPECT_EQ(work->polls, 1000);
  }
  EXPECT_EQ(Scheduler::Process().threads(), 0);
}

TEST(Enqueue, WaitsForMarksAndPredecessors) {
  Queue* queue = NewQueue();
  const auto a = std::make_shared<Timeline>(), b = std::make_shared<Timeline>();
  const uint64_t outside = b->Issue();  // work of another queue
  const auto instant = [] { return std::make_shared<TestWork>([] { return Poll::kDone; }); };
  const auto first = instant(), second = instant(), third = instant();
  queue->Push(MakeItem(first, {{a, a->Issue()}}, {{b, outside + 1}}));
  queue->Push(MakeItem(second, {{a, a->Issue()}}));
  const uint64_t a_ticket = a->Issue(), b_ticket = b->Issue();
  queue->Push(MakeItem(third, {{a, a_ticket}, {b, b_ticket}}));
  EXPECT_FALSE(queue->Drive());
  EXPECT_EQ(first->polls + second->polls + third->polls, 0);
  b->Complete(outside);
  EXPECT_TRUE(WaitThrough(queue, [&] { return a->Idle() && b->Idle(); }));
  EXPECT_TRUE(first->done && second->done && third->done);
  EXPECT_FALSE(queue->pending());
  EXPECT_EQ(Scheduler::Process().threads(), 0);
}

TEST(Enqueue, FailureGoesToEveryTimelineOfTheWork) {
  Queue* queue = NewQueue();
  const auto a = std::make_shared<Timeline>(), b = std::make_shared<Timeline>();
  auto work = std::make_shared<TestWork>([] { return Poll::kDone; }, Status(Code::kRemoteError, "no luck"));
  const uint64_t a_ticket = a->Issue(), b_ticket = b->Issue();
  queue->Push(MakeItem(work, {{a, a_ticket}, {b, b_ticket}}));
  EXPECT_TRUE(a->Idle() && b->Idle());
  EXPECT_EQ(a->TakeError().message(), "no luck");
  EXPECT_EQ(b->TakeError().message(), "no luck");
}

// What goes with the last reference to finished work (a communicator) may take long, and other work goes on meanwhile.
TEST(Enqueue, FinishedWorkIsDestroyedWithoutTheRunLock) {
  struct Last {
    ~Last() {
      *free = queue->TryEnterIdle();
      if (*free) queue->Leave();
    }
    Queue* queue;
    bool* free;
  };
  for (const bool at_once : {true, false}) {
    Queue* const queue = NewQueue();
    bool free = false, open = at_once;
    std::shared_ptr<Last> last(new Last{queue, &free});
    queue->Push(MakeItem(
        std::make_shared<TestWork>([&open, last = std::move(last)] { return open ? Poll::kDone : Poll::kBlocked; })));
    open = true;
    EXPECT_NE(queue->Drive(), at_once);
    EXPECT_TRUE(free) << (at_once ? "done at once" : "done later");
  }
}

// ---- the fast path of calls ----

TEST(Enqueue, IdleQueueCanBeEnteredAndLeft) {
  Queue* queue = NewQueue();
  Timeline idle;
  ASSERT_TRUE(queue->TryEnterIdle());
  EXPECT_FALSE(queue->TryEnterIdle()) << "entered already";
  auto work = std::make_shared<TestWork>([] { return Poll::kDone; });
  queue->Push(MakeItem(work));
  EXPECT_FALSE(work->done) << "the holder has the queue";
  queue->Leave();
  EXPECT_TRUE(work->done) << "the holder runs what was pushed meanwhile";
  ASSERT_TRUE(queue->TryEnterIdle());
  work = std::make_shared<TestWork>([] { return Poll::kDone; });
  queue->Push(MakeItem(work));
  queue->LeaveAndNotify(&idle, &idle);
  EXPECT_TRUE(work->done);
}

TEST(Enqueue, StartedWorkIsHandedOver) {
  Queue* queue = NewQueue();
  const auto timeline = std::make_shared<Timeline>();
  auto work = std::make_shared<GatedWork>();
  ASSERT_TRUE(queue->TryEnterIdle());
  auto item = MakeItem(work, {{timeline, timeline->Issue()}});
  queue->AddStarted(std::move(item));
  queue->Leave();
  EXPECT_TRUE(queue->pending());
  EXPECT_FALSE(queue->TryEnterIdle()) << "not idle";
  work->open = true;
  EXPECT_TRUE(WaitThrough(queue, [&] { return timeline->Idle(); }));
  EXPECT_EQ(Scheduler::Process().threads(), 0);
}

// ---- arming ----

TEST(Enqueue, ArmReachesStartedWorkOnly) {
  Queue* queue = NewQueue();
  const auto outside = std::make_shared<Timeline>();
  outside->Issue();
  auto started = std::make_shared<GatedWork>(), waiting = std::make_shared<GatedWork>();
  queue->Push(MakeItem(started));
  queue->Push(MakeItem(waiting, {}, {{outside, 1}}));
  EXPECT_TRUE(queue->Arm(5));
  EXPECT_EQ(started->armed, 5);
  EXPECT_EQ(waiting->armed, -1);
  // Work that Arm itself starts has not been armed: the caller must not sleep yet.
  outside->Complete(0);
  EXPECT_FALSE(queue->Arm(6));
  EXPECT_EQ(waiting->polls, 1);
  EXPECT_TRUE(queue->Arm(7));
  EXPECT_EQ(waiting->armed, 7);
  started->open = waiting->open = true;
  EXPECT_FALSE(queue->Arm(8)) << "something advanced";
  EXPECT_FALSE(queue->pending());
}

// ---- two drivers ----

TEST(Enqueue, WorkPushedWhileAnotherThreadDrivesIsNotLost) {
  Queue* queue = NewQueue();
  Station station;
  std::thread driver([&] { queue->Push(MakeItem(station.work)); });
  AwaitTrue([&] { return station.inside.load(); });
  auto work = std::make_shared<TestWork>([] { return Poll::kDone; });
  queue->Push(MakeItem(work));
  EXPECT_FALSE(work->done);
  EXPECT_FALSE(queue->Arm(3)) << "a thread that cannot look must not sleep";
  EXPECT_FALSE(queue->Drive());
  station.leave = true;
  driver.join();
  EXPECT_TRUE(work->done) << "the driver runs what was pushed meanwhile before it leaves";
  EXPECT_FALSE(queue->pending());
}

TEST(Enqueue, QuiesceWaitsForTheStepUnderWay) {
  Queue* queue = NewQueue();
  Station station;
  std::thread driver([&] { queue->Push(MakeItem(station.work)); });
  AwaitTrue([&] { return station.inside.load(); });
  std::atomic<bool> begun{false};
  std::thread quiescer([&] {
    begun = true;
    Scheduler::Process().Quiesce();
    EXPECT_TRUE(station.left);
  });
  AwaitTrue([&] { return begun.load(); });
  station.leave = true;
  quiescer.join();
  driver.join();
}

}  // namespace
}  // namespace axccl::device::host
