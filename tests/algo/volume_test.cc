// What the algorithms cost: bytes sent, hops and work, compared with the textbook.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <string_view>
#include <utility>
#include <vector>

#include "src/algo/algo.h"
#include "tests/algo/cases.h"

namespace axccl::algo {
namespace {

using plan::Buffer;
using plan::Contract;
using plan::Kind;
using plan::Op;
using plan::Operand;
using plan::OpKind;
using plan::Schedule;

// The number of blocks that `rank` writes to memory of other ranks.
double BlocksPut(const Schedule& s, int rank) {
  double parts = 0;
  for (const Op& op : s.program[rank][0].ops) {
    for (const Operand& o : op.dst) parts += o.rank != rank ? o.parts : 0;
  }
  return parts / s.parts;
}

// The number of blocks that `rank` reads from memory of other ranks.
double BlocksGot(const Schedule& s, int rank) {
  double parts = 0;
  for (const Op& op : s.program[rank][0].ops) {
    for (const Operand& o : op.src) parts += o.rank != rank ? o.parts : 0;
  }
  return parts / s.parts;
}

int Hops(const Schedule& s) {
  return LongestChain(s, [](int, int) { return true; });
}

int CountOps(const Schedule& s, int rank, OpKind kind) {
  int count = 0;
  for (const Op& op : s.program[rank][0].ops) count += op.kind == kind;
  return count;
}

int Log2Up(int n) { return std::bit_width(static_cast<unsigned>(n - 1)); }

Schedule Make(Kind kind, int ranks, std::string_view algorithm) {
  return Generate(Contract{kind, ranks, 0}, algorithm, 1).value();
}

class Volume : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Volume, ::testing::Values(2, 3, 4, 6, 8, 13, 16), ::testing::PrintToStringParamName());

TEST_P(Volume, RingSendsTheMinimum) {
  const int n = GetParam();
  for (int r = 0; r < n; ++r) {
    EXPECT_DOUBLE_EQ(BlocksPut(Make(Kind::kAllReduce, n, "ring"), r), 2.0 * (n - 1) / n);
    EXPECT_DOUBLE_EQ(BlocksPut(Make(Kind::kAllGather, n, "ring"), r), n - 1);
    EXPECT_DOUBLE_EQ(BlocksPut(Make(Kind::kReduceScatter, n, "ring"), r), n - 1);
  }
  EXPECT_EQ(Hops(Make(Kind::kAllReduce, n, "ring")), 2 * (n - 1));
  EXPECT_EQ(Hops(Make(Kind::kAllGather, n, "ring")), n - 1);
}

TEST_P(Volume, RingSendsToTheNextRankOnly) {
  const int n = GetParam();
  for (Kind kind : {Kind::kAllReduce, Kind::kAllGather, Kind::kReduceScatter}) {
    const Schedule s = Make(kind, n, "ring");
    for (int r = 0; r < n; ++r) {
      EXPECT_EQ(BlocksGot(s, r), 0);
      for (const Op& op : s.program[r][0].ops) {
        for (const Operand& o : op.dst) EXPECT_TRUE(o.rank == r || o.rank == (r + 1) % n);
      }
    }
  }
}

TEST_P(Volume, HalvingDoublingHasTheMinimumOfBytesAndStepsForPowersOfTwo) {
  const int n = GetParam();
  const int steps = std::bit_width(static_cast<unsigned>(n)) - 1;
  if (!std::has_single_bit(static_cast<unsigned>(n))) {
    EXPECT_LE(Hops(Make(Kind::kAllReduce, n, "rhd")), 2 * steps + 2);
    EXPECT_LE(Hops(Make(Kind::kReduceScatter, n, "rhd")), steps + 2);
    EXPECT_LE(Hops(Make(Kind::kAllGather, n, "rhd")), steps + 2);
    return;
  }
  EXPECT_EQ(Hops(Make(Kind::kAllReduce, n, "rhd")), 2 * steps);
  EXPECT_EQ(Hops(Make(Kind::kReduceScatter, n, "rhd")), steps);
  EXPECT_EQ(Hops(Make(Kind::kAllGather, n, "rhd")), steps);
  for (int r = 0; r < n; ++r) {
    EXPECT_DOUBLE_EQ(BlocksPut(Make(Kind::kAllReduce, n, "rhd"), r), 2.0 * (n - 1) / n);
    EXPECT_DOUBLE_EQ(BlocksPut(Make(Kind::kReduceScatter, n, "rhd"), r), n - 1);
    EXPECT_DOUBLE_EQ(BlocksPut(Make(Kind::kAllGather, n, "rhd"), r), n - 1);
  }
}

TEST_P(Volume, DirectMovesEveryByteOnce) {
  const int n = GetParam();
  for (int r = 0; r < n; ++r) {
    const Schedule all_reduce = Make(Kind::kAllReduce, n, "direct");
    EXPECT_DOUBLE_EQ(BlocksGot(all_reduce, r), (n - 1.0) / n);
    EXPECT_DOUBLE_EQ(BlocksPut(all_reduce, r), (n - 1.0) / n);
    EXPECT_EQ(CountOps(all_reduce, r, OpKind::kReduce), 1);
    EXPECT_DOUBLE_EQ(BlocksPut(Make(Kind::kAllGather, n, "direct"), r), n - 1);
    EXPECT_DOUBLE_EQ(BlocksGot(Make(Kind::kAllGather, n, "pull"), r), n - 1);
    EXPECT_DOUBLE_EQ(BlocksPut(Make(Kind::kAllGather, n, "pull"), r), 0);
    const Schedule reading = Make(Kind::kAllReduce, n, "pull");
    EXPECT_DOUBLE_EQ(BlocksGot(reading, r), 2 * (n - 1.0) / n);
    EXPECT_DOUBLE_EQ(BlocksPut(reading, r), 0);
    EXPECT_EQ(CountOps(reading, r, OpKind::kReduce), 1);
    EXPECT_DOUBLE_EQ(BlocksGot(Make(Kind::kReduceScatter, n, "direct"), r), n - 1);
    EXPECT_DOUBLE_EQ(BlocksPut(Make(Kind::kAllToAll, n, "push"), r), n - 1);
    EXPECT_DOUBLE_EQ(BlocksGot(Make(Kind::kReduceScatter, n, "push"), r), n - 1);
    EXPECT_DOUBLE_EQ(BlocksPut(Make(Kind::kReduceScatter, n, "push"), r), (n - 1.0) / n);
    EXPECT_DOUBLE_EQ(BlocksGot(Make(Kind::kAllToAll, n, "direct"), r), n - 1);
  }
  ForEachAlgorithm(n, [](const Contract& c, std::string_view algorithm) {
    if (algorithm != "direct" && algorithm != "pull") return;
    EXPECT_EQ(Generate(c, algorithm, 2)->slots, 0) << Describe(c, algorithm, 2);
  });
}

TEST_P(Volume, OneShotTakesOneHopAndTwoShotTwo) {
  const int n = GetParam();
  ForEachAlgorithm(n, [](const Contract& c, std::string_view algorithm) {
    if (algorithm != "oneshot" && algorithm != "twoshot") return;
    EXPECT_EQ(Hops(Generate(c, algorithm, 1).value()), algorithm == "oneshot" ? 1 : 2) << Describe(c, algorithm, 1);
  });
  for (int r = 0; r < n; ++r) {
    EXPECT_DOUBLE_EQ(BlocksGot(Make(Kind::kAllReduce, n, "oneshot"), r), n - 1);
    EXPECT_DOUBLE_EQ(BlocksGot(Make(Kind::kAllReduce, n, "twoshot"), r), 2.0 * (n - 1) / n);
    EXPECT_EQ(BlocksPut(Make(Kind::kAllReduce, n, "oneshot"), r), 0);
  }
}

TEST_P(Volume, BruckAndTreesAreLogarithmic) {
  const int n = GetParam();
  EXPECT_EQ(Hops(Make(Kind::kAllGather, n, "bruck")), Log2Up(n));
  EXPECT_EQ(Hops(Make(Kind::kAllToAll, n, "bruck")), Log2Up(n));
  EXPECT_LE(Hops(Make(Kind::kGather, n, "tree")), Log2Up(n));
  EXPECT_LE(Hops(Make(Kind::kScatter, n, "tree")), Log2Up(n));
  // A binary tree of n - 1 ranks below the root; one of n ranks, up and down.
  EXPECT_LE(Hops(Make(Kind::kBroadcast, n, "tree")), Log2Up(n));
  EXPECT_LE(Hops(Make(Kind::kReduce, n, "tree")), Log2Up(n));
  EXPECT_LE(Hops(Make(Kind::kAllReduce, n, "tree")), 2 * (std::bit_width(static_cast<unsigned>(n)) - 1));
  for (int r = 0; r < n; ++r) {
    EXPECT_EQ(CountOps(Make(Kind::kAllGather, n, "bruck"), r, OpKind::kSignal), Log2Up(n));
    EXPECT_DOUBLE_EQ(BlocksPut(Make(Kind::kAllGather, n, "bruck"), r), n - 1);
  }
}

// No rank forwards in both trees, so each sends at most one block down and one up, except at the top of a tree.
TEST_P(Volume, TheTwoTreesShareTheWork) {
  const int n = GetParam();
  const Schedule s = Make(Kind::kAllReduce, n, "tree");
  for (int r = 0; r < n; ++r) EXPECT_LE(BlocksPut(s, r), 2.0) << r;
  const Schedule broadcast = Make(Kind::kBroadcast, n, "tree");
  for (int r = 0; r < n; ++r) EXPECT_LE(BlocksPut(broadcast, r), 1.0) << r;
}

TEST_P(Volume, PairwiseSendsEachBlockOnceAndDirectly) {
  const int n = GetParam();
  for (Kind kind : {Kind::kAllToAll, Kind::kReduceScatter}) {
    const Schedule s = Make(kind, n, "pairwise");
    EXPECT_EQ(s.slots, n - 1);
    for (int r = 0; r < n; ++r) {
      EXPECT_DOUBLE_EQ(BlocksPut(s, r), n - 1);
      EXPECT_EQ(CountOps(s, r, OpKind::kSignal), n - 1);
    }
  }
}

}  // namespace
}  // namespace axccl::algo
