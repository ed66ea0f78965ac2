// What a wait checks: members that are gone, calls that differ, deadlines, and ranks that wait for each other.
#include "src/exec/host/wait_monitor.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "src/exec/host/waited_time.h"
#include "tests/exec/ensemble.h"

namespace axccl::exec {
namespace {

using Clock = std::chrono::steady_clock;

// Looks of a wait before the first that checks anything.
constexpr int kLooksBeforeChecks = 31;

class PatientOwner : public FakeOwner {
 public:
  using FakeOwner::FakeOwner;
  Deadline deadline() const override { return {timeout}; }
  double notice_seconds() const override { return notice; }
  double timeout = 10, notice = 0;  // for every test, so that none waits forever
};

// The connector of a channel whose members never meet, or which the other one leaves.
class FakeConnector : public Connector {
 public:
  Result<int> Connect(std::vector<Member>*) override { return meets ? -1 : 1; }
  bool HasJoined(int) const override { return false; }
  Status CheckMissing(int position) const override { return StatusFor(missing, position); }
  Status CheckLeft(int position) const override { return StatusFor(left, position); }
  Result<int> TakeArea() override { return 0; }
  void PublishArea() override {}
  std::string Name() const override { return "channel 7"; }

  bool meets = false;
  const char *missing = nullptr, *left = nullptr;

 private:
  static Status StatusFor(const char* what, int position) {
    return what == nullptr ? Status() : MakeStatus(Code::kRemoteError, "position %d %s", position, what);
  }
};

class WaitMonitorTest : public testing::Test {
 protected:
  // Rank 0 waits in a call of its second operation.
  void Make(Connector* connector = nullptr) {
    channel_.emplace(&owner_, std::vector<Member>{ensemble_.MakeMember(0, 0), ensemble_.MakeMember(0, 1)}, 0,
                     ChannelOptions{.connector = connector, .device = &ensemble_});
    call_.kind = plan::Kind::kAllReduce;
    call_.type = DataType::kFloat32;
    call_.count = 16;
    binding_.emplace(&*channel_, call_);
    binding_->sequence = 1;
  }
  Status Look() { return monitor_.Look(*binding_, 1); }
  // Looks like a thread that sleeps between looks.
  template <class Done>
  Status LookUntil(const Done& done) {
    for (;;) {
      monitor_.Arm();
      Status status = Look();
      if (!status.ok() || done()) return status;
      sched_yield();
    }
  }
  Status LookUntilOver() {
    return LookUntil([] { return false; });
  }
  static std::string Text(const Status& status) { return std::string(status.message()); }

