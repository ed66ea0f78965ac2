// NCCL_ALGO forces each algorithm: every call that has the forced algorithm uses it, and is right.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <string_view>

#include "tests/collectives/cases.h"
#include "tests/harness/case_runner.h"
#include "tests/harness/gpu.h"

namespace axccl::tests {
namespace {

using harness::Call;
using harness::Case;
using harness::CaseRunner;
using harness::Clique;
using harness::Fold;
using harness::Layout;
using harness::RankContext;
using harness::RunOptions;
using harness::RunRanks;
using harness::Scramble;
using harness::Seed;

struct Forced {
  const char* name;
  std::vector<Call> calls;  // the calls that must have the algorithm

  bool Has(Call call) const { return std::find(calls.begin(), calls.end(), call) != calls.end(); }
};

const std::vector<Forced>& AllForced() {
  static const std::vector<Forced> all = {
      {"oneshot", {Call::kAllReduce, Call::kReduceScatter, Call::kAllGather, Call::kBroadcast, Call::kAllToAll}},
      {"direct", {Call::kAllReduce, Call::kReduceScatter, Call::kAllGather, Call::kBroadcast, Call::kAllToAll}},
      {"twoshot", {Call::kAllReduce}},
      {"ring", {Call::kAllReduce, Call::kReduceScatter, Call::kAllGather}},
      {"tree", {Call::kAllReduce, Call::kReduce, Call::kBroadcast}},
      {"rhd", {Call::kAllReduce}},
      {"bruck", {Call::kAllGather}},
      {"pairwise", {Call::kAllToAll}},
      {"ring_pull", {Call::kAllReduce, Call::kAllGather}},
      {"pull", {Call::kAllReduce, Call::kReduce, Call::kBroadcast, Call::kAllGather, Call::kGather}},
      {"push", {Call::kAllToAll, Call::kReduceScatter}},
  };
  return all;
}

void RunForced(RankContext& context, const Forced& forced, const std::vector<Case>& cases) {
  Clique clique;
  ASSERT_TRUE(clique.Init(context));
  CaseRunner runner(context, clique, size_t{24} << 20);
  harness::Random random(Seed());
  for (const Case& c : cases) {
    ASSERT_TRUE(runner.Enqueue(c, {}));
    if (forced.Has(c.call) && c.count > 0 && clique.nranks() > 1 && random.OneIn(3)) {
      const char* taken = nullptr;
      ASSERT_TRUE(runner.Finish());  // the algorithm is known when the operation has ended
      ASSERT_OK(axcclCommGetLastAlgorithm(clique.comm(), &taken));
      // The library only reads plain memory of other processes.
      const std::string_view name = forced.name, took = taken;
      const bool pulled = name == "direct" && took == "pull" && context.layout().processes > 1;
      const bool read = name == "ring" && took == "ring_pull" && harness::OnGpu();
      if (!pulled && !read) {
        ASSERT_STREQ(taken, forced.name) << c.Text();
      }
    }
    if (random.OneIn(10)) {
      ASSERT_TRUE(runner.Finish());
    }
  }
  ASSERT_TRUE(runner.Finish());
}

class AlgorithmTest : public testing::TestWithParam<std::tuple<Forced, Layout>> {};

TEST_P(AlgorithmTest, ForcedAndRight) {
  const auto& [forced, layout] = GetParam();
  if (std::string_view(forced.name).starts_with("hierarchical") && std::getenv("AXCCL_TEST_HOSTS") == nullptr)
    GTEST_SKIP() << "needs ranks on several machines";
  std::vector<Case> cases;
  for (const size_t count : {1, 5, 64, 1009, 12011}) {
    for (const Case& c : AllCases(layout.nranks(), {count}, Scramble(Seed(), count))) {
      // Calls that do not have the algorithm use the one they would use unforced, which the grid tests: here only a few
      // small ones run in between.
      const bool in_between = c.type == ncclFloat32 && c.fold == Fold::kSum && (count == 64 || count == 12011);
      if (!forced.Has(c.call) && !in_between) continue;
      const bool type = c.type == ncclFloat32 || c.type == ncclFloat16 || c.type == ncclInt64;
      const bool fold = c.fold == Fold::kSum || c.fold == Fold::kAvg || c.fold == Fold::kMin;
      if (type && fold && harness::IsSampled(c.seed, static_cast<uint64_t>(layout.nranks()))) cases.push_back(c);
    }
  }
  RunOptions options;
  // Little scratch memory, so that the largest counts take many turns.
  options.environment = {{"NCCL_ALGO", forced.name}, {"AXCCL_SCRATCH_BYTES", "256K"}};
  RunRanks(
      layout, [&, forced = forced](RankContext& context) { RunForced(context, forced, cases); }, options);
}

INSTANTIATE_TEST_SUITE_P(
    Algorithms, AlgorithmTest,
    testing::Combine(testing::ValuesIn(AllForced()),
                     testing::Values(harness::Threads(2), harness::Threads(5), harness::Processes(3),
                                     harness::Processes(4), harness::Processes(8), harness::OneThread(7))),
    [](const auto& info) { return std::string(std::get<0>(info.param).name) + std::get<1>(info.param).Text(); });

const std::vector<Forced>& AllHierarchical() {
  static const std::vector<Forced> all = {
      {"hierarchical",
       {Call::kAllReduce, Call::kReduce, Call::kReduceScatter, Call::kBroadcast, Call::kAllGather, Call::kAllToAll,
        Call::kGather, Call::kScatter}},
      {"hierarchical_ring", {Call::kAllReduce, Call::kReduceScatter, Call::kAllGather}},
      {"hierarchical_tree", {Call::kAllReduce, Call::kReduce, Call::kBroadcast}},
      {"hierarchical_rhd", {Call::kAllReduce, Call::kReduceScatter}},
      {"hierarchical_bruck", {Call::kAllReduce, Call::kAllGather, Call::kAllToAll}},
      {"hierarchical_leader", {Call::kAllReduce}},
  };
  return all;
}

INSTANTIATE_TEST_SUITE_P(
    Machines, AlgorithmTest,
    testing::Combine(testing::ValuesIn(AllHierarchical()),
                     testing::Values(harness::Processes(3), harness::Processes(4), Layout{2, 2, 1})),
    [](const auto& info) { return std::string(std::get<0>(info.param).name) + std::get<1>(info.param).Text(); });

TEST(Algorithm, UnknownNameFailsInitAndListsTheKnown) {
  RunOptions options;
  options.environment = {{"NCCL_ALGO", "quicksort"}};
  RunRanks(
      harness::Processes(2),
      [](RankContext& context) {
        harness::ExpectNoInit(context, ncclInvalidArgument, {"quicksort", "ring"});
      },
      options);
}

TEST(Algorithm, PerCallListsApplyToTheirCall) {
  RunOptions options;
  options.environment = {{"NCCL_ALGO", "AllReduce:Ring;AllGather:bruck"}};
  RunRanks(
      harness::Threads(3),
      [](RankContext& context) {
        Clique clique;
        ASSERT_TRUE(clique.Init(context));
        CaseRunner runner(context, clique, size_t{1} << 20);
        const char* taken = nullptr;
        ASSERT_TRUE(runner.Run({Call::kAllReduce, ncclFloat32, Fold::kSum, 100, 0, Seed()}, {}));
        ASSERT_OK(axcclCommGetLastAlgorithm(clique.comm(), &taken));
        EXPECT_STREQ(taken, "ring");
        ASSERT_TRUE(runner.Run({Call::kAllGather, ncclFloat32, Fold::kSum, 100, 0, Seed()}, {}));
        ASSERT_OK(axcclCommGetLastAlgorithm(clique.comm(), &taken));
        EXPECT_STREQ(taken, "bruck");
      },
      options);
}

}  // namespace
}  // namespace axccl::tests
