// The program of some ranks alone: it equals that of the whole group, and works for groups whose whole program would
// not fit.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "src/algo/algo.h"
#include "tests/algo/cases.h"

namespace axccl::algo {
namespace {

using plan::Contract;
using plan::Kind;
using plan::Placement;
using plan::Schedule;

// Removes the ids, which number the operations of a schedule.
std::vector<plan::Lane> WithoutIds(std::vector<plan::Lane> lanes) {
  for (plan::Lane& lane : lanes) {
    for (plan::Op& op : lane.ops) op.id = 0;
  }
  return lanes;
}

size_t CountOps(const std::vector<plan::Lane>& lanes) {
  size_t count = 0;
  for (const plan::Lane& lane : lanes) count += lane.ops.size();
  return count;
}

void ExpectPartOfAll(const Contract& contract, std::string_view algorithm, const Placement& placement = {}) {
  SCOPED_TRACE(Describe(contract, algorithm, 2) + " " + Describe(placement));
  const Schedule all = Generate(contract, algorithm, 2, placement).value();
  for (const std::vector<int>& only : {std::vector<int>{0}, {1, contract.ranks - 1}, {0, contract.ranks / 2}}) {
    const Schedule some = Generate(contract, algorithm, 2, placement, only).value();
    EXPECT_EQ(some.contract, all.contract);
    EXPECT_EQ(some.placement, all.placement);
    EXPECT_EQ(some.parts, all.parts);
    EXPECT_EQ(some.lanes, all.lanes);
    ASSERT_EQ(some.program.size(), all.program.size());
    for (int r = 0; r < contract.ranks; ++r) {
      const auto& lanes = some.program[static_cast<size_t>(r)];
      EXPECT_EQ(lanes.size(), all.lanes);
      const bool wanted = std::find(only.begin(), only.end(), r) != only.end();
      if (wanted || CountOps(lanes) > 0) {
        EXPECT_EQ(WithoutIds(lanes), WithoutIds(all.program[static_cast<size_t>(r)])) << "rank " << r;
      }
    }
  }
}

TEST(Subset, EqualsThatPartOfTheWholeProgram) {
  for (const int ranks : {3, 8, 13}) {
    const auto expect = [](const Contract& contract, std::string_view algorithm) {
      ExpectPartOfAll(contract, algorithm);
    };
    ForEachAlgorithm(ranks, expect);
    ForEachMulticast(ranks, expect);
  }
}

TEST(Subset, EqualsThatPartOfTheWholeProgramInTwoLevels) {
  std::vector<Placement> placements;
  for (const auto& machine_of : SomeMachines()) placements.push_back(Placement::Of(machine_of));
  for (const Placement& placement : placements) {
    for (int k = 0; k < plan::kNumKinds; ++k) {
      const Contract contract{static_cast<Kind>(k), placement.ranks(), 0};
      if (contract.kind == Kind::kSendRecv) continue;
      const auto& flat = Algorithms(contract.kind);
      for (const std::string_view algorithm : Algorithms(contract.kind, placement)) {
        if (std::find(flat.begin(), flat.end(), algorithm) == flat.end())
          ExpectPartOfAll(contract, algorithm, placement);
      }
    }
  }
}

// Generating one rank's program of the largest group takes only that rank's share of the work.
TEST(Subset, CoversGroupsWhoseWholeProgramDoesNotFit) {
  constexpr int kRanks = 16384, kEach = 8;
  const Placement placement = Even(kRanks / kEach, kEach);
  const std::vector<int> only = {kRanks - 1};
  for (const std::string_view algorithm : {std::string_view("ring"), kHierarchical}) {
    Result<Schedule> s = Generate({Kind::kAllReduce, kRanks, 0}, algorithm, 1, placement, only);
    ASSERT_TRUE(s.ok()) << s.status().message();
    EXPECT_GT(CountOps(s->program[kRanks - 1]), static_cast<size_t>(kRanks));
    EXPECT_EQ(CountOps(s->program[0]), 0u);
    EXPECT_EQ(s->parts, kRanks);
  }
  EXPECT_TRUE(Generate({Kind::kAllReduce, kRanks, 0}, "tree", 1).ok());
}

TEST(Subset, NamesTheFaultOfItsArguments) {
  const auto fails_with = [](const Result<Schedule>& result, const char* what) {
    ASSERT_FALSE(result.ok()) << what;
    EXPECT_EQ(result.status().code(), Code::kInvalidArgument);
    EXPECT_NE(result.status().message().find(what), std::string_view::npos) << result.status().message();
  };
  const Contract four{Kind::kAllReduce, 4, 0}, many{Kind::kAllReduce, 16385, 0};
  for (const std::vector<int>& only : {std::vector<int>{4}, {-1}, {2, 1}, {1, 1}})
    fails_with(Generate(four, "ring", 1, {}, only), "programs must be of the 4 ranks, in ascending order");
  const std::vector<int> first = {0};
  fails_with(Generate(many, "ring", 1, {}, first), "16385 ranks; must be 1 to 16384 for ring");
  fails_with(Generate(many, "ring", 1), "must be 1 to 4096 for ring");
  fails_with(Generate(many, "rhd", 1, {}, first), "must be 1 to 4096 for rhd");
  fails_with(Generate({Kind::kBroadcast, 16384, 0}, "ring", 1, {}, first), "must be 1 to 4096 for ring");
  fails_with(Generate(many, "tree", 1), "must be 1 to 16384 for tree");
}

}  // namespace
}  // namespace axccl::algo