  Ensemble ensemble_{EnsembleOptions()};
  PatientOwner owner_{&ensemble_, 0};
  std::optional<Channel> channel_;
  Call call_;
  std::optional<Binding> binding_;
  WaitMonitor monitor_;
};

// A call that starts at the same time as the peers' does not check their health.
TEST_F(WaitMonitorTest, AShortWaitChecksNoMember) {
  Make();
  ensemble_.header(1)->closed.store(1);
  for (int wait = 0; wait < 3; ++wait) {
    for (int i = 0; i < kLooksBeforeChecks; ++i) ASSERT_TRUE(Look().ok()) << i;
    monitor_.Restart();
  }
  for (int i = 0; i < kLooksBeforeChecks; ++i) ASSERT_TRUE(Look().ok()) << i;
  EXPECT_EQ(Text(Look()), "rank 0 waits for rank 1, which has destroyed or aborted its communicator");
}

TEST_F(WaitMonitorTest, AThreadThatIsAboutToSleepChecksFirst) {
  Make();
  ensemble_.header(1)->closed.store(1);
  ASSERT_TRUE(Look().ok());
  monitor_.Arm();
  EXPECT_EQ(Look().code(), Code::kRemoteError);
}

// A long wait checks for all faults again and again.
TEST_F(WaitMonitorTest, ALongWaitChecksAgain) {
  Make();
  for (int i = 0; i <= kLooksBeforeChecks; ++i) ASSERT_TRUE(Look().ok());
  ensemble_.header(1)->closed.store(1);
  Status status;
  while ((status = Look()).ok()) sched_yield();
  EXPECT_EQ(status.code(), Code::kRemoteError);
}

TEST_F(WaitMonitorTest, CallsThatDifferAreFound) {
  Make();
  channel_->log().Record(call_);
  call_.count = 17;
  ensemble_.channel(1)->log().Record(call_);
  const Status status = LookUntilOver();
  EXPECT_EQ(status.code(), Code::kInvalidUsage);
  EXPECT_TRUE(Text(status).starts_with("mismatch at operation 0: rank 0 called ncclAllReduce count 16"))
      << Text(status);
}

TEST_F(WaitMonitorTest, AMemberThatLeftIsFound) {
  FakeConnector connector;
  connector.meets = true;
  connector.left = "has left";
  Make(&connector);
  ASSERT_EQ(channel_->members().Connect().value(), -1);
  EXPECT_EQ(Text(LookUntilOver()), "position 1 has left");
}

TEST_F(WaitMonitorTest, AMemberThatNeverComesIsFound) {
  FakeConnector connector;
  connector.missing = "will not come";
  connector.left = "has left";
  Make(&connector);
  EXPECT_EQ(Text(LookUntilOver()), "position 1 will not come");
}

TEST_F(WaitMonitorTest, TheDeadlineNamesTheRankThatIsWaitedFor) {
  owner_.timeout = 0.05;
  Make();
  const Clock::time_point start = Clock::now();
  const Status status = LookUntilOver();
  EXPECT_GE(Clock::now() - start, std::chrono::milliseconds(50));
  EXPECT_EQ(status.code(), Code::kTimeout);
  EXPECT_EQ(Text(status),
            "rank 0 waited 0.05 s for rank 1 in ncclAllReduce count 16 float sum (operation 1): deadline "
            "AXCCL_TIMEOUT passed; rank 1 has called nothing like it yet");
}

TEST_F(WaitMonitorTest, TheDeadlineNamesTheMissingChannel) {
  owner_.timeout = 0.01;
  FakeConnector connector;
  Make(&connector);
  EXPECT_EQ(Text(LookUntilOver()),
            "rank 0 waited 0.01 s for rank 1 to create and use channel 7, in ncclAllReduce count 16 float sum: "
            "deadline AXCCL_TIMEOUT passed; all ranks of a group must create its channel and take part in its "
            "operations");
}

TEST_F(WaitMonitorTest, ANoticeIsPrintedOnce) {
  owner_.notice = 0.01;
  owner_.timeout = 0.2;
  Make();
  testing::internal::CaptureStderr();
  const Status status = LookUntilOver();
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_EQ(status.code(), Code::kTimeout);
  const std::string notice = "rank 0 has waited 0.01 s for rank 1 in ncclAllReduce count 16 float sum (operation 1)";
  const size_t first = text.find(notice);
  EXPECT_NE(first, std::string::npos) << text;
  EXPECT_EQ(text.find("has waited", first + notice.size()), std::string::npos) << text;
}

// What moves does not wait: the time of a wait begins when something has moved.
TEST_F(WaitMonitorTest, AWaitBeginsWithTheLastMove) {
  Make();
  const Clock::time_point start = Clock::now();
  EXPECT_TRUE(LookUntil([&] { return Clock::now() - start > std::chrono::milliseconds(100); }).ok());
  monitor_.Restart();
  owner_.timeout = 0.05;
  usleep(30'000);  // the next look counts
  monitor_.Arm();
  EXPECT_TRUE(Look().ok());
  EXPECT_EQ(LookUntilOver().code(), Code::kTimeout) << "and this wait ends, too";
}

TEST_F(WaitMonitorTest, EachLongWaitHasANotice) {
  owner_.notice = 0.01;
  Make();
  testing::internal::CaptureStderr();
  for (int wait = 0; wait < 2; ++wait) {
    const Clock::time_point start = Clock::now();
    EXPECT_TRUE(LookUntil([&] { return Clock::now() - start > std::chrono::milliseconds(60); }).ok());
    monitor_.Restart();
  }
  const std::string text = testing::internal::GetCapturedStderr();
  const size_t first = text.find("has waited 0.01 s");
  ASSERT_NE(first, std::string::npos) << text;
  EXPECT_NE(text.find("has waited 0.01 s", first + 1), std::string::npos) << text;
}

// A process that was stopped does not find that its waits have lasted too long.
TEST(WaitedTime, AStopCountsForLittle) {
  using std::chrono::milliseconds;
  using std::chrono::seconds;
  const Clock::time_point start = Clock::now();
  WaitedTime waited;
  EXPECT_EQ(waited.At(start), seconds(0));
  EXPECT_EQ(waited.At(start + milliseconds(20)), milliseconds(20));
  EXPECT_EQ(waited.At(start + seconds(3600)), milliseconds(520));
  EXPECT_EQ(waited.At(start + seconds(3600) + milliseconds(80)), milliseconds(600));
}

// A thread that has much else to do between its looks still comes to every deadline.
TEST(WaitedTime, SeldomLooksComeToAnyDeadline) {
  const Clock::time_point start = Clock::now();
  WaitedTime waited;
  (void)waited.At(start);
  Clock::duration all{0};
  for (int look = 1; look <= 100; ++look) all = waited.At(start + look * std::chrono::seconds(5));
  EXPECT_EQ(all, 100 * WaitedTime::kMostPerLook);
}

// Each look checks afresh, so it sees progress that was made meanwhile.
TEST_F(WaitMonitorTest, StandsStillAfterAWhile) {
  Make();
  const Clock::time_point start = Clock::now();
  EXPECT_FALSE(monitor_.TakeStandstill());
  EXPECT_TRUE(LookUntil([&] { return monitor_.TakeStandstill(); }).ok());
  EXPECT_GE(Clock::now() - start, std::chrono::milliseconds(60));
  EXPECT_FALSE(monitor_.TakeStandstill()) << "it has been taken";
  EXPECT_TRUE(LookUntil([&] { return monitor_.TakeStandstill(); }).ok());
}

}  // namespace
}  // namespace axccl::exec
