// What a channel keeps of the calls it has prepared, and what is left where that fails.
#include <gtest/gtest.h>

#include "src/plan/text.h"
#include "src/verify/verify.h"
#include "tests/exec/traffic.h"

namespace axccl::exec {
namespace {

using plan::Kind;

class PrepareTest : public testing::TestWithParam<Layout> {};

// A program that calls with ever other counts: the channel forgets, between operations, what it has prepared.
TEST_P(PrepareTest, WhatIsKeptIsBounded) {
  EnsembleOptions options;
  options.layout = GetParam();
  Ensemble ensemble(options);
  Channel* channel = ensemble.channel(0);
  const tune::Access access = channel->remote() != nullptr ? tune::Access::kNone : tune::Access::kMapped;
  Call call;
  call.kind = Kind::kAllGather;
  size_t most = 0;
  for (call.count = 1; call.count < 2 * Channel::kMaxPrepared; ++call.count) {
    const Result<const Prepared*> prepared = channel->Prepare(call, access);
    ASSERT_TRUE(prepared.ok()) << call.count << ": " << prepared.status().message();
    most = std::max(most, channel->plans.load());
  }
  EXPECT_LE(most, Channel::kMaxPrepared);
  EXPECT_GT(most, Channel::kMaxPrepared / 2);
}

// What takes the place of a call that has begun leaves that where it is.
TEST_P(PrepareTest, WhatRunsIsNotForgotten) {
  EnsembleOptions options;
  options.layout = GetParam();
  Ensemble ensemble(options);
  Channel* channel = ensemble.channel(0);
  Call call;
  call.kind = Kind::kAllGather;
  for (call.count = 1; channel->plans.load() < Channel::kMaxPrepared - 1; ++call.count)
    ASSERT_TRUE(channel->Prepare(call, tune::Access::kMapped).ok());
  const Result<const Prepared*> runs = channel->Prepare(call, tune::Access::kMapped);
  ASSERT_TRUE(runs.ok());
  const std::shared_ptr<const Program> program = runs.value()->program;
  for (const tune::Access access : {tune::Access::kCall, tune::Access::kNone})
    ASSERT_TRUE(channel->PrepareBeside(call, access).ok());
  EXPECT_EQ(runs.value()->program, program);
  EXPECT_EQ(channel->Prepare(call, tune::Access::kMapped).value(), runs.value());
}

INSTANTIATE_TEST_SUITE_P(All, PrepareTest, testing::Values(Layout::kThreads, Layout::kCall, Layout::kRemote),
                         [](const auto& info) { return std::string(LayoutName(info.param)); });

// Two ranks meet in the scratch of a third, which messages cannot do.
constexpr const char* kNotByMessage = R"(axccl-plan 1
algorithm hand
kind broadcast
ranks 3
root 0
parts 1
lanes 1
slots 1
endpoints 1
direct no
inline -
rank 0 lane 0
#0 copy slot[2].0 <- in[0].0.0
#1 copy out[0].0.0 <- in[0].0.0
#2 signal all e0
#3 wait 1 e0 v1
#4 wait 2 e0 v1
rank 1 lane 0
#5 wait 0 e0 v1
#6 copy out[1].0.0 <- slot[2].0
#7 signal all e0
#8 wait 2 e0 v1
rank 2 lane 0
#9 wait 0 e0 v1
#10 copy out[2].0.0 <- slot[2].0
#11 signal all e0
#12 wait 1 e0 v1
)";

// A barrier whose messages could not be planned is not taken for one that is ready: the next that is asked for is
// whole.
TEST(PrepareBarrierTest, IsWholeOrNotThere) {
  EnsembleOptions options;
  options.ranks = 3;
  options.layout = Layout::kRemote;
  options.machine_of = {0, 1, 2};
  Ensemble ensemble(options);
  Result<plan::Schedule> schedule = plan::Parse(kNotByMessage);
  ASSERT_TRUE(schedule.ok()) << schedule.status().message();
  auto plan = verify::MakePlan(std::move(*schedule));
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  ensemble.host(0)->GiveNext(Program::Make(*plan, 0).value());
  const auto failed = ensemble.channel(0)->PrepareBarrier();
  ASSERT_FALSE(failed.ok());
  EXPECT_NE(failed.status().message().find("needs memory that its ranks share"), std::string_view::npos);
  const auto barrier = ensemble.channel(0)->PrepareBarrier();
  ASSERT_TRUE(barrier.ok()) << barrier.status().message();
  EXPECT_EQ(barrier.value()->program->plan->schedule.contract.kind, Kind::kBarrier);
  EXPECT_NE(barrier.value()->outbound, nullptr);
}

}  // namespace
}  // namespace axccl::exec
