// What one look of a thread that waits does for a queue. The scheduler's thread, which serves all queues, would be in
// the way: nothing in this program starts it.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <memory>
#include <thread>

#include "src/device/host/scheduler.h"
#include "tests/device/work.h"

namespace axccl::device::host {
namespace {

class WatchTest : public testing::Test {
 protected:
  void TearDown() override { EXPECT_EQ(Scheduler::Process().threads(), 0); }
};

TEST_F(WatchTest, LooksAtTheCounterOfASingleItem) {
  Queue* const queue = NewQueue();
  std::atomic<uint64_t> counter{4};
  const auto work = std::make_shared<GatedWork>();
  work->waits_for = {&counter, 5};
  queue->Push(MakeItem(work));
  const int polls = work->polls;
  int looks = 7;
  EXPECT_FALSE(queue->Watch(&looks));
  EXPECT_EQ(looks, 0) << "all looks are used up";
  EXPECT_EQ(work->polls, polls + 1) << "a look is no poll";
  work->open = true;
  counter = 5;
  looks = 7;
  EXPECT_TRUE(queue->Watch(&looks));
  EXPECT_TRUE(work->done);
  EXPECT_FALSE(queue->pending());
}

TEST_F(WatchTest, PollsAgainWhenTheCounterHasTheValue) {
  Queue* const queue = NewQueue();
  std::atomic<uint64_t> counter{4};
  std::atomic<bool> watching{false};
  const auto work = std::make_shared<TestWork>([&] {
    watching = true;
    return counter.load() >= 5 ? Poll::kDone : Poll::kBlocked;
  });
  work->waits_for = {&counter, 5};
  queue->Push(MakeItem(work));
  watching = false;
  std::thread peer([&] {
    AwaitTrue([&] { return watching.load(); });
    counter = 5;
  });
  while (!work->done) {
    int looks = 1000;
    queue->Watch(&looks);
  }
  peer.join();
}

TEST_F(WatchTest, LeavesSeveralItemsToTheirPolls) {
  Queue* const queue = NewQueue();
  std::atomic<uint64_t> counter{0};
  const std::array<std::shared_ptr<GatedWork>, 2> both{std::make_shared<GatedWork>(), std::make_shared<GatedWork>()};
  for (const auto& work : both) {
    work->waits_for = {&counter, 5};
    queue->Push(MakeItem(work));
  }
  int looks = 7;
  EXPECT_FALSE(queue->Watch(&looks));
  EXPECT_EQ(looks, 7);
  for (const auto& work : both) work->open = true;
  EXPECT_TRUE(queue->Watch(&looks));
  EXPECT_FALSE(queue->pending());
}

}  // namespace
}  // namespace axccl::device::host
