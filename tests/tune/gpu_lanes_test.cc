// How many lanes ranks on GPUs use, and when they use slots of all ranks.
#include <gtest/gtest.h>

#include <set>

#include "src/tune/tune.h"

namespace axccl::tune {
namespace {

constexpr int kMostLanes = 64;

std::unique_ptr<Chooser> OfGpus(int min_lanes = 1, int max_lanes = kMostLanes) {
  return Chooser::Create(cost::GpuMachine(132, 1), "", 2 << 20, max_lanes, min_lanes).value();
}

Query Sum(int sharers, uint64_t bytes) {
  Query query{{plan::Kind::kAllReduce, 8, 0}, bytes, DataType::kFloat32, Access::kMapped};
  query.sharers = sharers;
  return query;
}

std::set<int> LaneCounts(const Chooser& chooser, const Query& query) {
  std::set<int> lanes;
  for (const Candidate& c : chooser.Explain(query).candidates) lanes.insert(c.choice.lanes);
  return lanes;
}

// Ranks on GPUs of their own share no multiprocessors, and any power of two may be the best number.
TEST(GpuLanes, AreForTheRanksOfOneGpu) {
  const auto chooser = OfGpus();
  const auto counts = [&](int sharers) { return LaneCounts(*chooser, Sum(sharers, 64 << 20)); };
  EXPECT_EQ(counts(0), (std::set<int>{1, 2, 4, 8, 16}));  // all share it
  EXPECT_EQ(counts(8), counts(0));
  EXPECT_EQ(counts(3), (std::set<int>{1, 2, 4, 8, 16, 32, 44}));
  EXPECT_EQ(counts(1), (std::set<int>{1, 2, 4, 8, 16, 32, 64}));
}

TEST(GpuLanes, TakeTimeOnlyFromRanksOfTheirGpu) {
  cost::Machine machine = cost::GpuMachine(132, 1);
  machine.peer_bytes_per_second = machine.gpu_memory_bytes_per_second = 0;  // as if links were as fast as memory
  const auto chooser = Chooser::Create(machine, "", 2 << 20, kMostLanes).value();
  for (const uint64_t bytes : {uint64_t{1} << 20, uint64_t{64} << 20}) {
    const Choice apart = chooser->Choose(Sum(1, bytes)), together = chooser->Choose(Sum(8, bytes));
    EXPECT_GT(apart.lanes, together.lanes);
    EXPECT_LT(apart.seconds, together.seconds);
  }
}

TEST(GpuLanes, SmallOperationsHaveOne) { EXPECT_EQ(OfGpus()->Choose(Sum(1, 8)).lanes, 1); }

TEST(GpuLanes, AreAsManyAsAllowed) {
  for (const int most : {1, 3, 20, 64}) {
    const auto counts = LaneCounts(*OfGpus(1, most), Sum(1, 64 << 20));
    EXPECT_EQ(*counts.begin(), 1);
    EXPECT_EQ(*counts.rbegin(), most);
  }
}

TEST(GpuLanes, AreAtLeastTheLeastOfLargeOperations) {
  const auto chooser = OfGpus(6, 20);
  EXPECT_EQ(LaneCounts(*chooser, Sum(1, 6 * 8192)), (std::set<int>{6, 12, 20}));
  EXPECT_EQ(LaneCounts(*chooser, Sum(1, 6 * 8192 - 4)), (std::set<int>{1, 2, 4, 8, 16, 20}));
  EXPECT_EQ(LaneCounts(*chooser, Sum(33, 64 << 20)), (std::set<int>{4}));  // there is no room for more
  EXPECT_EQ(LaneCounts(*OfGpus(9, 5), Sum(1, 64 << 20)), (std::set<int>{5}));
}

// "ring" admits "ring_pull", unless a list excludes that.
TEST(GpuRings, UseBuffersUnlessAListExcludesThat) {
  const auto chosen = [](const char* filter, Access access) {
    Query query = Sum(1, 64 << 20);
    query.access = access;
    return Chooser::Create(cost::GpuMachine(132, 1), filter, 2 << 20, kMostLanes).value()->Choose(query).algorithm;
  };
  EXPECT_EQ(chosen("ring", Access::kMapped), "ring_pull");
  EXPECT_EQ(chosen("ring", Access::kNone), "ring");
  EXPECT_EQ(chosen("ring_pull", Access::kMapped), "ring_pull");
  EXPECT_EQ(chosen("^direct,pull,ring", Access::kMapped), "ring_pull");
  for (const char* filter : {"^direct,pull,ring_pull", "^direct,pull,ring,ring_pull"})
    EXPECT_NE(chosen(filter, Access::kMapped), "ring_pull") << filter;
}

// What travels brings its own flags then, which only oneshot's slots do.
TEST(GpuLanes, SmallBlocksGoByOneshot) {
  const auto chosen = [](plan::Kind kind, uint64_t bytes, uint64_t flagged_bytes = 8192) {
    Query query{{kind, 8, 0}, bytes, DataType::kFloat32, Access::kMapped};
    query.sharers = 1;
    query.flagged_bytes = flagged_bytes;
    return OfGpus()->Choose(query);
  };
  const double packed = cost::GpuMachine(132, 1).packed_seconds;
  using plan::Kind;
  for (const Kind kind :
       {Kind::kAllReduce, Kind::kReduceScatter, Kind::kAllGather, Kind::kAllToAll, Kind::kBroadcast, Kind::kReduce}) {
    for (const uint64_t bytes : {8u, 512u}) {
      EXPECT_EQ(chosen(kind, bytes).algorithm, "oneshot") << plan::KindName(kind);
      EXPECT_EQ(chosen(kind, bytes).seconds, packed) << plan::KindName(kind);
    }
    for (const uint64_t bytes : {0u, 513u}) EXPECT_NE(chosen(kind, bytes).seconds, packed) << plan::KindName(kind);
    EXPECT_NE(chosen(kind, 8, 0).seconds, packed) << plan::KindName(kind);
    // Larger ones in rows, where these are allowed.
    for (const uint64_t bytes : {513u, 8192u}) {
      SCOPED_TRACE(testing::Message() << plan::KindName(kind) << " of " << bytes);
      EXPECT_EQ(chosen(kind, bytes).algorithm, "oneshot");
      EXPECT_LT(chosen(kind, bytes).seconds, chosen(kind, bytes, 512).seconds);
      EXPECT_LT(packed, chosen(kind, bytes).seconds);
    }
    EXPECT_EQ(chosen(kind, 8208).seconds, chosen(kind, 8208, 0).seconds);
  }
}

// Plans with slots of all ranks are for those that have them, and are not in group order where the switch folds.
TEST(Multicast, IsForThoseThatHaveIt) {
  const cost::Machine machine = cost::GpuMachine(132, 1);
  const auto of = [&](const char* filter) { return Chooser::Create(machine, filter, uint64_t{8} << 20, 64).value(); };
  Query query = Sum(1, uint64_t{1} << 30);
  EXPECT_NE(of("")->Choose(query).algorithm, "nvls");
  EXPECT_NE(of("nvls")->Choose(query).algorithm, "nvls");
  query.multicast = Multicast::kFolds;
  EXPECT_EQ(of("")->Choose(query).algorithm, "nvls");
  EXPECT_NE(of("^nvls")->Choose(query).algorithm, "nvls");
  EXPECT_EQ(of("nvls_oneshot")->Choose(query).algorithm, "nvls_oneshot");
  query.group_order = true;
  EXPECT_NE(of("nvls")->Choose(query).algorithm, "nvls");
  EXPECT_EQ(of("nvls_oneshot")->Choose(query).algorithm, "nvls_oneshot");
  for (const plan::Kind kind : {plan::Kind::kAllGather, plan::Kind::kReduceScatter, plan::Kind::kBroadcast}) {
    query.contract.kind = kind;
    query.group_order = false;
    EXPECT_EQ(of("nvls")->Choose(query).algorithm == "nvls", kind != plan::Kind::kBroadcast) << plan::KindName(kind);
  }
}

}  // namespace
}  // namespace axccl::tune
