// The cost of outstanding work: it counts looks at items, so nothing here depends on time.
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "tests/device/work.h"

namespace axccl::device::host {
namespace {

std::shared_ptr<TestWork> Instant() {
  return std::make_shared<TestWork>([] { return Poll::kDone; });
}

// The looks at items per operation, for `n` operations on one stream: while they are enqueued behind a blocked one, and
// while they run.
std::pair<double, double> LooksBehindOne(int n) {
  Queue* queue = NewQueue();
  const auto stream = std::make_shared<Timeline>();
  auto gate = std::make_shared<GatedWork>();
  queue->Push(MakeItem(gate, {{stream, stream->Issue()}}));
  const uint64_t before = queue->looks();
  for (int i = 0; i < n; ++i) queue->Push(MakeItem(Instant(), {{stream, stream->Issue()}}));
  const uint64_t enqueued = queue->looks();
  gate->open = true;
  while (!stream->Idle()) queue->Drive();
  EXPECT_FALSE(queue->pending());
  return {static_cast<double>(enqueued - before) / n, static_cast<double>(queue->looks() - enqueued) / n};
}

TEST(Outstanding, AnOperationCostsTheSameBehindFewAndMany) {
  const auto few = LooksBehindOne(100), many = LooksBehindOne(100000);
  EXPECT_LE(few.first, 3);
  EXPECT_LE(many.first, 3);
  EXPECT_LE(few.second, 3);
  EXPECT_LE(many.second, 3);
}

// Each stream's first operation is under way; enqueueing on another stream does not look at all of them. A progress
// thread may, meanwhile.
TEST(Outstanding, AnOperationCostsTheSameBesideFewAndMany) {
  for (const int n : {10, 3000}) {
    Queue* queue = NewQueue();
    const std::thread::id here = std::this_thread::get_id();
    std::atomic<bool> open{false};
    std::atomic<int64_t> polls{0};  // by this thread
    const auto step = [&] {
      if (std::this_thread::get_id() == here) ++polls;
      return open ? Poll::kDone : Poll::kBlocked;
    };
    for (int i = 0; i < n; ++i) {
      const auto stream = std::make_shared<Timeline>();
      queue->Push(MakeItem(std::make_shared<TestWork>(step), {{stream, stream->Issue()}}));
    }
    EXPECT_LE(polls, 10 * n);
    open = true;
    AwaitTrue([&] {
      queue->Drive();
      return !queue->pending();
    });
  }
}

// Work that waits for several streams and marks starts when the last of them is reached; each of them has one look at
// it.
TEST(Outstanding, WaitsForSeveralThatEndInAnyOrder) {
  Queue* queue = NewQueue();
  constexpr int kStreams = 6;
  int order[kStreams] = {0, 1, 2, 3, 4, 5};
  do {
    std::vector<std::shared_ptr<Timeline>> streams;
    std::vector<Mark> marks;
    for (int i = 0; i < kStreams; ++i) {
      streams.push_back(std::make_shared<Timeline>());
      streams.back()->Issue();
      marks.push_back(Mark{streams.back(), 1});
    }
    const auto work = Instant();
    const uint64_t before = queue->looks();
    queue->Push(MakeItem(work, {}, marks));
    for (const int i : order) {
      EXPECT_FALSE(work->done);
      streams[static_cast<size_t>(i)]->Complete(0);
      queue->Drive();
    }
    // A progress thread may be driving the queue at this moment.
    AwaitTrue([&] {
      queue->Drive();
      return work->done.load();
    });
    ASSERT_LE(queue->looks() - before, uint64_t{kStreams} + 1);
  } while (std::next_permutation(order, order + kStreams));
}

// Waiters park and tickets complete at the same time: no waiter is forgotten.
TEST(Outstanding, ParkingAndCompletingMeet) {
  constexpr int kThreads = 3, kRounds = 20000;
  const auto shared = std::make_shared<Timeline>();
  for (int i = 0; i < kRounds; ++i) shared->Issue();
  std::vector<std::thread> threads;
  std::atomic<int> ran{0};
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      Queue* queue = NewQueue();
      for (int i = 0; i < kRounds; ++i) {
        auto work = std::make_shared<TestWork>([&] { return ++ran, Poll::kDone; });
        queue->Push(MakeItem(work, {}, {Mark{shared, static_cast<uint64_t>(i + 1)}}));
      }
      AwaitTrue([&] {
        queue->Drive();
        return !queue->pending();
      });
    });
  }
  for (int i = 0; i < kRounds; ++i) shared->Complete(static_cast<uint64_t>(i));
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(ran, kThreads * kRounds);
}

}  // namespace
}  // namespace axccl::device::host
