// Collectives on views against their definition (view_cases.h): random shapes, placements, types, memory and
// algorithms, several at once, among NCCL calls, one by one, in lists and in groups. Every byte of every buffer is
// compared.
#include <gtest/gtest.h>

#include <string>

#include "tests/collectives/view_runner.h"
#include "tests/harness/gpu.h"

namespace axccl::tests {
namespace {

using harness::Clique;
using harness::Layout;
using harness::Random;
using harness::RankContext;
using harness::RunOptions;
using harness::RunRanks;
using harness::Scramble;
using harness::Seed;

constexpr int64_t kMostElements = 20000;

void RunViews(RankContext& context, uint64_t seed, int cases) {
  Clique clique;
  ASSERT_TRUE(clique.Init(context));
  ViewRunner runner(context, clique);
  Random random(seed);
  for (int i = 0; i < cases; ++i) {
    const int64_t most = random.OneIn(8) ? kMostElements : 300;
    ViewCases cases = {AnyViewCase(&random, clique.nranks(), most)};
    for (uint64_t more = random.OneIn(4) ? 1 + random.Below(random.OneIn(8) ? 40 : 6) : 0; more > 0; --more)
      cases.push_back(AnotherOperand(cases[0], &random, most));
    ASSERT_TRUE(runner.Enqueue(cases, random.OneIn(4)));
    if (random.OneIn(4)) {
      ASSERT_TRUE(runner.Finish());
    }
  }
  ASSERT_TRUE(runner.Finish());
}

void RunSplitRows(RankContext& context, uint64_t seed, int cases) {
  Clique clique;
  ASSERT_TRUE(clique.Init(context));
  ViewRunner runner(context, clique);
  Random random(seed);
  for (int i = 0; i < cases; ++i) {
    ASSERT_TRUE(runner.Enqueue({AnySplitRows(&random, clique.nranks())}, false));
    ASSERT_TRUE(runner.Finish());
  }
}

// Half of the cases unless all are asked for; a tenth on GPUs, because one in software is slow.
int Some(int cases) { return cases / (harness::AllTests() ? 1 : 2) / (harness::OnGpu() ? 10 : 1); }

class ViewTest : public testing::TestWithParam<Layout> {};

TEST_P(ViewTest, RandomCasesAgreeWithTheDefinition) {
  uint64_t round = static_cast<uint64_t>(GetParam().processes * 100 + GetParam().threads * 10 + GetParam().ranks);
  for (const char* algorithms : {"", "direct", "oneshot", "ring", "tree", "twoshot", "AllGather:bruck;AllReduce:rhd"}) {
    SCOPED_TRACE("NCCL_ALGO=" + std::string(algorithms) + " AXCCL_TEST_SEED=" + std::to_string(Seed()));
    const uint64_t seed = Scramble(Seed(), ++round);
    const int cases = Some(algorithms[0] == 0 ? 400 : 120);
    RunOptions options;
    // Little scratch memory, so that larger cases take several turns.
    options.environment = {{"NCCL_ALGO", algorithms}, {"AXCCL_SCRATCH_BYTES", "128K"}};
    RunRanks(
        GetParam(), [&](RankContext& context) { RunViews(context, seed, cases); }, options);
    if (HasFailure()) return;
  }
}

// Without and with group order.
TEST_P(ViewTest, RowsThatAreSplitAgreeWithTheDefinition) {
  uint64_t round = static_cast<uint64_t>(GetParam().processes * 100 + GetParam().threads * 10 + GetParam().ranks);
  for (const char* order : {"any", "group"}) {
    SCOPED_TRACE("AXCCL_ORDER=" + std::string(order) + " AXCCL_TEST_SEED=" + std::to_string(Seed()));
    const uint64_t seed = Scramble(Seed(), 0x7035, ++round);
    const int cases = Some(60);
    RunOptions options;
    options.environment = {{"AXCCL_ORDER", order}};
    RunRanks(
        GetParam(), [&](RankContext& context) { RunSplitRows(context, seed, cases); }, options);
    if (HasFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, ViewTest,
                         testing::Values(harness::Processes(1), harness::Processes(2), harness::Processes(3),
                                         harness::Processes(5), harness::Threads(2), harness::Threads(4),
                                         harness::OneThread(3), harness::OneThread(5), Layout{2, 2, 1},
                                         Layout{2, 1, 2}),
                         [](const auto& info) { return info.param.Text(); });

}  // namespace
}  // namespace axccl::tests
