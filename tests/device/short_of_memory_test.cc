// Memory runs out, for one allocation at a time: an enqueue is refused as a whole, or its work runs.
#include <gtest/gtest.h>

#include <cstdlib>
#include <new>

#include "src/device/host/current.h"
#include "src/device/host/stream.h"
#include "src/device/host/workers.h"
#include "tests/device/work.h"
#include "tests/harness/failing_new.h"

namespace axccl::device::host {
namespace {

using harness::FailEachNew;
using harness::FailingNew;

std::shared_ptr<TestWork> Instant() {
  return std::make_shared<TestWork>([] { return Poll::kDone; });
}

class BlockingWork : public TestWork {
 public:
  explicit BlockingWork(Workers::Lease lease) : TestWork([] { return Poll::kDone; }), lease_(std::move(lease)) {}
  bool blocking() const override { return true; }

 private:
  const Workers::Lease lease_;
};

// The thread that hands over or drives may be in the middle of other work, and could not handle a failure.
TEST(ShortOfMemory, WorkIsParkedAndResumedWithoutMemory) {
  Queue* queue = NewQueue();
  const auto gate = std::make_shared<Timeline>();
  constexpr int kItems = 40;
  std::vector<std::unique_ptr<Item>> items;
  std::vector<std::shared_ptr<TestWork>> works;
  for (int i = 0; i < kItems; ++i) {
    gate->Issue();
    works.push_back(Instant());
    // Neither in the order of what they wait for nor in the opposite order.
    items.push_back(MakeItem(works.back(), {}, {Mark{gate, static_cast<uint64_t>(1 + i * 7 % kItems)}}));
  }
  const FailingNew failing(1);
  for (auto& item : items) queue->Push(std::move(item));
  for (int i = 0; i < kItems; ++i) {
    gate->Complete(static_cast<uint64_t>(i));
    queue->Drive();
    for (int j = 0; j < kItems; ++j) {
      if (works[static_cast<size_t>(j)]->done != (j * 7 % kItems <= i)) std::abort();
    }
  }
  EXPECT_FALSE(FailingNew::Failed());
}

TEST(ShortOfMemory, WorkGoesToAWorkerWithoutMemory) {
  Queue* queue = NewQueue();
  for (int i = 0; i < 200; ++i) {
    Result<Workers::Lease> lease = Workers::Process().Take();
    ASSERT_TRUE(lease.ok());
    auto work = std::make_shared<BlockingWork>(std::move(lease).value());
    auto item = MakeItem(work);
    // If a thread cannot be started for lack of memory, the threads that wait try again.
    EXPECT_NO_THROW({
      const FailingNew failing(1);
      queue->Push(std::move(item));
    });
    EXPECT_TRUE(WaitThrough(queue, [&] { return work->done && !queue->pending(); }));
  }
}

TEST(ShortOfMemory, RefusedWorkHoldsNothingBack) {
  Device* device = Device::Get(NextDevice());
  auto blocking = std::make_shared<Stream>(device->ordinal(), true);
  device->AddStream(blocking);
  auto gate = std::make_shared<GatedWork>();
  Submit(device, blocking.get(), gate);
  const auto submit = [&] { Submit(device, device->null_stream(), Instant()); };
  EXPECT_GT(FailEachNew(submit, [&] { EXPECT_TRUE(device->null_stream()->timeline()->Idle()); }), 0);
  gate->open = true;
  EXPECT_TRUE(WaitThrough(device->queue(), [&] { return device->null_stream()->timeline()->Idle(); }));
}

// A thread that was refused a device has none, and one that has one keeps it.
TEST(ShortOfMemory, ADeviceIsClaimedOrNot) {
  int first = -1, second = -1;
  std::thread([&] {
    EXPECT_GT(FailEachNew([&] { first = ClaimDevice().value(); }, [&] { EXPECT_EQ(first, -1); }), 0);
    std::thread([&] { second = ClaimDevice().value(); }).join();
  }).join();
  EXPECT_NE(first, second);
}

// A wait ends with an exception: its thread no longer drives the work, so other threads must.
TEST(ShortOfMemory, AWaitThatThrowsLeavesWorkToOthers) {
  Device* device = Device::Get(NextDevice());
  auto work = std::make_shared<GatedWork>();
  Submit(device, device->null_stream(), work);
  EXPECT_THROW(Scheduler::Process().Wait(
                   device->queue(), [&] { return work->done.load(); }, []() -> bool { throw std::bad_alloc(); }),
               std::bad_alloc);
  work->open = true;
  AwaitTrue([&] { return work->done.load(); });  // outside the library
}

}  // namespace
}  // namespace axccl::device::host
