// Runs of plans with slices: every kind, order and number of slices in random interleavings of ranks, of starts, and of
// the moments at which input chunks are declared ready; what they read and write; and how they end when a rank fails.
#include "src/exec/host/sliced_run.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>

#include "src/algo/algo.h"
#include "tests/algo/cases.h"
#include "tests/exec/counting.h"
#include "tests/exec/sliced_traffic.h"
#include "tests/harness/run_ranks.h"

namespace axccl::exec {
namespace {

using algo::Chunking;
using harness::Random;
using harness::Scramble;
using plan::Contract;
using plan::Kind;

std::string SeedText() { return "AXCCL_TEST_SEED=" + std::to_string(harness::Seed()); }

std::string TextOf(const Status& status) { return std::string(status.message()); }

class SlicedRunTest : public testing::TestWithParam<std::tuple<int, Layout>> {};

TEST_P(SlicedRunTest, EveryChunkHasItsValueWhenItsWordIsOne) {
  const auto [ranks, layout] = GetParam();
  SCOPED_TRACE(SeedText());
  Random random(Scramble(harness::Seed(), static_cast<uint64_t>(ranks), static_cast<uint64_t>(layout)));
  const int rounds = harness::FullTests() ? 20 : 1;
  for (int round = 0; round < rounds; ++round) {
    algo::ForEachChunked(ranks, 1, [&, layout = layout](const Contract& c, std::string_view, const Chunking& chunking) {
      if (testing::Test::HasFailure()) return;
      SlicedShape shape{c, chunking, {}};
      AnyBlocks(&shape, &random);
      SCOPED_TRACE(Describe(shape) + " " + LayoutName(layout));
      Ensemble ensemble(RoomFor(shape, layout));
      SlicedTraffic traffic(&ensemble, {shape}, 4, &random);
      ASSERT_FALSE(testing::Test::HasFailure());
      for (int rank = 0; rank < c.ranks; ++rank) EXPECT_EQ(traffic.ScratchBytes(rank), 0u);
      ASSERT_TRUE(traffic.Drive(static_cast<Pace>(random.Below(3))));
      for (int rank = 0; rank < c.ranks; ++rank) EXPECT_EQ(traffic.CountWords(rank, Pipeline::kFailed), 0);
    });
  }
}

// Those of a layout of linear layers or of any kind, with each element of the input read by each rank that needs it
// once, and each element of the output written once. No other byte is read or written.
void ExpectLeastTraffic(const SlicedShape& shape, Random* random) {
  SCOPED_TRACE(Describe(shape));
  Ensemble ensemble(RoomFor(shape, Layout::kHeap));
  Counter counter(&ensemble);
  SlicedTraffic traffic(&ensemble, {shape}, 1, random);
  ASSERT_FALSE(testing::Test::HasFailure());
  traffic.BeforeSteps([&](int rank) { counter.SetRank(rank); });
  ASSERT_TRUE(traffic.Drive(static_cast<Pace>(random->Below(3))));
  const Contract& c = shape.contract;
  const auto ranks = static_cast<uint64_t>(c.ranks);
  const bool one_reader = shape.splits() || c.kind == Kind::kAllReduce;
  uint64_t read = 0, written = 0, wrong = 0;
  for (int rank = 0; rank < c.ranks; ++rank) {
    EXPECT_EQ(traffic.ScratchBytes(rank), 0u);
    EXPECT_EQ(ensemble.owner(rank)->bytes_read(), 0u) << "by system call";
    const auto inputs = traffic.Elements(rank, Pipeline::kIn), outputs = traffic.Elements(rank, Pipeline::kOut);
    const int readers = one_reader ? 1 : c.ranks;
    for (const std::byte* p : inputs) wrong += counter.Reads(p) != readers || counter.Writes(p) != 0;
    for (const std::byte* p : outputs) wrong += counter.Writes(p) != 1;
    read += inputs.size() * static_cast<uint64_t>(readers) * sizeof(int32_t);
    written += outputs.size() * sizeof(int32_t);
  }
  // Each rank fetches the parts of the sum that others have.
  if (c.kind == Kind::kAllReduce) read += (ranks - 1) * written / ranks;
  EXPECT_EQ(wrong, 0u) << "elements that are not read or written once";
  EXPECT_EQ(counter.total().read, read);
  EXPECT_EQ(counter.total().written, written);
  EXPECT_EQ(counter.flat_calls(), 0) << "calls of movers that are not counted";
}

// The activations and gradients of linear layers, sharded along the sequence: row- or column-major, gathered before a
// product or scattered after it along dimension 0 or 1, and sliced along either.
TEST(SlicedRunVolume, LinearLayersMoveEachByteOnce) {
  SCOPED_TRACE(SeedText());
  Random random(harness::Seed());
  for (const Kind kind : {Kind::kAllGather, Kind::kReduceScatter}) {
    for (const int ranks : {2, 3, 4, 8}) {
      for (const int slices : {1, 2, 7, 8}) {
        for (int way = 0; way < 8 && !testing::Test::HasFailure(); ++way) {
          SlicedShape shape{{kind, ranks, 0}, {slices, kind == Kind::kReduceScatter}, {2, {9, 11}}};
          shape.dim = way & 1, shape.slice_dim = way >> 1 & 1, shape.innermost = way >> 2;
          ExpectLeastTraffic(shape, &random);
        }
      }
    }
  }
}

TEST(SlicedRunVolume, EveryKindMovesEachByteOnce) {
  SCOPED_TRACE(SeedText());
  Random random(harness::Seed());
  for (const int ranks : {1, 2, 3, 5}) {
    algo::ForEachChunked(ranks, 1, [&](const Contract& c, std::string_view, const Chunking& chunking) {
      // A message and a broadcast are read by some ranks only.
      if (plan::HasRoot(c.kind) || c.kind == Kind::kSendRecv || testing::Test::HasFailure()) return;
      SlicedShape shape{c, chunking, {}};
      AnyBlocks(&shape, &random);
      ExpectLeastTraffic(shape, &random);
    });
  }
}

// Drives all ranks until each has ended all starts or failed; false after a minute.
testing::AssertionResult DriveUntilAllEnded(SlicedTraffic* traffic, int ranks) {
  const auto deadline = std::chrono::steady_clock::now() + harness::TimeScale() * std::chrono::seconds(60);
  for (bool all_ended = false; !all_ended;) {
    if (std::chrono::steady_clock::now() > deadline) return testing::AssertionFailure() << "some rank waits for ever";
    all_ended = true;
    for (int rank = 0; rank < ranks; ++rank) {
      bool moved = false;
      if (auto result = traffic->Act(rank, &moved); !result) return result;
      all_ended &= !traffic->Runs(rank) && (!traffic->StatusOf(rank).ok() || traffic->Ended(rank));
    }
  }
  return testing::AssertionSuccess();
}

// A chunk with word 1 has its value even then (Act checks that), and no word of a failed rank stays 0.
TEST(SlicedRunFailure, AllWordsOfEveryRankAreSetWhenARankFails) {
  SCOPED_TRACE(SeedText());
  Random random(harness::Seed());
  for (int round = 0; round < 40 && !testing::Test::HasFailure(); ++round) {
    algo::ForEachChunked(3, 1, [&](const Contract& c, std::string_view, const Chunking& chunking) {
      if (!random.OneIn(6) || testing::Test::HasFailure()) return;
      SlicedShape shape{c, chunking, {}};
      AnyBlocks(&shape, &random);
      SCOPED_TRACE(Describe(shape));
      Ensemble ensemble(RoomFor(shape, Layout::kHeap));
      SlicedTraffic traffic(&ensemble, {shape}, 3, &random);
      const int fails = static_cast<int>(random.Below(3));
      for (uint64_t actions = random.Below(100); actions > 0; --actions) {
        bool moved = false;
        ASSERT_TRUE(traffic.Act(static_cast<int>(random.Below(3)), &moved));
      }
      ensemble.owner(fails)->Fail(MakeStatus(Code::kSystemError, "a test made rank %d fail", fails));
      ASSERT_TRUE(DriveUntilAllEnded(&traffic, 3));
      for (int rank = 0; rank < 3; ++rank) {
        const Status& status = traffic.StatusOf(rank);
        if (status.ok()) continue;
        EXPECT_EQ(traffic.CountWords(rank, Pipeline::kNotYet), 0) << "rank " << rank;
        EXPECT_NE(TextOf(status).find("rank " + std::to_string(fails)), std::string::npos) << TextOf(status);
      }
    });
  }
}

// Ranks that start different pipelines all fail, and name both.
TEST(SlicedRunFailure, RanksWithOtherSlicesAreNamed) {
  SCOPED_TRACE(SeedText());
  Random random(harness::Seed());
  SlicedShape two{{Kind::kAllGather, 2, 0}, {2, true}, {2, {6, 5}}};
  two.slice_dim = 1;
  SlicedShape three = two;
  three.chunking.slices = 3;
  for (const Layout layout : {Layout::kThreads, Layout::kHeap}) {
    Ensemble ensemble(RoomFor(two, layout));
    SlicedTraffic traffic(&ensemble, {two, three}, 1, &random);
    ASSERT_TRUE(DriveUntilAllEnded(&traffic, 2));
    for (int rank = 0; rank < 2; ++rank) {
      const Status& status = traffic.StatusOf(rank);
      EXPECT_EQ(status.code(), Code::kInvalidUsage);
      for (const char* part : {"in 2 slices along dimension 1", "in 3 slices along dimension 1", "blocks [6, 5]"})
        EXPECT_NE(TextOf(status).find(part), std::string::npos) << TextOf(status);
      EXPECT_EQ(traffic.CountWords(rank, Pipeline::kNotYet), 0);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, SlicedRunTest,
                         testing::Combine(testing::Values(1, 2, 3, 4, 8),
                                          testing::Values(Layout::kThreads, Layout::kHeap)),
                         [](const auto& info) {
                           return std::to_string(std::get<0>(info.param)) + LayoutName(std::get<1>(info.param));
                         });

}  // namespace
}  // namespace axccl::exec
