// Operations of every kind and algorithm, over all the ways in which ranks can reach each other's memory, in random
// interleavings.
#include "src/exec/host/operation.h"

#include <gtest/gtest.h>

#include "src/algo/algo.h"
#include "tests/algo/cases.h"
#include "tests/exec/traffic.h"
#include "tests/harness/run_ranks.h"

namespace axccl::exec {
namespace {

using plan::Kind;

std::string SeedText() { return "AXCCL_TEST_SEED=" + std::to_string(harness::Seed()); }

// The number of lanes of the program that a rank would run for the call.
int LanesOf(Ensemble* ensemble, const Call& call, tune::Access access) {
  auto prepared = ensemble->host(0)->plans().Prepare(call, access);
  return prepared.ok() ? static_cast<int>(prepared.value()->program->lanes.size()) : 0;
}

// Scratch is so small that most calls take several turns.
EnsembleOptions OnlyWith(const plan::Contract& contract, std::string_view algorithm, int lanes, Layout layout) {
  EnsembleOptions options;
  options.ranks = contract.ranks;
  options.layout = layout;
  options.lanes = lanes;
  options.algorithms = Only(contract.kind, algorithm);
  options.scratch_bytes = contract.ranks < 4 ? 4096 : 8192;
  return options;
}

// Whether the requested algorithm ran. Ranks only read the plain memory of other processes, so there "push" is
// replaced.
testing::AssertionResult Ran(Ensemble* ensemble, const plan::Contract& contract, std::string_view algorithm,
                             Layout layout) {
  const std::string_view ran = ensemble->owner(0)->last_algorithm();
  const bool plain = layout == Layout::kCall || layout == Layout::kMixed;
  const bool stands_in = algorithm == "direct" && ran == algo::ReadingAlgorithm(contract.kind);
  if (ran == algorithm || (plain && (stands_in || algorithm == "push"))) return testing::AssertionSuccess();
  return testing::AssertionFailure() << ran << " ran";
}

// The seed draws one of the two numbers of lanes, and under a sanitizer, where each run is ten times slower, half of
// the plans in two levels.
std::vector<int> LanesToTry(harness::Random* random) {
  if (harness::AllTests()) return {1, 2};
  return {1 + static_cast<int>(random->Below(2))};
}
bool IsDrawn(harness::Random* random) { return harness::TimeScale() == 1 || random->OneIn(2); }

class OperationTest : public testing::TestWithParam<std::tuple<int, Layout>> {};

TEST_P(OperationTest, EveryAlgorithmMovesTheRightData) {
  const auto [ranks, layout] = GetParam();
  harness::Random random(
      harness::Scramble(harness::Seed(), static_cast<uint64_t>(ranks), static_cast<uint64_t>(layout)));
  SCOPED_TRACE(SeedText());
  algo::ForEachAlgorithm(
      ranks, [&, ranks = ranks, layout = layout](const plan::Contract& contract, std::string_view algorithm) {
        for (const int lanes : LanesToTry(&random)) {
          Ensemble ensemble(OnlyWith(contract, algorithm, lanes, layout));
          std::vector<std::unique_ptr<Exchange>> exchanges;
          for (const uint64_t count : {97, 4099, 0, 1, 0, 11, 4099, 4099, 1, 97}) {
            Shape shape{contract, contract.kind == Kind::kBarrier ? 0 : count, Combine::kSum, Scaling::kNone, 0, 0};
            Scatter(&shape, &random);
            exchanges.push_back(std::make_unique<Exchange>(&ensemble, shape, random.Next()));
          }
          const auto pace = static_cast<Pace>(random.Below(3));
          ASSERT_TRUE(Drive(&ensemble, exchanges, pace, &random))
              << algo::Describe(contract, algorithm, lanes) << " " << LayoutName(layout) << " pace "
              << static_cast<int>(pace);
          // These layouts exclude direct algorithms.
          if ((layout == Layout::kNothing || layout == Layout::kRemote) && algo::UsesBuffers(algorithm) && ranks > 1)
            continue;
          ASSERT_TRUE(Ran(&ensemble, contract, algorithm, layout)) << algo::Describe(contract, algorithm, lanes);
        }
      });
}

// The same on views; flat calls in between share channels, scratch and records with them.
TEST_P(OperationTest, EveryAlgorithmMovesTheRightViews) {
  const auto [ranks, layout] = GetParam();
  const auto way = static_cast<uint64_t>(layout) + 100;
  harness::Random random(harness::Scramble(harness::Seed(), static_cast<uint64_t>(ranks), way));
  SCOPED_TRACE(SeedText());
  const auto run = [&, layout = layout](const plan::Contract& contract, std::string_view algorithm) {
    if (contract.kind == Kind::kBarrier || contract.kind == Kind::kSendRecv) return;
    for (const int lanes : LanesToTry(&random)) {
      Ensemble ensemble(OnlyWith(contract, algorithm, lanes, layout));
      std::vector<std::unique_ptr<Exchange>> exchanges;
      for (int i = 0; i < 8; ++i) {
        Shape shape{contract, 97, Combine::kSum, Scaling::kNone, 0, 0};
        if (plan::Reduces(contract.kind)) shape.scaling = static_cast<Scaling>(random.Below(3));
        Scatter(&shape, &random);
        if (i % 4 != 3) AnyForm(&shape, &random);
        exchanges.push_back(std::make_unique<Exchange>(&ensemble, shape, random.Next()));
      }
      ASSERT_TRUE(Drive(&ensemble, exchanges, static_cast<Pace>(random.Below(3)), &random))
          << algo::Describe(contract, algorithm, lanes) << " " << LayoutName(layout);
      if (layout != Layout::kThreads && layout != Layout::kHeap) continue;
      ASSERT_TRUE(Ran(&ensemble, contract, algorithm, layout)) << algo::Describe(contract, algorithm, lanes);
    }
  };
  algo::ForEachAlgorithm(ranks, run);
}

INSTANTIATE_TEST_SUITE_P(All, OperationTest,
                         testing::Combine(testing::Values(1, 2, 3, 4, 5, 6), testing::ValuesIn(kLayouts)),
                         [](const auto& info) {
                           return std::string(LayoutName(std::get<1>(info.param))) +
                                  std::to_string(std::get<0>(info.param));
                         });

TEST(OperationCoverage, TwoLanesAndSeveralTurnsAreReached) {
  EnsembleOptions options;
  options.lanes = 2;
  options.algorithms = "all_reduce:ring";
  Ensemble ensemble(options);
  Call call;
  call.kind = Kind::kAllReduce;
  call.type = DataType::kInt32;
  call.count = 4099;
  EXPECT_EQ(LanesOf(&ensemble, call, tune::Access::kMapped), 2);
  EXPECT_GT(ensemble.host(0)->plans().Prepare(call, tune::Access::kMapped).value()->turns, 2u);
}

// Messages arrive late, so that no rank ends anything for thousands of rounds.
TEST(OperationCoverage, ACallOfManyTurnsIsNoDeadlock) {
  harness::Random random(harness::Seed());
  const plan::Contract contract{Kind::kAllReduce, 3, 0};
  Ensemble ensemble(OnlyWith(contract, "tree", 2, Layout::kRemote));
  std::vector<std::unique_ptr<Exchange>> exchanges;
  const Shape shape{contract, 1u << 18, Combine::kSum, Scaling::kNone, 0, 0};
  exchanges.push_back(std::make_unique<Exchange>(&ensemble, shape, random.Next()));
  ASSERT_TRUE(Drive(&ensemble, exchanges, Pace::kUniform, &random));
}

// The exchange that opens a direct plan reveals private buffers. The plan that is chosen then may be direct again, with
// an opening of its own, which must not lead to a third plan.
TEST(OperationAccess, AnotherDirectPlanMayTakeOver) {
  harness::Random random(harness::Seed());
  cost::Machine machine;
  machine.switch_seconds = 1e-3;        // too slow for the first choice
  machine.call_bytes_per_second = 1e4;  // good enough for the second
  EnsembleOptions options;
  options.layout = Layout::kCall;
  options.lanes = 2;
  options.algorithms = "all_gather:direct";
  options.machine = machine;
  Ensemble ensemble(options);
  std::vector<std::unique_ptr<Exchange>> exchanges;
  for (uint64_t i = 0; i < 4; ++i) {
    const Shape shape{{Kind::kAllGather, 2, 0}, 1000, Combine::kSum, Scaling::kNone, 0, 0};
    exchanges.push_back(std::make_unique<Exchange>(&ensemble, shape, i));
  }
  ASSERT_EQ(LanesOf(&ensemble, exchanges[0]->CallOf(0), tune::Access::kMapped), 1);
  ASSERT_EQ(LanesOf(&ensemble, exchanges[0]->CallOf(0), tune::Access::kCall), 2);
  EXPECT_TRUE(Drive(&ensemble, exchanges, Pace::kUniform, &random));
}

// Each stretch of each message of a call with these options is needed: without it, some rank has a wrong result.
void LoseEachStretch(const plan::Contract& contract, const EnsembleOptions& options, harness::Random* random) {
  for (uint64_t nth = 1;; ++nth) {
    Ensemble ensemble(options);
    std::vector<std::unique_ptr<Exchange>> exchanges;
    exchanges.push_back(std::make_unique<Exchange>(&ensemble, Shape{contract, 97, Combine::kSum, Scaling::kNone, 0, 0},
                                                   random->Next()));
    ensemble.post().LoseStretchOf(nth);
    const testing::AssertionResult result = Drive(&ensemble, exchanges, Pace::kUniform, random);
    if (!ensemble.post().lost()) break;
    ASSERT_FALSE(result) << plan::KindName(contract.kind) << " " << options.algorithms << ": message " << nth;
  }
}

TEST(OperationRemote, EveryStretchIsNeeded) {
  harness::Random random(harness::Seed());
  SCOPED_TRACE(SeedText());
  algo::ForEachAlgorithm(4, [&](const plan::Contract& contract, std::string_view algorithm) {
    if (contract.kind == Kind::kBarrier || algo::UsesBuffers(algorithm)) return;
    LoseEachStretch(contract, OnlyWith(contract, algorithm, 1, Layout::kRemote), &random);
  });
  for (const std::vector<int>& machine_of : algo::SomeMachines()) {
    if (machine_of.size() > 5) continue;
    algo::ForEachHierarchical(static_cast<int>(machine_of.size()),
                              [&](const plan::Contract& contract, std::string_view algorithm) {
                                if (contract.kind == Kind::kBarrier || contract.root % 2 != 0 || !IsDrawn(&random))
                                  return;
                                EnsembleOptions options = OnlyWith(contract, algorithm, 1, Layout::kRemote);
                                options.machine_of = machine_of;
                                LoseEachStretch(contract, options, &random);
                              });
  }
}

// Calls of a kind by plans in two levels, on ranks that are spread over machines in any way.
TEST(OperationRemote, HierarchicalPlansMoveTheRightData) {
  harness::Random random(harness::Scramble(harness::Seed(), 2));
  SCOPED_TRACE(SeedText());
  for (const std::vector<int>& machine_of : algo::SomeMachines()) {
    algo::ForEachHierarchical(
        static_cast<int>(machine_of.size()), [&](const plan::Contract& contract, std::string_view algorithm) {
          if ((machine_of.size() > 5 && contract.root % 3 != 0) || !IsDrawn(&random)) return;
          const int lanes = 1 + static_cast<int>(random.Below(2));
          EnsembleOptions options = OnlyWith(contract, algorithm, lanes, Layout::kRemote);
          options.machine_of = machine_of;
          Ensemble ensemble(options);
          std::vector<std::unique_ptr<Exchange>> exchanges;
          for (const uint64_t count : {97, 1, 0, 0, 1501, 11, 97, 1}) {
            Shape shape{contract, contract.kind == Kind::kBarrier ? 0 : count, Combine::kSum, Scaling::kNone, 0, 0};
            if (plan::Reduces(contract.kind)) shape.scaling = static_cast<Scaling>(random.Below(3));
            Scatter(&shape, &random);
            if (contract.kind != Kind::kBarrier && random.OneIn(3)) AnyForm(&shape, &random);
            exchanges.push_back(std::make_unique<Exchange>(&ensemble, shape, random.Next()));
          }
          const std::string what = algo::Describe(contract, algorithm, lanes) + " " +
                                   algo::Describe(ensemble.channel(0)->members().placement());
          ASSERT_TRUE(Drive(&ensemble, exchanges, static_cast<Pace>(random.Below(3)), &random)) << what;
          ASSERT_EQ(ensemble.owner(0)->last_algorithm(), algorithm) << what;
        });
  }
}

// The bytes that are sent between machines, in total.
double BytesSent(const plan::Contract& contract, std::string_view algorithm, const std::vector<int>& machine_of,
                 uint64_t count, harness::Random* random) {
  EnsembleOptions options = OnlyWith(contract, algorithm, 1, Layout::kRemote);
  options.machine_of = machine_of;
  options.scratch_bytes = 1u << 20;
  Ensemble ensemble(options);
  std::vector<std::unique_ptr<Exchange>> exchanges;
  exchanges.push_back(std::make_unique<Exchange>(&ensemble, Shape{contract, count, Combine::kSum, Scaling::kNone, 0, 0},
                                                 random->Next()));
  EXPECT_TRUE(Drive(&ensemble, exchanges, Pace::kUniform, random));
  EXPECT_EQ(ensemble.owner(0)->last_algorithm(), algorithm);
  return static_cast<double>(ensemble.post().bytes());
}

// An all-reduce sends twice the share of the other machines each way, and little more. An all-gather and a
// reduce-scatter send every block to every other machine, or every fold for it.
TEST(OperationRemote, HierarchicalPlansSendNoMoreThanTheyMust) {
  harness::Random random(harness::Scramble(harness::Seed(), 3));
  const uint64_t count = 25000;
  for (const std::vector<int>& machine_of :
       {std::vector<int>{0, 0, 1, 1}, {0, 0, 0, 0, 1, 1, 1, 1}, {0, 0, 1, 1, 2, 2}, {0, 0, 1, 1, 2, 2, 3, 3}}) {
    const int ranks = static_cast<int>(machine_of.size());
    const double machines = machine_of.back() + 1, block = count * sizeof(int32_t);
    for (const char* algorithm :
         {"hierarchical", "hierarchical_ring", "hierarchical_rhd", "hierarchical_bruck", "hierarchical_leader"}) {
      for (Kind kind : {Kind::kAllReduce, Kind::kAllGather, Kind::kReduceScatter}) {
        const auto& names = algo::HierarchicalAlgorithms(kind);
        if (std::find(names.begin(), names.end(), algorithm) == names.end()) continue;
        const bool gathers = kind == Kind::kAllReduce && (algorithm == std::string_view("hierarchical_bruck") ||
                                                          algorithm == std::string_view("hierarchical_leader"));
        const double least = gathers                    ? machines * (machines - 1) * block
                             : kind == Kind::kAllReduce ? 2 * (machines - 1) * block
                                                        : ranks * (machines - 1) * block;
        const double sent = BytesSent(plan::Contract{kind, ranks, 0}, algorithm, machine_of, count, &random);
        EXPECT_GE(sent, least) << algorithm << " " << plan::KindName(kind) << " " << machines;
        EXPECT_LE(sent, least * 1.02) << algorithm << " " << plan::KindName(kind) << " " << machines;
      }
    }
  }
}

TEST(OperationRemote, EveryRankKnowsWhatToSend) {
  for (const std::vector<int>& machine_of : algo::SomeMachines()) {
    const plan::Placement placement = plan::Placement::Of(machine_of);
    algo::ForEachHierarchical(placement.ranks(), [&](const plan::Contract& contract, std::string_view algorithm) {
      const plan::Schedule schedule = algo::Generate(contract, algorithm, 2, placement).value();
      for (int rank = 0; rank < placement.ranks(); ++rank) {
        const auto outbound = Outbound::Make(schedule, rank);
        EXPECT_TRUE(outbound.ok()) << outbound.status().message() << ": " << algo::Describe(contract, algorithm, 2)
                                   << " " << algo::Describe(placement);
      }
    });
  }
}

}  // namespace
}  // namespace axccl::exec
