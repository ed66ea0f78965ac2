// Every generated schedule is proved by the verifier; arguments, determinism, lanes and completeness.
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <utility>

#include "src/algo/algo.h"
#include "src/verify/verify.h"
#include "tests/algo/cases.h"

namespace axccl::algo {
namespace {

using plan::Contract;
using plan::Kind;
using plan::OpKind;
using plan::Schedule;

class EveryAlgorithm : public ::testing::TestWithParam<int> {};

TEST_P(EveryAlgorithm, IsVerifiedAndAsCompleteAsPredicted) {
  const int ranks = GetParam();
  ForEachAlgorithm(ranks, [&](const Contract& contract, std::string_view algorithm) {
    for (int lanes : {1, 2}) {
      SCOPED_TRACE(Describe(contract, algorithm, lanes));
      Result<Schedule> schedule = Generate(contract, algorithm, lanes);
      ASSERT_TRUE(schedule.ok()) << schedule.status().message();
      EXPECT_EQ(schedule->algorithm, algorithm);
      EXPECT_EQ(schedule->contract, contract);
      EXPECT_EQ(schedule->lanes, lanes);
      verify::Facts facts;
      const Status status = verify::Verify(*schedule, &facts);
      EXPECT_TRUE(status.ok()) << status.message();
      EXPECT_EQ(facts.complete, Complete(*schedule));
      // All sources are in one operation, in order of ranks. (Two ranks' inputs have two orders; relays may happen to
      // use the right one.)
      static const std::set<std::string_view> kAtOnce = {"direct", "pull", "push", "oneshot", "twoshot"};
      const bool at_once = kAtOnce.count(algorithm) != 0;
      const bool ordered = at_once || ranks == 1 || !plan::Reduces(contract.kind);
      if (ordered || ranks > 2) {
        EXPECT_EQ(facts.group_order, ordered);
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, EveryAlgorithm, ::testing::Values(1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 17, 32, 64),
                         ::testing::PrintToStringParamName());

TEST(Generate, ReturnsTheSameScheduleEveryTime) {
  for (int ranks : {2, 5, 8}) {
    ForEachAlgorithm(ranks, [](const Contract& contract, std::string_view algorithm) {
      SCOPED_TRACE(Describe(contract, algorithm, 2));
      EXPECT_EQ(Generate(contract, algorithm, 2).value(), Generate(contract, algorithm, 2).value());
    });
  }
}

TEST(Generate, GivesEveryOperationAnIdOfItsOwn) {
  ForEachAlgorithm(7, [](const Contract& contract, std::string_view algorithm) {
    SCOPED_TRACE(Describe(contract, algorithm, 2));
    std::set<uint32_t> ids;
    size_t ops = 0;
    const Schedule schedule = Generate(contract, algorithm, 2).value();
    for (const auto& lanes : schedule.program) {
      for (const auto& lane : lanes) {
        for (const auto& op : lane.ops) ids.insert(op.id), ++ops;
      }
    }
    EXPECT_EQ(ids.size(), ops);
  });
}

// AxCCL's fast path relies on this: operations follow each other without a barrier in between.
TEST(Generate, MakesDirectAndStagedSharedMemorySchedulesComplete) {
  for (int ranks : {2, 3, 8}) {
    ForEachAlgorithm(ranks, [](const Contract& contract, std::string_view algorithm) {
      static const std::set<std::string_view> kOfThese = {"direct", "pull", "push", "oneshot", "twoshot"};
      if (!kOfThese.contains(algorithm)) return;
      SCOPED_TRACE(Describe(contract, algorithm, 1));
      EXPECT_TRUE(Complete(Generate(contract, algorithm, 1).value()));
    });
  }
}

TEST(Generate, OffersEveryKindAnAlgorithmThatNeedsScratchOnly) {
  for (int k = 0; k < plan::kNumKinds; ++k) {
    const Contract contract{static_cast<Kind>(k), 2, 0};
    bool staged = false;
    for (std::string_view algorithm : Algorithms(contract.kind)) staged |= !Generate(contract, algorithm, 1)->direct;
    EXPECT_TRUE(staged) << plan::KindName(contract.kind);
  }
}

TEST(Generate, PublishesASingleSlotWithItsSignal) {
  for (Kind kind : {Kind::kAllReduce, Kind::kBroadcast, Kind::kReduce, Kind::kAllGather, Kind::kGather}) {
    const Schedule schedule = Generate(Contract{kind, 4, 0}, "oneshot", 1).value();
    EXPECT_EQ(schedule.slots, 1);
    EXPECT_EQ(schedule.inline_endpoint, std::vector<int16_t>{0}) << plan::KindName(kind);
  }
}

TEST(Generate, RanksSignalBeforeTheyCopyForThemselves) {
  const std::pair<Kind, std::string_view> cases[] = {{Kind::kAllReduce, "oneshot"},
                                                     {Kind::kAllGather, "oneshot"},
                                                     {Kind::kBroadcast, "oneshot"},
                                                     {Kind::kAllGather, "bruck"},
                                                     {Kind::kAllGather, "ring"}};
  for (const auto& [kind, algorithm] : cases) {
    const Schedule schedule = Generate(Contract{kind, 3, 0}, algorithm, 1).value();
    for (const auto& lanes : schedule.program) {
      for (const plan::Op& op : lanes[0].ops) {
        if (op.kind == OpKind::kSignal) break;
        for (const plan::Operand& dst : op.dst) EXPECT_EQ(dst.buffer, plan::Buffer::kScratch) << algorithm;
      }
    }
  }
}

TEST(Generate, OneRankNeedsNeitherSignalsNorScratch) {
  ForEachAlgorithm(1, [](const Contract& contract, std::string_view algorithm) {
    SCOPED_TRACE(Describe(contract, algorithm, 1));
    const Schedule schedule = Generate(contract, algorithm, 1).value();
    EXPECT_EQ(schedule.slots, 0);
    EXPECT_EQ(schedule.endpoints, 0);
    EXPECT_FALSE(schedule.direct);
    EXPECT_EQ(schedule.program[0][0].ops.size(), contract.kind == Kind::kBarrier ? 0u : 1u);
  });
}

struct BadArguments {
  Contract contract;
  std::string_view algorithm;
  int lanes;
  const char* expected;  // part of the message
};

TEST(Generate, NamesTheFaultOfItsArguments) {
  const BadArguments kCases[] = {
      {{Kind::kAllReduce, 4, 0}, "warp", 1, "'warp'"},
      {{Kind::kAllReduce, 4, 0}, "warp", 1, "direct, twoshot, oneshot, rhd, ring, tree, pull, ring_pull"},
      {{Kind::kAllReduce, 4, 0}, "bruck", 1, "all_reduce"},
      {{Kind::kAllReduce, 0, 0}, "ring", 1, "0 ranks"},
      {{Kind::kAllReduce, -3, 0}, "ring", 1, "-3 ranks"},
      {{Kind::kAllReduce, 5000, 0}, "ring", 1, "5000 ranks"},
      {{Kind::kAllReduce, 4, 1}, "ring", 1, "root 1"},
      {{Kind::kBroadcast, 4, 4}, "ring", 1, "root 4"},
      {{Kind::kBroadcast, 4, -1}, "ring", 1, "root -1"},
      {{Kind::kSendRecv, 3, 0}, "oneshot", 1, "must be 2"},
      {{Kind::kAllReduce, 4, 0}, "ring", 0, "0 lanes"},
      {{Kind::kAllReduce, 4, 0}, "ring", 2000, "2000 lanes"},
  };
  for (const BadArguments& bad : kCases) {
    const Result<Schedule> result = Generate(bad.contract, bad.algorithm, bad.lanes);
    ASSERT_FALSE(result.ok()) << bad.expected;
    EXPECT_EQ(result.status().code(), Code::kInvalidArgument);
    EXPECT_NE(result.status().message().find(bad.expected), std::string_view::npos) << result.status().message();
  }
}

// The number of operations of one kind and rank that name `peer`.
int CountSync(const Schedule& s, int rank, OpKind kind, int peer) {
  int count = 0;
  for (const auto& op : s.program[rank][0].ops) count += op.kind == kind && op.peer == peer;
  return count;
}

TEST(Credits, AreGivenOnlyWhereNoOtherSignalReachesTheWriter) {
  // A chain: the middle rank must signal the root that its slot is free, and the last rank the middle one.
  const Schedule chain = Generate(Contract{Kind::kBroadcast, 3, 0}, "ring", 1).value();
  EXPECT_EQ(chain.program[1][0].ops.front().kind, OpKind::kSignal);
  EXPECT_EQ(chain.program[1][0].ops.front().peer, 0);
  EXPECT_EQ(chain.program[0][0].ops.back().kind, OpKind::kWait);
  EXPECT_EQ(chain.program[0][0].ops.back().peer, 1);
  EXPECT_EQ(CountSync(chain, 2, OpKind::kSignal, 1), 1);
  EXPECT_EQ(CountSync(chain, 2, OpKind::kSignal, 0), 0);
  // Around the ring, every rank's signals reach every other, so no credit is needed.
  const Schedule ring = Generate(Contract{Kind::kAllGather, 3, 0}, "ring", 1).value();
  EXPECT_EQ(ring.endpoints, 1);
  EXPECT_EQ(CountSync(ring, 0, OpKind::kSignal, 2), 0);
}

}  // namespace
}  // namespace axccl::algo
