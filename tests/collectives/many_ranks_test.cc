// 16 to 64 ranks on few cores: far more ranks than cores make progress, and are right.
#include <gtest/gtest.h>

#include "tests/collectives/cases.h"
#include "tests/harness/case_runner.h"

namespace axccl::tests {
namespace {

using harness::Case;
using harness::CaseRunner;
using harness::Clique;
using harness::Fold;
using harness::IsSampled;
using harness::Layout;
using harness::RankContext;
using harness::RunOptions;
using harness::RunRanks;
using harness::Scramble;
using harness::Seed;

// A type's arithmetic does not depend on the number of ranks, so with more than 16 of them each call, fold and count
// has one of three types, in turn, and the seed draws half of those.
bool IsTurnOf(const Case& c) {
  const int type = c.type == ncclFloat32 ? 0 : c.type == ncclInt8 ? 1 : 2;
  const int count = c.count == 1 ? 0 : c.count == 65 ? 1 : 2;
  return (type + count + static_cast<int>(c.fold)) % 3 == 0;
}

class ManyRanksTest : public testing::TestWithParam<Layout> {};

TEST_P(ManyRanksTest, EveryCall) {
  const int nranks = GetParam().nranks();
  std::vector<Case> cases;
  for (const Case& c : AllCases(nranks, {1, 65, 1009}, Scramble(Seed(), 20))) {
    const bool type = c.type == ncclFloat32 || c.type == ncclInt8 || c.type == ncclFloat8e4m3;
    const bool fold = c.fold == Fold::kSum || c.fold == Fold::kAvg || c.fold == Fold::kMax;
    if (!type || !fold) continue;
    if (nranks > 16 && !harness::FullTests() && !(IsTurnOf(c) && IsSampled(c.seed, GetParam().processes))) continue;
    cases.push_back(c);
    // A plan for each of 64 roots would mainly measure the verifier.
    cases.back().root = c.root % 3 * (nranks - 1) / 2;
  }
  RunOptions options;
  options.deadline = std::chrono::seconds(harness::FullTests() ? 300 : 45);
  RunRanks(
      GetParam(),
      [&](RankContext& context) {
        Clique clique;
        ASSERT_TRUE(clique.Init(context));
        CaseRunner runner(context, clique, size_t{3} << 20);
        for (const Case& c : cases) ASSERT_TRUE(runner.Enqueue(c, {}));
        ASSERT_TRUE(runner.Finish());
      },
      options);
}

INSTANTIATE_TEST_SUITE_P(Layouts, ManyRanksTest,
                         testing::Values(harness::Processes(16), harness::Threads(16), harness::OneThread(16),
                                         harness::Processes(33), harness::Threads(33), Layout{4, 4, 4},
                                         harness::Processes(64), harness::Threads(64), harness::OneThread(64)),
                         [](const auto& info) { return info.param.Text(); });

}  // namespace
}  // namespace axccl::tests
