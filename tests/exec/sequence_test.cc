// Different operations in sequence on the same channels, without a rank that waits for the others between them. They
// test the reuse of scratch and lines by operations of other plans, sizes and shapes, and the rule when a barrier must
// separate two plans.
#include <gtest/gtest.h>

#include <algorithm>

#include "src/algo/algo.h"
#include "tests/exec/traffic.h"

namespace axccl::exec {
namespace {

using plan::Kind;

class SequenceTest : public testing::TestWithParam<Layout> {};

TEST_P(SequenceTest, OperationsOfAllSortsFollowEachOther) {
  const uint64_t seed = harness::Scramble(harness::Seed(), static_cast<uint64_t>(GetParam()));
  for (uint64_t round = 0; round < 60; ++round) {
    SCOPED_TRACE("AXCCL_TEST_SEED=" + std::to_string(harness::Seed()) + " round " + std::to_string(round));
    harness::Random random(harness::Scramble(seed, round));
    EnsembleOptions options;
    options.ranks = static_cast<int>(2 + random.Below(5));
    options.layout = GetParam();
    options.lanes = static_cast<int>(1 + random.Below(2));
    options.algorithms = AnyAlgorithms(&random, options.layout == Layout::kRemote);
    options.scratch_bytes = random.OneIn(2) ? 8192 : 65536;
    Ensemble ensemble(options);
    std::vector<std::unique_ptr<Exchange>> exchanges;
    // Few shapes in many orders, so that prepared calls are used again.
    std::vector<Shape> shapes;
    for (int i = 0; i < 6; ++i) shapes.push_back(AnyShape(options.ranks, &random));
    for (int i = 0; i < 30; ++i)
      exchanges.push_back(std::make_unique<Exchange>(&ensemble, random.Pick(shapes), random.Next()));
    ASSERT_TRUE(Drive(&ensemble, exchanges, static_cast<Pace>(random.Below(3)), &random))
        << options.ranks << " ranks, " << options.lanes << " lanes, " << options.algorithms;
  }
}

// The same plan with larger and smaller data: slots of one call overlap those of the next.
TEST_P(SequenceTest, SizesOfOnePlanAlternate) {
  const uint64_t seed = harness::Scramble(harness::Seed(), 77, static_cast<uint64_t>(GetParam()));
  harness::Random random(seed);
  SCOPED_TRACE("AXCCL_TEST_SEED=" + std::to_string(harness::Seed()));
  for (int k = 0; k < plan::kNumKinds - 1; ++k) {
    const auto kind = static_cast<Kind>(k);
    for (const std::string_view algorithm : algo::Algorithms(kind)) {
      EnsembleOptions options;
      options.ranks = kind == Kind::kSendRecv ? 2 : static_cast<int>(2 + random.Below(5));
      options.layout = GetParam();
      options.algorithms = Only(kind, algorithm);
      options.scratch_bytes = 65536;
      Ensemble ensemble(options);
      std::vector<std::unique_ptr<Exchange>> exchanges;
      const plan::Contract contract{kind, options.ranks, 0};
      for (int i = 0; i < 20; ++i) {
        Shape shape{
            contract, random.Pick(std::vector<uint64_t>{1, 40, 150, 600, 1500}), Combine::kSum, Scaling::kNone, 0, 0};
        Scatter(&shape, &random);
        exchanges.push_back(std::make_unique<Exchange>(&ensemble, shape, random.Next()));
      }
      EXPECT_TRUE(Drive(&ensemble, exchanges, static_cast<Pace>(random.Below(3)), &random))
          << plan::KindName(kind) << " " << algorithm << " " << options.ranks << " ranks";
    }
  }
}

// Calls of one kind whose buffers are sometimes mapped and sometimes private: what was learnt from a call must be right
// for those that run without announcing, and be forgotten in time.
TEST(Announcements, BuffersOfBothKindsInOneSeries) {
  for (uint64_t round = 0; round < 10; ++round) {
    SCOPED_TRACE("AXCCL_TEST_SEED=" + std::to_string(harness::Seed()) + " round " + std::to_string(round));
    harness::Random random(harness::Scramble(harness::Seed(), 4711, round));
    EnsembleOptions options;
    options.ranks = static_cast<int>(2 + random.Below(4));
    options.layout = Layout::kMixed;
    options.algorithms = "direct,oneshot";
    Ensemble ensemble(options);
    Shape shape{{Kind::kAllGather, options.ranks, 0}, 200, Combine::kSum, Scaling::kNone, 0, 0};
    std::vector<std::unique_ptr<Exchange>> exchanges;
    for (int i = 0; i < 120; ++i) {
      if (random.OneIn(20)) shape.in_heap = random.OneIn(2) ? ~uint64_t{0} : random.Next();
      exchanges.push_back(std::make_unique<Exchange>(&ensemble, shape, random.Next()));
    }
    ASSERT_TRUE(Drive(&ensemble, exchanges, static_cast<Pace>(random.Below(3)), &random)) << options.ranks << " ranks";
  }
}

// The turns show it: an announcement that leads to a staged program takes a turn for itself.
TEST(Announcements, OneCallIn32Announces) {
  EnsembleOptions options;
  options.layout = Layout::kNothing;
  options.algorithms = "direct,oneshot";
  options.machine = cost::Machine{};
  options.machine->cached_bytes_per_second = 1e8;  // copies that direct saves are worth the announcement
  Ensemble ensemble(options);
  const Shape shape{{Kind::kAllGather, 2, 0}, 200, Combine::kSum, Scaling::kNone, 0, 0};
  std::vector<std::unique_ptr<Exchange>> exchanges;
  for (int i = 0; i < 64; ++i)
    exchanges.push_back(std::make_unique<Exchange>(&ensemble, shape, static_cast<uint64_t>(i)));
  harness::Random random(harness::Seed());
  ASSERT_TRUE(Drive(&ensemble, exchanges, Pace::kUniform, &random));
  EXPECT_EQ(ensemble.host(0)->turns().next(), 64u + 2u);
  EXPECT_EQ(ensemble.host(1)->turns().next(), 64u + 2u);
}

// Long runs of one plan, which use the sets of slots in the scratch one after the other and begin again. Between them
// are runs of other sizes and plans, for which the sets lie elsewhere. Between machines there is one set.
TEST_P(SequenceTest, RunsOfOnePlanGoThroughAllSets) {
  harness::Random random(harness::Scramble(harness::Seed(), 78, static_cast<uint64_t>(GetParam())));
  SCOPED_TRACE("AXCCL_TEST_SEED=" + std::to_string(harness::Seed()));
  uint64_t most_sets = 0;
  for (int k = 0; k < plan::kNumKinds - 1; ++k) {
    const auto kind = static_cast<Kind>(k);
    for (const std::string_view algorithm : algo::Algorithms(kind)) {
      EnsembleOptions options;
      options.ranks = kind == Kind::kSendRecv ? 2 : static_cast<int>(2 + random.Below(3));
      options.layout = GetParam();
      options.algorithms = Only(kind, algorithm);
      options.scratch_bytes = 65536;
      options.process_bytes = 32u << 20;
      Ensemble ensemble(options);
      std::vector<std::unique_ptr<Exchange>> exchanges;
      for (int run = 0; run < 6; ++run) {
        // Small sets stay in one place; larger ones wander.
        const uint64_t count = random.OneIn(3) ? 1 + random.Below(120) : 100 + random.Below(800);
        Shape shape{{kind, options.ranks, 0}, count, Combine::kSum, Scaling::kNone, 0, 0};
        if (kind != Kind::kSendRecv && random.OneIn(3)) shape.contract.kind = Kind::kBroadcast;
        Scatter(&shape, &random);
        const Exchange first(&ensemble, shape, 0);
        auto prepared = ensemble.host(0)->plans().Prepare(first.CallOf(0), tune::Access::kMapped);
        ASSERT_TRUE(prepared.ok());
        const uint64_t sets = prepared.value()->sets.count;
        most_sets = std::max(most_sets, sets);
        const uint64_t calls = std::min<uint64_t>(plan::kRotation * sets + random.Below(8), 60);
        for (uint64_t i = 0; i < calls; ++i)
          exchanges.push_back(std::make_unique<Exchange>(&ensemble, shape, random.Next()));
      }
      ASSERT_TRUE(Drive(&ensemble, exchanges, static_cast<Pace>(random.Below(3)), &random))
          << plan::KindName(kind) << " " << algorithm << " " << options.ranks << " ranks";
    }
  }
  if (GetParam() == Layout::kRemote) {
    EXPECT_EQ(most_sets, 1u);
  } else {
    EXPECT_GT(most_sets, 8u);
  }
}

INSTANTIATE_TEST_SUITE_P(All, SequenceTest, testing::ValuesIn(kLayouts),
                         [](const auto& info) { return std::string(LayoutName(info.param)); });

// The same with a thread for each rank: a race detector shows what the interleavings cannot.
TEST(ParallelTest, RanksAreDrivenAtTheSameTime) {
  for (uint64_t round = 0; round < 16; ++round) {
    SCOPED_TRACE("AXCCL_TEST_SEED=" + std::to_string(harness::Seed()) + " round " + std::to_string(round));
    harness::Random random(harness::Scramble(harness::Seed(), 1234, round));
    EnsembleOptions options;
    options.ranks = static_cast<int>(2 + round % 4);
    options.lanes = static_cast<int>(1 + random.Below(2));
    options.algorithms = AnyAlgorithms(&random, options.layout == Layout::kRemote);
    Ensemble ensemble(options);
    std::vector<Shape> shapes;
    for (int i = 0; i < 6; ++i) shapes.push_back(AnyShape(options.ranks, &random));
    std::vector<std::unique_ptr<Exchange>> exchanges;
    for (int i = 0; i < 40; ++i)
      exchanges.push_back(std::make_unique<Exchange>(&ensemble, random.Pick(shapes), random.Next()));
    ASSERT_TRUE(DriveInParallel(&ensemble, exchanges)) << options.ranks << " ranks, " << options.algorithms;
  }
}

}  // namespace
}  // namespace axccl::exec
