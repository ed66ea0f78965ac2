// What a channel keeps of the calls that it has prepared, what distinguishes them, and what is left if preparing fails.
#include "src/exec/prepared/plan_cache.h"

#include <gtest/gtest.h>

#include <functional>
#include <set>
#include <vector>

#include "src/exec/host/binding.h"
#include "src/plan/text.h"
#include "src/verify/verify.h"
#include "tests/exec/traffic.h"

namespace axccl::exec {
namespace {

using plan::Kind;

class PlanCacheTest : public testing::TestWithParam<Layout> {};

// A program whose calls have ever new counts: between operations, the channel forgets what it has prepared.
TEST_P(PlanCacheTest, WhatIsKeptIsBounded) {
  EnsembleOptions options;
  options.layout = GetParam();
  Ensemble ensemble(options);
  HostChannel* channel = ensemble.host(0);
  const tune::Access access = ensemble.channel(0)->members().heap_access();
  Call call;
  call.kind = Kind::kAllGather;
  size_t most = 0;
  for (call.count = 1; call.count < 2 * PlanCache::kMaxPrepared; ++call.count) {
    const Result<const Prepared*> prepared = channel->plans().Prepare(call, access);
    ASSERT_TRUE(prepared.ok()) << call.count << ": " << prepared.status().message();
    most = std::max(most, channel->plans().size());
  }
  EXPECT_LE(most, PlanCache::kMaxPrepared);
  EXPECT_GT(most, PlanCache::kMaxPrepared / 2);
}

// A process may have all ranks of a group, whose programs are the longer the more of them there are.
TEST(PlanCache, TheBytesOfAProcessAreBounded) {
  EnsembleOptions options;
  options.ranks = 64;
  Ensemble ensemble(options);
  PlanCache& plans = ensemble.host(0)->plans();
  Call call;
  call.kind = Kind::kAllGather;
  size_t most = 0, evictions = 0;
  for (call.count = 1; evictions < 3; ++call.count) {
    const size_t before = plans.size();
    ASSERT_TRUE(plans.Prepare(call, tune::Access::kNone).ok());
    evictions += plans.size() <= before;
    most = std::max(most, plans.bytes());
    ASSERT_LT(call.count, PlanCache::kMaxPrepared);
  }
  EXPECT_LE(most, PlanCache::kMaxBytesOfProcess / 64 + (64u << 10));
  EXPECT_GT(most, PlanCache::kMaxBytesOfProcess / 64 / 2);
}

// A new call never evicts a call that has begun.
TEST_P(PlanCacheTest, WhatRunsIsNotForgotten) {
  EnsembleOptions options;
  options.layout = GetParam();
  Ensemble ensemble(options);
  HostChannel* channel = ensemble.host(0);
  Call call;
  call.kind = Kind::kAllGather;
  for (call.count = 1; channel->plans().size() < PlanCache::kMaxPrepared - 1; ++call.count)
    ASSERT_TRUE(channel->plans().Prepare(call, tune::Access::kMapped).ok());
  const Result<const Prepared*> runs = channel->plans().Prepare(call, tune::Access::kMapped);
  ASSERT_TRUE(runs.ok());
  const std::shared_ptr<const Program> program = runs.value()->program;
  for (const tune::Access access : {tune::Access::kCall, tune::Access::kNone})
    ASSERT_TRUE(channel->plans().PrepareBeside(call, access).ok());
  EXPECT_EQ(runs.value()->program, program);
  EXPECT_EQ(channel->plans().Prepare(call, tune::Access::kMapped).value(), runs.value());
}

INSTANTIATE_TEST_SUITE_P(All, PlanCacheTest, testing::Values(Layout::kThreads, Layout::kCall, Layout::kRemote),
                         [](const auto& info) { return std::string(LayoutName(info.param)); });

// Calls that differ in what ranks agree on are prepared separately; what each rank has for itself makes no difference.
TEST(PlanCache, PreparesEqualCallsOnce) {
  Ensemble ensemble(EnsembleOptions{});
  PlanCache& plans = ensemble.host(0)->plans();
  const std::function<void(Call*)> others[] = {
      [](Call*) {},
      [](Call* call) { call->count = 101; },
      [](Call* call) { call->type = DataType::kInt64; },
      [](Call* call) { call->combine = Combine::kMax; },
      [](Call* call) { call->scaling = Scaling::kPreMultiply; },
      [](Call* call) { call->group_order = true; },
      [](Call* call) { call->kind = Kind::kReduce; },
      [](Call* call) { call->kind = Kind::kReduce, call->root = 1; },
  };
  std::set<const Prepared*> prepared;
  for (const auto& change : others) {
    Call call;
    call.kind = Kind::kAllReduce;
    call.type = DataType::kFloat64;
    call.count = 100;
    change(&call);
    for (const tune::Access access : {tune::Access::kMapped, tune::Access::kNone}) {
      const Result<const Prepared*> first = plans.Prepare(call, access);
      ASSERT_TRUE(first.ok()) << first.status().message();
      EXPECT_TRUE(prepared.insert(first.value()).second) << DescribeCall(call);
      EXPECT_EQ(plans.size(), prepared.size());
      Call again = call;
      int buffer = 0;
      again.input = again.output = &buffer;
      again.scalar_bytes = 7;
      again.second_name = true;
      EXPECT_EQ(plans.Prepare(again, access).value(), first.value()) << DescribeCall(call);
      EXPECT_EQ(plans.PrepareBeside(again, access).value(), first.value()) << DescribeCall(call);
    }
  }
  EXPECT_EQ(plans.size(), 2 * std::size(others));
}

// In one of the two calls, the blocks lie side by side in the outputs, in short runs.
// By all that the ranks touch, each byte once: a buffer within another one costs no cache of its own.
TEST(PlanCache, OutputsThatCannotStayInTheCacheAreWrittenAroundIt) {
  struct Case {
    Kind kind;
    uint64_t bytes_a_block;
    bool apart, in_place;
  };
  // Two ranks that have 64 KiB of cache each.
  const Case cases[] = {
      {Kind::kAllReduce, 32u << 10, false, false},    {Kind::kAllReduce, 33u << 10, true, false},
      {Kind::kAllReduce, 65u << 10, true, true},      {Kind::kAllGather, 21u << 10, false, false},
      {Kind::kAllGather, 22u << 10, true, false},     {Kind::kAllGather, 33u << 10, true, true},
      {Kind::kReduceScatter, 22u << 10, true, false}, {Kind::kBroadcast, 42u << 10, false, false},
      {Kind::kBroadcast, 44u << 10, true, false},     {Kind::kReduce, 44u << 10, true, false},
  };
  EnsembleOptions options;
  options.layout = Layout::kThreads;
  Ensemble ensemble(options);
  ensemble.owner(0)->set_cache_bytes(64u << 10);
  for (const Case& c : cases) {
    SCOPED_TRACE(plan::KindName(c.kind));
    Call call;
    call.kind = c.kind;
    call.count = c.bytes_a_block / ElementSize(call.type);
    const Result<const Prepared*> prepared = ensemble.host(0)->plans().Prepare(call, tune::Access::kMapped);
    ASSERT_TRUE(prepared.ok());
    EXPECT_EQ(prepared.value()->around_cache, c.apart);
    EXPECT_EQ(prepared.value()->around_cache_in_place, c.in_place);
  }
}

TEST(PlanCache, ACallIsInPlaceWhereItsBlocksCoincide) {
  EnsembleOptions options;
  options.layout = Layout::kThreads;
  Ensemble ensemble(options);
  std::vector<float> memory(64);
  const auto in_place = [&](Kind kind, int rank, size_t input, size_t output) {
    Call call;
    call.kind = kind;
    call.type = DataType::kFloat32;
    call.count = 8;
    call.input = &memory[input];
    call.output = &memory[output];
    return Binding(ensemble.channel(rank), call).InPlace();
  };
  EXPECT_TRUE(in_place(Kind::kAllReduce, 1, 0, 0));
  EXPECT_FALSE(in_place(Kind::kAllReduce, 1, 0, 8));
  EXPECT_TRUE(in_place(Kind::kAllGather, 1, 24, 16));
  EXPECT_FALSE(in_place(Kind::kAllGather, 1, 16, 16));
  EXPECT_TRUE(in_place(Kind::kReduceScatter, 1, 16, 24));
  EXPECT_FALSE(in_place(Kind::kReduceScatter, 1, 16, 32));
  EXPECT_FALSE(in_place(Kind::kAllToAll, 1, 16, 16));
}

TEST(PlanCache, SeparatesRunsWherePlansAreChosenByThem) {
  for (const bool by_runs : {true, false}) {
    EnsembleOptions options;
    options.plans.by_runs = by_runs;
    Ensemble ensemble(options);
    PlanCache& plans = ensemble.host(0)->plans();
    for (const int concat : {0, 1}) {
      ViewOperand operand;
      operand.form.shape = {2, {4, 25}};
      operand.form.concat = concat;
      operand.type = DataType::kFloat32;
      operand.block_bytes = 400;
      Call call;
      call.kind = Kind::kAllGather;
      call.views = std::make_shared<const ViewList>(ViewList{{operand}});
      call.count = call.views->BlockCount();
      call.type = call.views->CommonType();
      ASSERT_EQ(call.views->ShortRuns(), concat == 1);
      ASSERT_TRUE(plans.Prepare(call, tune::Access::kMapped).ok());
    }
    EXPECT_EQ(plans.size(), by_runs ? 2u : 1u);
  }
}

// Redirects that many calls of one kind, and no other calls.
TEST(PlanCache, RedirectsSomeCalls) {
  Ensemble ensemble(EnsembleOptions{});
  PlanCache& plans = ensemble.host(0)->plans();
  Call call;
  call.kind = Kind::kAllGather;
  call.count = 10;
  const Prepared* const asked = plans.Prepare(call, tune::Access::kMapped).value();
  const Prepared* const other = plans.PrepareBeside(call, tune::Access::kNone).value();
  ASSERT_NE(asked, other);
  EXPECT_EQ(plans.Redirected(asked), asked);
  plans.Redirect(*asked, *other, 2);
  EXPECT_EQ(plans.Redirected(other), other);
  EXPECT_EQ(plans.Redirected(asked), other);
  EXPECT_EQ(plans.Prepare(call, tune::Access::kMapped).value(), asked) << "what is prepared stays what it is";
  EXPECT_EQ(plans.Redirected(asked), other);
  EXPECT_EQ(plans.Redirected(asked), asked);
}

// Buffers are where the executor locates them; without an executor that asks, none are located.
TEST(PlanCache, LocatesOperandsWhereTheExecutorKeepsThem) {
  EnsembleOptions options;
  options.algorithms = Only(Kind::kAllGather, "direct");
  Ensemble ensemble(options);
  const Members& members = ensemble.channel(0)->members();
  std::byte* buffers[2][2] = {};
  PlanCache plans(&members, PlanOptions{}, [&](const plan::Operand& operand) {
    return &buffers[operand.rank][operand.buffer == plan::Buffer::kInput ? 0 : 1];
  });
  Call call;
  call.kind = Kind::kAllGather;
  call.count = 1000;
  const Prepared* const prepared = plans.Prepare(call, tune::Access::kMapped).value();
  ASSERT_EQ(prepared->places.size(), prepared->program->operands.size());
  ASSERT_FALSE(prepared->places.empty());
  for (size_t i = 0; i < prepared->places.size(); ++i) {
    const plan::Operand& operand = prepared->program->operands[i];
    if (operand.buffer == plan::Buffer::kScratch) continue;
    EXPECT_EQ(prepared->places[i].base, &buffers[operand.rank][operand.buffer == plan::Buffer::kInput ? 0 : 1]);
    EXPECT_EQ(prepared->places[i].offset[0], 1000u * operand.block);
  }
  PlanCache unlocated(&members, PlanOptions{}, nullptr);
  EXPECT_TRUE(unlocated.Prepare(call, tune::Access::kMapped).value()->places.empty());
}

const Prepared* PreparePlain(Ensemble* ensemble, Kind kind, uint64_t count) {
  Call call;
  call.kind = kind;
  call.count = count;
  call.type = DataType::kInt32;
  const Prepared* const prepared = ensemble->host(0)->plans().Prepare(call, tune::Access::kNone).value();
  EXPECT_TRUE(prepared->plain);
  EXPECT_EQ(prepared->plain_program.steps.size(), prepared->program->lanes[0].size());
  return prepared;
}

TEST(PlanCache, PlainStepsHaveTheLinesAndReadersOfTheirRanks) {
  EnsembleOptions options;
  options.ranks = 3;
  options.algorithms = Only(Kind::kAllGather, "oneshot");
  Ensemble ensemble(options);
  const Members& members = ensemble.channel(0)->members();
  const Prepared* const prepared = PreparePlain(&ensemble, Kind::kAllGather, 5);
  const auto line = [](const Member& of, const Step& step, uint32_t lane, uint64_t turn) {
    return of.layout.LineOf(of.block, lane, step.endpoint, turn);
  };
  int signals = 0, waits = 0;
  for (size_t i = 0; i < prepared->plain_program.steps.size(); ++i) {
    const PlainStep& plain = prepared->plain_program.steps[i];
    const Step& step = prepared->program->lanes[0][i];
    for (const uint64_t turn : {0u, 1u}) {
      if (step.kind == plan::OpKind::kSignal) {
        EXPECT_EQ(plain.line[turn], line(members.own(), step, 0, turn));
      } else if (step.kind == plan::OpKind::kWait) {
        EXPECT_EQ(plain.line[turn], line(members[step.peer], step, step.from_lane, turn));
      }
    }
    waits += step.kind == plan::OpKind::kWait;
    if (step.kind != plan::OpKind::kSignal) continue;
    ++signals;
    ASSERT_EQ(plain.num_readers, 2);
    EXPECT_EQ(plain.readers[0], &members[1]);
    EXPECT_EQ(plain.readers[1], &members[2]);
  }
  EXPECT_EQ(signals, 1);
  EXPECT_EQ(waits, 2);
}

// The fold of a plain call reads this rank's input where it is.
TEST(PlanCache, PlainFoldsNeedNoCopyOfTheInput) {
  EnsembleOptions options;
  options.algorithms = Only(Kind::kAllReduce, "oneshot");
  Ensemble ensemble(options);
  const Prepared* const prepared = PreparePlain(&ensemble, Kind::kAllReduce, 5);
  int folds = 0;
  for (const PlainStep& step : prepared->plain_program.steps) {
    if (step.kind == plan::OpKind::kCopy && step.num_dst != 0) {
      EXPECT_NE(step.operands[0].base, PlainOperand::kOutput) << "a copy to the output";
    } else if (step.kind == plan::OpKind::kReduce) {
      ++folds;
      ASSERT_EQ(step.num_src, 2);
      EXPECT_EQ(step.operands[0].base, PlainOperand::kOutput);
      EXPECT_EQ(step.operands[1].base, PlainOperand::kInput);
      EXPECT_EQ(step.operands[2].base, PlainOperand::kSlot);
    }
  }
  EXPECT_EQ(folds, 1);
}

TEST(PlanCache, PlainCallsOfNoBytesMoveNothing) {
  EnsembleOptions options;
  options.algorithms = Only(Kind::kAllReduce, "oneshot");
  Ensemble ensemble(options);
  for (const PlainStep& step : PreparePlain(&ensemble, Kind::kAllReduce, 0)->plain_program.steps) {
    if (step.kind == plan::OpKind::kCopy || step.kind == plan::OpKind::kReduce) {
      EXPECT_EQ(step.num_dst, 0);
    }
  }
}

// Two ranks meet in the scratch of a third, which is impossible with messages.
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

// A barrier whose messages could not be planned is not taken for a prepared one: the next request gets a whole one.
TEST(PrepareBarrierTest, IsWholeOrAbsent) {
  EnsembleOptions options;
  options.ranks = 3;
  options.layout = Layout::kRemote;
  options.machine_of = {0, 1, 2};
  Ensemble ensemble(options);
  Result<plan::Schedule> schedule = plan::Parse(kNotByMessage);
  ASSERT_TRUE(schedule.ok()) << schedule.status().message();
  auto plan = verify::MakePlan(std::move(*schedule));
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  ensemble.owner(0)->GiveNext(Program::Make(*plan, 0).value());
  const auto failed = ensemble.host(0)->plans().PrepareBarrier();
  ASSERT_FALSE(failed.ok());
  EXPECT_NE(failed.status().message().find("needs memory that its ranks share"), std::string_view::npos);
  const auto barrier = ensemble.host(0)->plans().PrepareBarrier();
  ASSERT_TRUE(barrier.ok()) << barrier.status().message();
  EXPECT_EQ(barrier.value()->program->plan->schedule.contract.kind, Kind::kBarrier);
  EXPECT_NE(barrier.value()->outbound, nullptr);
}

}  // namespace
}  // namespace axccl::exec
