// Several threads that use the scheduler: drivers that meet, the progress thread, workers, waits that give up.
#include "src/device/host/scheduler.h"

#include <gtest/gtest.h>

#include <condition_variable>

#include "src/device/host/stream.h"
#include "src/device/host/waiting.h"
#include "tests/device/work.h"

namespace axccl::device::host {
namespace {

std::shared_ptr<Work> Callback(void (*fn)(void*), void* argument) {
  Result<std::shared_ptr<Work>> made = MakeCallback(fn, argument);
  EXPECT_TRUE(made.ok()) << made.status().message();
  return std::move(made).value();
}

TEST(Queue, ManyThreadsPushAndWait) {
  constexpr int kThreads = 4, kEach = 3000;
  Queue* queue = NewQueue();
  const auto shared = std::make_shared<Timeline>();
  std::mutex submission;
  uint64_t chain = 0;  // guarded by the order of the timeline
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kEach; ++i) {
        int steps = (t + i) % 3;
        auto work = std::make_shared<TestWork>([&chain, steps]() mutable {
          if (steps-- > 0) return Poll::kAgain;
          ++chain;
          return Poll::kDone;
        });
        std::unique_ptr<Item> item;
        {
          std::lock_guard lock(submission);
          item = MakeItem(work, {{shared, shared->Issue()}});
        }
        const uint64_t ticket = item->places.begin()->ticket;
        queue->Push(std::move(item));
        if (i % 2 == 0) {
          ASSERT_TRUE(WaitThrough(queue, [&] { return shared->Reached(ticket + 1); }));
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(WaitThrough(queue, [&] { return shared->Idle(); }));
  EXPECT_EQ(chain, uint64_t{kThreads} * kEach);
}

// As if another thread enqueued without end: each item brings the next one. Somebody else goes on with them.
TEST(Queue, AThreadDoesNotServeForEver) {
  constexpr int kItems = 100000;
  Queue* const queue = NewQueue();
  const std::thread::id here = std::this_thread::get_id();
  std::atomic<int> items{0}, items_here{0};
  std::function<void()> push = [&] {
    queue->Push(MakeItem(std::make_shared<TestWork>([&] {
      if (std::this_thread::get_id() == here) ++items_here;
      if (++items < kItems) push();
      return Poll::kDone;
    })));
  };
  push();
  EXPECT_LT(items_here, 1000);
  AwaitTrue([&] { return items == kItems && !queue->pending(); });
  EXPECT_LT(items_here, 1000);
}

// What the work waits for has happened when it is armed, but no look before the first sleep sees it.
class LateWork : public TestWork {
 public:
  LateWork() : TestWork([this] { return armed.load() >= 0 && ++looks_ > 1 ? Poll::kDone : Poll::kBlocked; }) {}

 private:
  int looks_ = 0;
};

TEST(Scheduler, AMissedSignalIsSeenAfterAShortSleep) {
  constexpr int kRounds = 40;
  Queue* const queue = NewQueue();
  int long_waits = 0;
  for (int round = 0; round < kRounds; ++round) {
    const auto work = std::make_shared<LateWork>();
    queue->Push(MakeItem(work));
    const auto start = std::chrono::steady_clock::now();
    EXPECT_TRUE(WaitThrough(queue, [&] { return work->done.load(); }));
    long_waits += std::chrono::steady_clock::now() - start >= kCheckInterval;
  }
  EXPECT_LE(long_waits, kRounds / 2) << "as long as a sleep that nothing ends";
}

TEST(Scheduler, GivesUpWhenAsked) {
  Queue* queue = NewQueue();
  auto work = std::make_shared<GatedWork>();
  queue->Push(MakeItem(work));
  int asked = 0;
  EXPECT_FALSE(Scheduler::Process().Wait(
      queue, [&] { return work->done.load(); }, [&] { return ++asked == 3; }));
  EXPECT_EQ(asked, 3);
  EXPECT_FALSE(work->done);
  work->open = true;
  EXPECT_TRUE(WaitThrough(queue, [&] { return work->done.load(); }));
}

// The condition to give up may be a consequence of what the wait is for: a peer does its part and leaves.
TEST(Scheduler, LooksOnceMoreBeforeItGivesUp) {
  Queue* queue = NewQueue();
  auto work = std::make_shared<GatedWork>();
  queue->Push(MakeItem(work));
  EXPECT_TRUE(Scheduler::Process().Wait(
      queue, [&] { return work->done.load(); },
      [&] {
        work->open = true;
        return true;
      }));
}

TEST(Scheduler, AWaitOnOneDeviceDrivesAll) {
  Queue* queue = NewQueue();
  Queue* other = NewQueue();
  auto work = std::make_shared<GatedWork>();
  other->Push(MakeItem(work));
  work->open = true;
  EXPECT_TRUE(WaitThrough(queue, [&] { return work->done.load(); }));
}

TEST(Scheduler, ProgressThreadRunsAbandonedWork) {
  Device* device = Device::Get(NextDevice());
  for (int round = 0; round < 50; ++round) {
    auto work = std::make_shared<GatedWork>();
    Submit(device, device->null_stream(), work);
    EXPECT_FALSE(work->done);
    work->open = true;
    AwaitTrue([&] { return work->done.load(); });  // outside the library
    AwaitTrue([&] { return device->null_stream()->timeline()->Idle(); });
  }
}

// A thread that is always busy with another queue does not drive this one.
TEST(Scheduler, ProgressThreadDrivesEachQueue) {
  Device* device = Device::Get(NextDevice());
  Queue* busy = NewQueue();
  std::atomic<bool> stop{false};
  std::thread user([&] {
    while (!stop) busy->Push(MakeItem(std::make_shared<TestWork>([] { return Poll::kDone; })));
  });
  for (int round = 0; round < 300; ++round) {
    auto work = std::make_shared<GatedWork>();
    Submit(device, device->null_stream(), work);
    work->open = true;
    AwaitTrue([&] { return device->null_stream()->timeline()->Idle(); });
  }
  stop = true;
  user.join();
}

// A thread that sleeps in the library for one thing also advances others, including those that come later.
TEST(Scheduler, SleepersTakeUpWorkThatComesLater) {
  Device* device = Device::Get(NextDevice());
  Queue* queue = NewQueue();
  for (int round = 0; round < 20; ++round) {
    auto never = std::make_shared<GatedWork>();
    queue->Push(MakeItem(never));
    std::thread sleeper([&] { EXPECT_TRUE(WaitThrough(queue, [&] { return never->done.load(); })); });
    AwaitTrue([&] { return never->armed.load() >= 0; });
    auto work = std::make_shared<GatedWork>();
    Submit(device, device->null_stream(), work);
    AwaitTrue([&] { return work->armed.load() >= 0 || work->done; });
    work->open = true;
    Doorbells::Process().Ring(work->armed);
    AwaitTrue([&] { return work->done.load(); });
    never->open = true;
    Doorbells::Process().Ring(never->armed);
    sleeper.join();
  }
}

// ---- workers ----

TEST(Scheduler, BlockedCallbacksDoNotHoldEachOtherUp) {
  constexpr int kCallbacks = 24;
  Device* device = Device::Get(NextDevice());
  struct Meeting {
    std::mutex mutex;
    std::condition_variable changed;
    int arrived = 0;
  } meeting;
  std::vector<std::shared_ptr<Stream>> streams;
  for (int i = 0; i < kCallbacks; ++i) {
    streams.push_back(std::make_shared<Stream>(device->null_stream()->device(), false));
    device->AddStream(streams.back());
    Submit(device, streams.back().get(),
           Callback(
               [](void* argument) {
                 auto& m = *static_cast<Meeting*>(argument);
                 std::unique_lock lock(m.mutex);
                 ++m.arrived;
                 m.changed.notify_all();
                 m.changed.wait(lock, [&] { return m.arrived == kCallbacks; });
               },
               &meeting));
  }
  for (const auto& stream : streams)
    EXPECT_TRUE(WaitThrough(device->queue(), [&] { return stream->timeline()->Idle(); }));
  EXPECT_EQ(meeting.arrived, kCallbacks);
}

TEST(Scheduler, CallbacksRunOnNeitherCallerNorWaiter) {
  Device* device = Device::Get(NextDevice());
  std::thread::id ran;
  Submit(device, device->null_stream(),
         Callback([](void* id) { *static_cast<std::thread::id*>(id) = std::this_thread::get_id(); }, &ran));
  EXPECT_TRUE(WaitThrough(device->queue(), [&] { return device->null_stream()->timeline()->Idle(); }));
  EXPECT_NE(ran, std::thread::id());
  EXPECT_NE(ran, std::this_thread::get_id());
}

TEST(Scheduler, CallbacksMayEnqueueAndWait) {
  Device* device = Device::Get(NextDevice());
  auto stream = std::make_shared<Stream>(device->null_stream()->device(), false);
  device->AddStream(stream);
  struct Context {
    Device* device;
    Stream* stream;
    int inner = 0;
  } context{device, stream.get()};
  Submit(device, device->null_stream(),
         Callback(
             [](void* argument) {
               auto& c = *static_cast<Context*>(argument);
               Submit(c.device, c.stream, Callback([](void* n) { ++*static_cast<int*>(n); }, &c.inner));
               EXPECT_TRUE(WaitThrough(c.device->queue(), [&] { return c.stream->timeline()->Idle(); }));
               EXPECT_EQ(c.inner, 1);
             },
             &context));
  EXPECT_TRUE(WaitThrough(device->queue(), [&] { return device->null_stream()->timeline()->Idle(); }));
  EXPECT_EQ(context.inner, 1);
}

// Completions, sleepers and new waiters at the same time: a wake-up that gets lost costs an interval each time and
// shows as a timeout.
TEST(Scheduler, PingPongOfTwoWaitersOverCallbacks) {
  Device* device = Device::Get(NextDevice());
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([device] {
      auto stream = std::make_shared<Stream>(device->null_stream()->device(), false);
      device->AddStream(stream);
      int count = 0;
      for (int i = 1; i <= 300; ++i) {
        Submit(device, stream.get(), Callback([](void* n) { ++*static_cast<int*>(n); }, &count));
        ASSERT_TRUE(WaitThrough(device->queue(), [&] { return stream->timeline()->Idle(); }));
        ASSERT_EQ(count, i);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace axccl::device::host
