// The outputs of an operation that ranks of other processes write: when they may, and how the rank takes them back.
#include "src/exec/host/exposure.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/exec/ensemble.h"

namespace axccl::exec {
namespace {

// Its heap takes pages back, and `gone` is in a page that it has taken back.
class HeapOwner : public FakeOwner {
 public:
  using FakeOwner::FakeOwner;
  Status TakeBack(const void* p, size_t bytes) override {
    taken.emplace_back(p, bytes);
    return take_back;
  }
  bool TakenBack(const void* p, size_t bytes) const override {
    const auto* const begin = static_cast<const std::byte*>(p);
    return gone != nullptr && begin <= gone && gone < begin + bytes;
  }
  std::vector<std::pair<const void*, size_t>> taken;
  Status take_back;
  const std::byte* gone = nullptr;
};

Prepared MakePrepared(bool pushes) {
  auto plan = std::make_shared<plan::Plan>();
  plan->pushes = pushes;
  auto program = std::make_shared<Program>();
  program->plan = std::move(plan);
  Prepared prepared;
  prepared.program = std::move(program);
  return prepared;
}

class ExposureTest : public testing::Test {
 protected:
  static constexpr uint64_t kBytes = 64;  // size of the output

  explicit ExposureTest(Layout layout = Layout::kHeap)
      : ensemble_([layout] {
          EnsembleOptions options;
          options.ranks = 3;
          options.layout = layout;
          return options;
        }()) {
    std::vector<Member> members;
    for (int rank = 0; rank < 3; ++rank) members.push_back(ensemble_.MakeMember(0, rank));
    channel_.emplace(&owner_, std::move(members), 0, ChannelOptions{.device = &ensemble_});
    Call call;
    call.kind = plan::Kind::kAllReduce;
    call.type = DataType::kFloat32;
    call.count = kBytes / sizeof(float);
    call.output = output_;
    binding_.emplace(&*channel_, call);
    operands_ = Operands::FormOf(call);
    binding_->prepared = &pushes_;
  }
  // The operation is exposed and has failed.
  void BeginLeaving() {
    exposure_.Update(*binding_, true);
    exposure_.BeginLeaving();
  }
  bool HasLeft() { return exposure_.HasLeft(*binding_, *operands_); }
  std::chrono::steady_clock::duration Leave() {
    const auto start = std::chrono::steady_clock::now();
    while (!HasLeft()) sched_yield();
    return std::chrono::steady_clock::now() - start;
  }
  void SetWriting(int rank, uint32_t steps) { ensemble_.header(rank)->writing.store(steps); }

  Ensemble ensemble_;
  HeapOwner owner_{&ensemble_, 0};
  const Prepared pushes_ = MakePrepared(true), pulls_ = MakePrepared(false);
  std::byte output_[kBytes];
  std::optional<Channel> channel_;
  std::optional<Binding> binding_;
  const Operands* operands_ = nullptr;
  Exposure exposure_;
};

class OneProcessTest : public ExposureTest {
 protected:
  OneProcessTest() : ExposureTest(Layout::kThreads) {}
};

TEST_F(ExposureTest, CountsWhileAPlanThatPushesRuns) {
  EXPECT_FALSE(owner_.HasExposed());
  for (const bool running : {true, true, false, false, true, false}) {  // repeated updates count one operation
    exposure_.Update(*binding_, running);
    EXPECT_EQ(exposure_.exposed(), running);
    EXPECT_EQ(owner_.HasExposed(), running);
  }
  binding_->prepared = &pulls_;
  exposure_.Update(*binding_, true);
  EXPECT_FALSE(exposure_.exposed());
  EXPECT_FALSE(owner_.HasExposed());
}

TEST_F(OneProcessTest, IsNotExposed) {
  exposure_.Update(*binding_, true);
  EXPECT_FALSE(exposure_.exposed());
  EXPECT_FALSE(owner_.HasExposed());
}

// Two operations have outputs in one page: when one took the page back, the other lost what was written to it.
TEST_F(ExposureTest, OutputsThatWereTakenBackAreAnError) {
  owner_.gone = output_ + kBytes - 1;
  EXPECT_TRUE(exposure_.CheckOutputs(*binding_, *operands_).ok()) << "no rank wrote to them";
  exposure_.Update(*binding_, true);
  const Status status = exposure_.CheckOutputs(*binding_, *operands_);
  EXPECT_EQ(status.code(), Code::kSystemError);
  EXPECT_TRUE(status.message().starts_with("rank 0: a page of the output of ncclAllReduce count 16 float sum"))
      << status.message();
  owner_.gone = output_ + kBytes;
  EXPECT_TRUE(exposure_.CheckOutputs(*binding_, *operands_).ok()) << "the page is behind them";
}

TEST_F(ExposureTest, LeavesAtOnceWhereNoRankWrites) {
  BeginLeaving();
  SetWriting(0, 1);  // its own steps have ended by now
  EXPECT_TRUE(HasLeft());
  EXPECT_TRUE(owner_.taken.empty());
}

TEST_F(ExposureTest, LeavesAtOnceWhenNotExposed) {
  SetWriting(1, 1);
  exposure_.BeginLeaving();
  EXPECT_TRUE(HasLeft());
}

TEST_F(ExposureTest, WaitsForTheStepsOfOthers) {
  BeginLeaving();
  SetWriting(1, 1);
  SetWriting(2, 2);
  EXPECT_FALSE(HasLeft());
  SetWriting(1, 0);
  SetWriting(2, 1);
  EXPECT_FALSE(HasLeft());
  SetWriting(2, 0);
  EXPECT_TRUE(HasLeft());
  EXPECT_TRUE(owner_.taken.empty());
}

TEST_F(ExposureTest, DeadMembersDoNotWrite) {
  BeginLeaving();
  SetWriting(1, 1);
  EXPECT_FALSE(HasLeft());
  ensemble_.process(1).Die();
  EXPECT_TRUE(HasLeft());
}

TEST_F(ExposureTest, TakesItsOutputsBackFromAMemberThatKeepsWriting) {
  BeginLeaving();
  SetWriting(1, 1);
  EXPECT_FALSE(HasLeft());
  EXPECT_TRUE(owner_.taken.empty()) << "a step gets time to end";
  EXPECT_GE(Leave(), std::chrono::milliseconds(400));
  ASSERT_EQ(owner_.taken.size(), 1u);
  EXPECT_EQ(owner_.taken[0], std::pair(static_cast<const void*>(output_), size_t{kBytes}));
}

TEST_F(ExposureTest, ReportsOutputsThatItCannotTakeBack) {
  owner_.take_back = MakeStatus(Code::kSystemError, "no memory");
  BeginLeaving();
  SetWriting(2, 1);
  testing::internal::CaptureStderr();
  Leave();
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_NE(text.find("rank 0 has given up ncclAllReduce count 16 float sum while rank 2 (process 1002) was in the "
                      "middle of it"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("no memory"), std::string::npos) << text;
}

}  // namespace
}  // namespace axccl::exec
