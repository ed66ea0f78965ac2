// What a choice for many ranks on several machines costs.
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "src/algo/algo.h"
#include "src/tune/tune.h"
#include "src/verify/size.h"

namespace axccl::tune {
namespace {

// An all_reduce of few bytes by 8 machines.
Query Ask(int ranks_each) {
  std::vector<int> machine_of;
  for (int i = 0; i < 8 * ranks_each; ++i) machine_of.push_back(i / ranks_each);
  Query query;
  query.contract = {plan::Kind::kAllReduce, 8 * ranks_each, 0};
  query.block_bytes = 1024;
  query.placement = plan::Placement::Of(machine_of);
  return query;
}

Choice Choose(std::string_view filter, const Query& query) {
  cost::Machine machine;
  machine.op_seconds = 1.27e-8;  // only this test uses it, so no costs are known
  return Chooser::Create(machine, filter, 1u << 20, 1).value()->Choose(query);
}

// Few bytes are gathered, and only the ways to do that are timed. The others would not have been faster.
TEST(ManyRanks, FewAlgorithmsAreTimedForFewBytes) {
  for (const int ranks_each : {8, 32}) {
    const Query few = Ask(ranks_each);
    const uint64_t before = NumCosted();
    const Choice choice = Choose("", few);
    EXPECT_EQ(NumCosted() - before, 2u);
    for (const char* other : {"hierarchical", "hierarchical_rhd", "hierarchical_tree"}) {
      const Choice slower = Choose(other, few);
      EXPECT_EQ(slower.algorithm, other);
      EXPECT_GT(slower.seconds, choice.seconds) << other;
    }
  }
}

// The verifier takes the plan that is chosen, although it would not take that of more lanes.
TEST(ManyRanks, PlansThatAreTooLargeAreNotChosen) {
  using plan::Kind;
  cost::Machine machine;
  machine.cores = 1 << 16;  // enough for any number of lanes
  const auto chooser = Chooser::Create(machine, "direct", 1u << 28, 4).value();
  for (const auto& [kind, ranks] :
       {std::pair(Kind::kAllGather, 4095), {Kind::kReduceScatter, 2048}, {Kind::kAllToAll, 2048}}) {
    SCOPED_TRACE(plan::KindName(kind));
    Query query;
    query.contract = {kind, ranks, 0};
    query.block_bytes = 16 << 20;
    query.access = Access::kMapped;
    const Choice choice = chooser->Choose(query);
    EXPECT_EQ(choice.algorithm, algo::kDirect);
    // The program of one rank shows the size of the whole.
    const plan::Schedule s =
        algo::Generate(query.contract, choice.algorithm, choice.lanes, {}, {&algo::kStandsForAll, 1}).value();
    EXPECT_TRUE(verify::Fits(s, choice.lanes, choice.lanes)) << choice.lanes;
    EXPECT_FALSE(verify::Fits(s, 4, 4));
  }
}

}  // namespace
}  // namespace axccl::tune
