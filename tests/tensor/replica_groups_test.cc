#include "src/tensor/replica_groups.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/harness/random.h"

namespace axccl::tensor {
namespace {

using plan::Kind;
using Rows = std::vector<std::vector<int64_t>>;

// Rows as one ragged list; the storage must outlive the lists that refer to it.
struct RaggedRows {
  std::vector<int64_t> ids;
  std::vector<size_t> offsets = {0};

  explicit RaggedRows(const Rows& rows) {
    for (const auto& row : rows) {
      ids.insert(ids.end(), row.begin(), row.end());
      offsets.push_back(ids.size());
    }
  }
  IdLists lists() const { return IdLists::Ragged("test", ids, offsets).value(); }
};

Rows RowsOf(const ReplicaGroups& groups) {
  Rows rows;
  for (int g = 0; g < groups.num_groups(); ++g) rows.emplace_back(groups.Group(g).begin(), groups.Group(g).end());
  return rows;
}

Result<ReplicaGroups> Make(Grid grid, GroupMode mode, const Rows& rows, Kind kind, GroupRules rules) {
  const RaggedRows ragged(rows);
  return ReplicaGroups::Make(
      {.call = "axcclTest", .kind = kind, .grid = grid, .mode = mode, .ids = ragged.lists(), .rules = rules});
}

Result<ReplicaGroups> Make(Grid grid, GroupMode mode, const Rows& rows) {
  return Make(grid, mode, rows, Kind::kAllReduce, GroupRules());
}

constexpr GroupMode kReplica = GroupMode::kCrossReplica, kPartition = GroupMode::kCrossPartition,
                    kBoth = GroupMode::kCrossReplicaAndPartition, kFlat = GroupMode::kFlattenedIds;

// StableHLO specification, "Process groups": the examples, as ranks r * P + p; then grids of one column and one row.
TEST(ReplicaGroupsTest, ModesMakeTheGroupsOfTheSpecification) {
  const struct {
    Grid grid;
    GroupMode mode;
    Rows ids, groups;
  } table[] = {
      {{4, 2}, kReplica, {{0, 1}, {2, 3}}, {{0, 2}, {1, 3}, {4, 6}, {5, 7}}},
      {{4, 2}, kPartition, {{0, 1}}, {{0, 1}, {2, 3}, {4, 5}, {6, 7}}},
      {{4, 2}, kBoth, {{0, 1}, {2, 3}}, {{0, 2, 1, 3}, {4, 6, 5, 7}}},
      {{4, 2}, kFlat, {{0, 1, 2, 3}, {4, 5, 6, 7}}, {{0, 1, 2, 3}, {4, 5, 6, 7}}},
      {{2, 1}, kReplica, {{1, 0}}, {{1, 0}}},
      {{1, 2}, kPartition, {{1, 0}}, {{1, 0}}},
      {{2, 2}, kBoth, {{1, 0}}, {{2, 0, 3, 1}}},
      {{4, 1}, kReplica, {{0, -1}, {1, 2}, {3, -1}}, {{0}, {1, 2}, {3}}},
      {{3, 2}, kPartition, {}, {{0, 1}, {2, 3}, {4, 5}}},
      {{3, 2}, kReplica, {}, {{0, 2, 4}, {1, 3, 5}}},
      {{2, 2}, kBoth, {}, {{0, 2, 1, 3}}},
  };
  for (const auto& c : table) {
    Result<ReplicaGroups> groups = Make(c.grid, c.mode, c.ids);
    ASSERT_TRUE(groups.ok()) << groups.status().message();
    EXPECT_EQ(RowsOf(*groups), c.groups) << GroupModeName(c.mode);
  }
}

TEST(ReplicaGroupsTest, PlacesAreThePositionsInTheLists) {
  Result<ReplicaGroups> groups = Make({5, 1}, kReplica, {{3, 1}, {2}});
  ASSERT_TRUE(groups.ok());
  EXPECT_EQ(groups->PlaceOf(3), (ReplicaGroups::Place{0, 0, 2}));
  EXPECT_EQ(groups->PlaceOf(1), (ReplicaGroups::Place{0, 1, 2}));
  EXPECT_EQ(groups->PlaceOf(2), (ReplicaGroups::Place{1, 0, 1}));
  EXPECT_EQ(groups->PlaceOf(0), (ReplicaGroups::Place{-1, -1, 0}));
  EXPECT_FALSE(groups->CoversAllRanks());
  EXPECT_EQ(groups->Text(), "[2] [3 1] of 5 ranks");
}

// Random partial lists; every rank's place is compared with the place found by the definition, coordinate by
// coordinate.
TEST(ReplicaGroupsTest, RandomListsAgreeWithTheDefinition) {
  harness::Random random(harness::Seed());
  for (int round = 0; round < 500; ++round) {
    const Grid grid = {1 + static_cast<int64_t>(random.Below(5)), 1 + static_cast<int64_t>(random.Below(5))};
    const GroupMode mode = static_cast<GroupMode>(random.Below(4));
    const int64_t r = grid.num_replicas, p = grid.num_partitions;
    const int64_t n = mode == kPartition ? p : mode == kFlat ? r * p : r;
    std::vector<int64_t> ids;
    for (int64_t i = 0; i < n; ++i) ids.insert(ids.begin() + static_cast<ptrdiff_t>(random.Below(ids.size() + 1)), i);
    ids.resize(1 + random.Below(ids.size()));
    Rows rows = {{}};
    for (int64_t id : ids) {
      if (!rows.back().empty() && random.OneIn(3)) rows.emplace_back();
      rows.back().push_back(id);
    }
    Result<ReplicaGroups> groups = Make(grid, mode, rows);
    ASSERT_TRUE(groups.ok()) << groups.status().message() << ", AXCCL_TEST_SEED=" << harness::Seed();
    const auto id_of = [&](int64_t rank) { return mode == kFlat ? rank : mode == kPartition ? rank % p : rank / p; };
    const auto list_of = [&](int64_t rank) {
      return std::find_if(rows.begin(), rows.end(),
                          [&](const auto& row) { return std::find(row.begin(), row.end(), id_of(rank)) != row.end(); });
    };
    for (int rank = 0; rank < groups->num_ranks(); ++rank) {
      const auto list = list_of(rank);
      const ReplicaGroups::Place place = groups->PlaceOf(rank);
      if (list == rows.end()) {
        EXPECT_EQ(place.group, -1);
        continue;
      }
      const int64_t length = static_cast<int64_t>(list->size());
      const int64_t at = std::find(list->begin(), list->end(), id_of(rank)) - list->begin();
      ASSERT_EQ(place.size, mode == kBoth ? length * p : length) << "AXCCL_TEST_SEED=" << harness::Seed();
      ASSERT_EQ(place.position, mode == kBoth ? at + rank % p * length : at) << "AXCCL_TEST_SEED=" << harness::Seed();
      ASSERT_EQ(groups->Group(place.group)[static_cast<size_t>(place.position)], rank);
      for (int other = 0; other < groups->num_ranks(); ++other) {
        bool together = list_of(other) == list;
        if (mode == kReplica) together = together && other % p == rank % p;
        if (mode == kPartition) together = together && other / p == rank / p;
        EXPECT_EQ(groups->PlaceOf(other).group == place.group, together) << rank << " and " << other;
      }
    }
  }
}

TEST(ReplicaGroupsTest, EqualHoweverWritten) {
  const ReplicaGroups a = Make({4, 1}, kReplica, {{0, 2}, {1, 3}}).value();
  const ReplicaGroups same[] = {
      Make({4, 1}, kReplica, {{1, 3}, {0, 2}}).value(),   Make({4, 1}, kReplica, {{-1, 0, -1, 2}, {1, 3}}).value(),
      Make({1, 4}, kPartition, {{0, 2}, {1, 3}}).value(), Make({2, 2}, kFlat, {{0, 2}, {1, 3}}).value(),
      Make({2, 2}, kReplica, {{0, 1}}).value(),
  };
  for (const ReplicaGroups& b : same) {
    EXPECT_EQ(a, b) << b.Text();
    EXPECT_EQ(a.Hash(), b.Hash());
    EXPECT_EQ(a.Text(), b.Text());
  }
  const ReplicaGroups different[] = {
      Make({4, 1}, kReplica, {{2, 0}, {1, 3}}).value(), Make({4, 1}, kReplica, {{0, 2}, {3, 1}}).value(),
      Make({4, 1}, kReplica, {{0, 2}}).value(),         Make({4, 1}, kReplica, {{0, 2}, {1}, {3}}).value(),
      Make({5, 1}, kReplica, {{0, 2}, {1, 3}}).value(), Make({4, 1}, kReplica, {{0, 2, 1, 3}}).value(),
  };
  for (const ReplicaGroups& b : different) {
    EXPECT_NE(a, b) << b.Text();
    EXPECT_NE(a.Hash(), b.Hash());
  }
  EXPECT_EQ(ReplicaGroups::GroupHash(a.Group(0)), ReplicaGroups::GroupHash(different[2].Group(0)));
  EXPECT_NE(ReplicaGroups::GroupHash(a.Group(0)), ReplicaGroups::GroupHash(different[0].Group(0)));
}

void ExpectRefused(const Status& status, const std::vector<std::string>& words) {
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  for (const std::string& word : words)
    EXPECT_NE(status.message().find(word), std::string_view::npos) << word << " in: " << status.message();
}

// After ops_stablehlo.mlir of StableHLO; the constraint numbers are those of its specification.
TEST(ReplicaGroupsTest, RefusalsNameTheConstraintAndTheId) {
  const struct {
    Kind kind;
    Grid grid;
    GroupMode mode;
    Rows ids;
    std::vector<std::string> words;
  } table[] = {
      {Kind::kAllReduce, {4, 1}, kReplica, {{0, 1, 1, 3}}, {"axcclTest", "replica id 1", "once", "all_reduce (C1)"}},
      {Kind::kAllReduce, {4, 1}, kReplica, {{0, 1, 3}}, {"replica id 2", "no group", "0..3", "(C3)"}},
      {Kind::kAllReduce, {4, 1}, kFlat, {}, {"replica_groups is empty", "all_reduce (C3)"}},
      {Kind::kAllGather, {8, 1}, kBoth, {{0, 2, 4, 6}, {1, 3, 5, 2}}, {"replica id 2", "group 1", "(C2)"}},
      {Kind::kAllGather, {8, 1}, kBoth, {{0, 2, 4, 6}, {1, 3, 5, -1}}, {"id -1", "group 1 at position 3", "(C4)"}},
      {Kind::kAllGather, {4, 1}, kReplica, {{0, 1, 2}, {3}}, {"group 1 has 1 members", "group 0 has 3", "(C6)"}},
      {Kind::kReduceScatter, {4, 1}, kReplica, {{0, -1, 2, 3}}, {"id -1", "reduce_scatter (C5)"}},
      {Kind::kAllToAll, {6, 1}, kReplica, {{0, 2, 4}, {1, 3, 6}}, {"replica id 6", "0..5", "all_to_all (C7)"}},
      {Kind::kAllToAll, {2, 1}, kReplica, {}, {"replica_groups is empty"}},
      {Kind::kBroadcast, {1, 4}, kPartition, {{0, 4}}, {"partition id 4", "0..3", "collective_broadcast (C2)"}},
      {Kind::kAllReduce, {4, 2}, kReplica, {{0, 1, 2, 3, 4, 5, 6, 7}}, {"replica id 4", "flattened_ids"}},
      {Kind::kAllReduce, {4, 1}, kReplica, {{0, 1, 2, 3}, {-1}}, {"group 1", "no member"}},
      {Kind::kAllReduce, {2, 1}, kReplica, {{0}, {1}, {}}, {"3 groups", "only 2 ids"}},
      {Kind::kAllReduce, {0, 1}, kReplica, {{0}}, {"0 replicas x 1 partitions"}},
      {Kind::kAllReduce, {int64_t{1} << 40, int64_t{1} << 40}, kFlat, {{0}}, {"at most 16777216"}},
  };
  for (const auto& c : table)
    ExpectRefused(Make(c.grid, c.mode, c.ids, c.kind, StableHloRules(c.kind)).status(), c.words);

  for (int64_t split_count : {int64_t{0}, int64_t{3}}) {
    GroupRules rules = StableHloRules(Kind::kAllToAll);
    rules.split_count = split_count;
    ExpectRefused(Make({2, 1}, kReplica, {{0, 1}}, Kind::kAllToAll, rules).status(),
                  {"split_count", split_count == 0 ? "all_to_all (C4)" : "all_to_all (C8)"});
  }
}

// Callers of the library may omit ranks, mix lengths and pad where StableHLO may not.
TEST(ReplicaGroupsTest, RulesAreTheCallersChoice) {
  const Rows partial = {{0, 1}, {3, -1}};
  EXPECT_TRUE(Make({5, 1}, kReplica, partial, Kind::kAllGather, GroupRules()).ok());
  EXPECT_FALSE(Make({5, 1}, kReplica, partial, Kind::kAllGather, StableHloRules(Kind::kAllGather)).ok());
  EXPECT_FALSE(Make({5, 1}, kReplica, partial, Kind::kAllReduce, StableHloRules(Kind::kAllReduce)).ok());
  GroupRules strict;
  strict.implicit = false;
  EXPECT_FALSE(Make({5, 1}, kReplica, {}, Kind::kAllReduce, strict).ok());
}

TEST(ReplicaGroupsTest, ListsMayBeRectangularOrRagged) {
  const std::vector<int64_t> ids = {0, 1, 2, -1};
  const std::vector<int64_t> square = {2, 2}, cube = {2, 2, 1}, row = {4}, wrong = {3, 2}, odd = {2, 3}, none = {0, 2};
  Result<IdLists> lists = IdLists::FromTensor("axcclTest", Kind::kAllReduce, ids, square);
  ASSERT_TRUE(lists.ok());
  EXPECT_EQ(lists->rows(), 2u);
  EXPECT_EQ(lists->row(1)[0], 2);
  ExpectRefused(IdLists::FromTensor("axcclTest", Kind::kAllReduce, ids, cube).status(),
                {"3 dimensions", "2, 2, 1", "all_reduce (I2)"});
  ExpectRefused(IdLists::FromTensor("axcclTest", Kind::kAllReduce, ids, row).status(), {"1 dimensions"});
  ExpectRefused(IdLists::FromTensor("axcclTest", Kind::kAllReduce, ids, wrong).status(), {"4 ids", "3, 2"});
  ExpectRefused(IdLists::FromTensor("axcclTest", Kind::kAllReduce, ids, odd).status(), {"4 ids", "2, 3"});
  EXPECT_EQ(IdLists::FromTensor("axcclTest", Kind::kAllReduce, {}, none)->rows(), 0u);

  const std::vector<size_t> good = {0, 3, 4}, late = {1, 4}, falls = {0, 3, 2, 4}, beyond = {0, 5};
  EXPECT_EQ(IdLists::Ragged("axcclTest", ids, good)->row(0).size(), 3u);
  for (const auto& offsets : {late, falls, beyond})
    ExpectRefused(IdLists::Ragged("axcclTest", ids, offsets).status(), {"axcclTest", "offsets"});
}

// StableHLO specification, the grouping of each collective by channel_id and use_global_device_ids.
TEST(ModeOfChannelTest, FollowsTheSpecification) {
  for (Kind kind : {Kind::kAllGather, Kind::kAllReduce, Kind::kReduceScatter, Kind::kReduce}) {
    EXPECT_EQ(ModeOfChannel(nullptr, kind, 0, false).value(), kReplica);
    EXPECT_EQ(ModeOfChannel(nullptr, kind, -1, false).value(), kReplica);
    EXPECT_EQ(ModeOfChannel(nullptr, kind, 1, false).value(), kBoth);
    EXPECT_EQ(ModeOfChannel(nullptr, kind, 1, true).value(), kFlat);
    for (int64_t channel : {0, -1})
      ExpectRefused(ModeOfChannel(nullptr, kind, channel, true).status(), {"channel_id", std::to_string(channel)});
  }
  for (Kind kind : {Kind::kAllToAll, Kind::kBroadcast, Kind::kSendRecv}) {
    EXPECT_EQ(ModeOfChannel(nullptr, kind, 0, false).value(), kReplica);
    EXPECT_EQ(ModeOfChannel(nullptr, kind, 3, false).value(), kPartition);
    ExpectRefused(ModeOfChannel("axcclTest", kind, 3, true).status(), {"axcclTest", "use_global_device_ids"});
  }
  ExpectRefused(ModeOfChannel(nullptr, Kind::kAllGather, 0, true).status(), {"all_gather (C5)"});
}

TEST(GroupModeTest, NamesReadBack) {
  for (int i = 0; i < kNumGroupModes; ++i) {
    GroupMode mode = kReplica;
    EXPECT_TRUE(FindGroupMode(GroupModeName(static_cast<GroupMode>(i)), &mode));
    EXPECT_EQ(static_cast<int>(mode), i);
  }
  GroupMode mode = kFlat;
  EXPECT_FALSE(FindGroupMode("cross", &mode));
  EXPECT_EQ(mode, kFlat);
}

Result<PermutePairs> Pairs(Grid grid, GroupMode mode, const Rows& rows) {
  const RaggedRows ragged(rows);
  return PermutePairs::Make({.call = "axcclPermute", .grid = grid, .mode = mode, .pairs = ragged.lists()});
}

TEST(PermutePairsTest, PairsBecomeTransfersOfEachCopy) {
  const struct {
    Grid grid;
    GroupMode mode;
    Rows pairs;
    std::vector<int> targets;
  } table[] = {
      // IREE, convert_collectives.mlir; XLA, CollectivePermute_Simple.
      {{4, 1}, kReplica, {{0, 1}, {1, 2}, {2, 3}, {3, 0}}, {1, 2, 3, 0}},
      {{4, 1}, kReplica, {{1, 0}, {0, 1}, {2, 2}}, {1, 0, 2, -1}},
      {{2, 3}, kReplica, {{0, 1}}, {3, 4, 5, -1, -1, -1}},
      {{2, 3}, kPartition, {{0, 2}, {2, 1}}, {2, -1, 1, 5, -1, 4}},
      {{2, 3}, kFlat, {{5, 0}, {0, 0 + 1}}, {1, -1, -1, -1, -1, 0}},
      {{2, 1}, kReplica, {}, {-1, -1}},
  };
  for (const auto& c : table) {
    Result<PermutePairs> pairs = Pairs(c.grid, c.mode, c.pairs);
    ASSERT_TRUE(pairs.ok()) << pairs.status().message();
    for (int rank = 0; rank < pairs->num_ranks(); ++rank) {
      EXPECT_EQ(pairs->TargetOf(rank), c.targets[static_cast<size_t>(rank)]);
      const auto source = std::find(c.targets.begin(), c.targets.end(), rank);
      EXPECT_EQ(pairs->SourceOf(rank), source == c.targets.end() ? -1 : source - c.targets.begin());
    }
  }
  EXPECT_EQ(Pairs({2, 1}, kReplica, {{0, 1}, {1, 0}}).value(), Pairs({1, 2}, kPartition, {{1, 0}, {0, 1}}).value());
  EXPECT_FALSE(Pairs({2, 1}, kReplica, {{0, 1}}).value() == Pairs({2, 1}, kReplica, {{1, 0}}).value());
}

TEST(PermutePairsTest, RefusalsNameTheConstraintAndTheId) {
  ExpectRefused(Pairs({6, 1}, kReplica, {{0, 1, 2}, {3, 4, 5}}).status(), {"row 0", "3 ids", "(C1)"});
  ExpectRefused(Pairs({4, 1}, kReplica, {{0, 1}, {0, 2}, {2, 3}}).status(), {"duplicate source", "id 0", "(C2)"});
  ExpectRefused(Pairs({4, 1}, kReplica, {{0, 1}, {1, 2}, {2, 1}}).status(), {"duplicate target", "id 1", "(C3)"});
  ExpectRefused(Pairs({4, 1}, kReplica, {{0, 1}, {-1, 0}}).status(), {"source of pair 1", "id -1", "(C4)"});
  ExpectRefused(Pairs({2, 2}, kPartition, {{0, 2}}).status(), {"target of pair 0", "partition id 2", "(C4)"});
  ExpectRefused(Pairs({2, 2}, kBoth, {{0, 1}}).status(), {"axcclPermute", "cross_replica_and_partition"});
  const std::vector<int64_t> ids = {0, 1}, shape = {2};
  ExpectRefused(IdLists::FromTensor("p", Kind::kSendRecv, ids, shape).status(), {"collective_permute (I2)"});
}

}  // namespace
}  // namespace axccl::tensor
