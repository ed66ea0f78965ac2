#include "src/device/host/timeline.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace axccl::device::host {
namespace {

TEST(Timeline, TicketsAreReachedInOrder) {
  Timeline timeline;
  EXPECT_TRUE(timeline.Idle());
  EXPECT_EQ(timeline.issued(), 0u);
  const uint64_t first = timeline.Issue(), second = timeline.Issue();
  EXPECT_EQ(second, first + 1);
  EXPECT_EQ(timeline.issued(), second + 1);
  EXPECT_TRUE(timeline.Reached(first)) << "nothing precedes the first";
  EXPECT_FALSE(timeline.Reached(second));
  EXPECT_FALSE(timeline.Idle());
  timeline.Complete(first);
  EXPECT_TRUE(timeline.Reached(second));
  EXPECT_FALSE(timeline.Idle());
  timeline.Complete(second);
  EXPECT_TRUE(timeline.Idle());
}

TEST(Timeline, AnErrorIsReportedOnceAndTheFirstStays) {
  Timeline timeline;
  EXPECT_TRUE(timeline.TakeError().ok());
  timeline.SetError(Status(Code::kRemoteError, "first"));
  timeline.SetError(Status(Code::kTimeout, "second"));
  const Status taken = timeline.TakeError();
  EXPECT_EQ(taken.code(), Code::kRemoteError);
  EXPECT_EQ(taken.message(), "first");
  EXPECT_TRUE(timeline.TakeError().ok());
  timeline.SetError(Status(Code::kTimeout, "third"));
  EXPECT_EQ(timeline.TakeError().message(), "third");
}

TEST(Timeline, OneOfManyTakersGetsTheError) {
  for (int round = 0; round < 200; ++round) {
    Timeline timeline;
    timeline.SetError(Status(Code::kTimeout, "one"));
    std::atomic<int> taken{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) threads.emplace_back([&] { taken += !timeline.TakeError().ok(); });
    for (std::thread& thread : threads) thread.join();
    ASSERT_EQ(taken, 1);
  }
}

// What happened before a ticket was completed is visible to every thread that sees it reached; tickets taken under one
// lock are unique.
TEST(Timeline, CarriesDataBetweenThreadsInTicketOrder) {
  constexpr int kThreads = 4, kEach = 2000;
  Timeline timeline;
  std::mutex submission;
  uint64_t chain = 0;  // guarded by the order of the timeline
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < kEach; ++i) {
        uint64_t ticket;
        {
          std::lock_guard lock(submission);
          ticket = timeline.Issue();
        }
        while (!timeline.Reached(ticket)) std::this_thread::yield();
        ASSERT_EQ(chain, ticket);
        ++chain;
        timeline.Complete(ticket);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(chain, uint64_t{kThreads} * kEach);
  EXPECT_TRUE(timeline.Idle());
}

class Noted : public Waiter {
 public:
  Noted(uint64_t ticket, std::vector<uint64_t>* gone) : ticket_(ticket), gone_(gone) {}
  void GoOn(std::unique_ptr<Waiter>) override { gone_->push_back(ticket_); }

 private:
  const uint64_t ticket_;
  std::vector<uint64_t>* const gone_;
};

// Each waiter goes on when its ticket is reached, those with lower tickets first, whatever the order of their arrival.
TEST(Timeline, WaitersGoOnWhenTheirTicketsAreReached) {
  constexpr uint64_t kTickets = 20000;
  Timeline timeline;
  std::vector<uint64_t> gone, expected;
  uint32_t draw = 1;
  for (uint64_t i = 0; i < kTickets; ++i) {
    draw = draw * 1664525u + 1013904223u;
    const uint64_t ticket = i % 3 == 0 ? i + 1 : 1 + draw % kTickets;  // in order, as most are, and out of order
    std::unique_ptr<Waiter> waiter = std::make_unique<Noted>(ticket, &gone);
    ASSERT_TRUE(timeline.Park(ticket, &waiter));
    expected.push_back(ticket);
    timeline.Issue();
  }
  std::sort(expected.begin(), expected.end());
  for (uint64_t ticket = 0; ticket < kTickets; ++ticket) {
    timeline.Complete(ticket);
    ASSERT_TRUE(gone.empty() || gone.back() <= ticket + 1);
    ASSERT_TRUE(gone.size() == expected.size() || expected[gone.size()] > ticket + 1);
  }
  EXPECT_EQ(gone, expected);
  std::unique_ptr<Waiter> late = std::make_unique<Noted>(1, &gone);
  EXPECT_FALSE(timeline.Park(1, &late)) << "reached already";
  EXPECT_NE(late, nullptr);
}

TEST(Mark, OfNoTimelineIsReached) {
  EXPECT_TRUE(Mark().Reached());
  const auto timeline = std::make_shared<Timeline>();
  const Mark mark{timeline, timeline->Issue() + 1};
  EXPECT_FALSE(mark.Reached());
  timeline->Complete(0);
  EXPECT_TRUE(mark.Reached());
}

}  // namespace
}  // namespace axccl::device::host
