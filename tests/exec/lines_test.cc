// Counts the steps that the operations of a launch take.
#include "src/exec/host/lines.h"

#include <gtest/gtest.h>

namespace axccl::exec {
namespace {

using device::host::Poll;

struct Tally {
  int steps = 0, ended = 0;
  std::vector<int> order;
};

// Blocked for some steps, then done.
class FakeOperation {
 public:
  FakeOperation(Tally* tally, const int* channel, int number, Status status = Status())
      : tally_(tally), channel_(channel), number_(number), status_(std::move(status)) {}
  const int* channel() const { return channel_; }
  Poll Progress() {
    ++tally_->steps;
    if (--blocked_ > 0) return Poll::kBlocked;
    ++tally_->ended;
    tally_->order.push_back(number_);
    return Poll::kDone;
  }
  void Arm(int) { ++tally_->steps; }
  device::host::Awaited awaited() const { return {&counter_, static_cast<uint64_t>(number_)}; }
  const Status& status() const { return status_; }

 private:
  Tally* tally_;
  const int* channel_;
  int number_, blocked_ = 3;
  static inline std::atomic<uint64_t> counter_{0};
  Status status_;
};

struct FakeCall {
  Tally* tally;
  const int* on;
  int number;
  Status status = Status();
  Status refused = Status();  // why it cannot begin

  const int* channel() const { return on; }
  Result<std::unique_ptr<FakeOperation>> Begin() const {
    if (!refused.ok()) return refused;
    return std::make_unique<FakeOperation>(tally, on, number, status);
  }
};
using FakeLines = Lines<FakeOperation, FakeCall>;

TEST(Lines, CostOfAnOperationDoesNotGrowWithTheirNumber) {
  static int channels[1000];
  for (const int n : {10, 1000}) {
    for (const int on : {1, 5, 1000}) {
      Tally tally;
      FakeLines lines;
      for (int i = 0; i < n; ++i) lines.Add(FakeCall{&tally, &channels[i % on], i});
      while (lines.Progress() != Poll::kDone) lines.Arm(1);
      EXPECT_EQ(tally.ended, n);
      EXPECT_LE(tally.steps, 5 * n) << n << " operations on " << on << " channels";
    }
  }
}

TEST(Lines, KeepsTheOrderOfAChannelAndTheFirstError) {
  int a = 0, b = 0;
  Tally tally;
  FakeLines lines;
  lines.Add(FakeCall{&tally, &a, 0});
  lines.Add(FakeCall{&tally, &a, 1, Status(Code::kTimeout, "late")});
  lines.Add(FakeCall{&tally, &b, 2});
  lines.Add(FakeCall{&tally, &a, 3, Status(Code::kRemoteError, "gone")});
  while (lines.Progress() != Poll::kDone) continue;
  EXPECT_EQ(tally.order, (std::vector<int>{0, 2, 1, 3}));
  EXPECT_EQ(lines.result().code(), Code::kTimeout);
}

TEST(Lines, ACallThatCannotBeginHasEnded) {
  int a = 0;
  Tally tally;
  FakeLines lines;
  lines.Add(FakeCall{&tally, &a, 0});
  lines.Add(FakeCall{&tally, &a, 1, Status(), Status(Code::kSystemError, "no memory")});
  lines.Add(FakeCall{&tally, &a, 2});
  while (lines.Progress() != Poll::kDone) continue;
  EXPECT_EQ(tally.order, (std::vector<int>{0, 2}));
  EXPECT_EQ(lines.result().code(), Code::kSystemError);
}

TEST(Lines, WaitForACounterIfOneOperationCanRun) {
  int a = 0, b = 0;
  Tally tally;
  FakeLines one;
  one.Add(FakeCall{&tally, &a, 4});
  one.Add(FakeCall{&tally, &a, 5});
  ASSERT_EQ(one.Progress(), Poll::kBlocked);
  EXPECT_EQ(one.awaited().value, 4u);
  FakeLines two;
  two.Add(FakeCall{&tally, &a, 4});
  two.Add(FakeCall{&tally, &b, 5});
  ASSERT_EQ(two.Progress(), Poll::kBlocked);
  EXPECT_EQ(two.awaited().counter, nullptr);
}

}  // namespace
}  // namespace axccl::exec
