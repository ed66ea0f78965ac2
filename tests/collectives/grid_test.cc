// Every collective x element type x reduction x count, for every number of ranks and layout, with buffers of all kinds.
#include <gtest/gtest.h>

#include <functional>
#include <string_view>

#include "tests/collectives/cases.h"
#include "tests/harness/case_runner.h"
#include "tests/harness/gpu.h"

namespace axccl::tests {
namespace {

using harness::Case;
using harness::CaseRunner;
using harness::Choice;
using harness::Clique;
using harness::FullTests;
using harness::IsSampled;
using harness::Layout;
using harness::RankContext;
using harness::RunOptions;
using harness::RunRanks;
using harness::Scramble;
using harness::Seed;
using harness::Style;

constexpr size_t kArenaBytes = size_t{4} << 20;

// Runs the cases in batches of random length, without synchronisation inside a batch.
void RunCases(RankContext& context, const std::vector<Case>& cases, const Style& style, size_t arena_bytes) {
  Clique clique;
  ASSERT_TRUE(clique.Init(context));
  CaseRunner runner(context, clique, arena_bytes);
  harness::Random random(Seed());
  for (const Case& c : cases) {
    ASSERT_TRUE(runner.Enqueue(c, style));
    if (random.OneIn(12)) {
      ASSERT_TRUE(runner.Finish());
    }
  }
  ASSERT_TRUE(runner.Finish());
}

RunOptions Limit(int seconds) {
  RunOptions options;
  options.deadline = std::chrono::seconds(seconds);
  return options;
}

uint64_t Number(const Layout& layout) {
  return static_cast<uint64_t>(layout.processes * 100 + layout.threads * 10 + layout.ranks);
}

class GridTest : public testing::TestWithParam<Layout> {};

// The GPU may be one in software, which is slow.
TEST_P(GridTest, EveryCallTypeFoldAndSmallCount) {
  const int nranks = GetParam().nranks();
  const std::vector<size_t> counts(std::begin(kSmallCounts), std::end(kSmallCounts));
  std::vector<Case> cases;
  for (const Case& c : AllCases(nranks, counts, Scramble(Seed(), 1)))
    if (IsSampled(c.seed, Number(GetParam()), harness::OnGpu() ? 3 : 2)) cases.push_back(c);
  RunRanks(
      GetParam(), [&](RankContext& context) { RunCases(context, cases, {}, kArenaBytes); }, Limit(40));
}

// Layouts that cover every link and an odd, an even and a large number of ranks; others run only in full runs.
bool RunsLarge(const Layout& layout) {
  if (FullTests() || layout.nranks() <= 2) return true;
  return layout.ranks == 1 && (layout.nranks() == 3 || layout.processes == 8 || layout.processes * layout.threads == 4);
}

TEST_P(GridTest, LargeCounts) {
  if (!RunsLarge(GetParam())) GTEST_SKIP() << "only with AXCCL_TEST_FULL=1";
  std::vector<Case> cases;
  const size_t counts[] = {4099, 65537, (size_t{1} << 20) - 3};
  for (const Case& c : AllCases(GetParam().nranks(), {1}, Scramble(Seed(), 2))) {
    const bool fold = c.fold == harness::Fold::kSum || c.fold == harness::Fold::kAvg;
    const bool type = c.type == ncclFloat32 || c.type == ncclBfloat16 || c.type == ncclInt8;
    if (!fold || !type) continue;
    for (const size_t count : counts) {
      // One case of the largest count per call crosses every threshold.
      if (count > 70000 && (c.type != ncclFloat32 || c.fold != harness::Fold::kSum) && !FullTests()) continue;
      if (!IsSampled(c.seed, count * 1000 + Number(GetParam()))) continue;
      Case large = c;
      large.count = count / (count > 70000 ? static_cast<size_t>((GetParam().nranks() + 3) / 4) : 1);
      cases.push_back(large);
    }
  }
  RunRanks(
      GetParam(), [&](RankContext& context) { RunCases(context, cases, {}, size_t{80} << 20); },
      Limit(FullTests() ? 300 : 50));
}

std::vector<Layout> Layouts() {
  std::vector<Layout> layouts;
  for (const int n : {1, 2, 3, 4, 5, 8}) {
    layouts.push_back(harness::Processes(n));
    if (n == 1) continue;
    layouts.push_back(harness::Threads(n));
    layouts.push_back(harness::OneThread(n));
  }
  layouts.push_back({2, 2, 1});
  layouts.push_back({2, 1, 2});
  layouts.push_back({2, 2, 2});
  return layouts;
}

INSTANTIATE_TEST_SUITE_P(Layouts, GridTest, testing::ValuesIn(Layouts()),
                         [](const auto& info) { return info.param.Text(); });

// ---- buffers: each placement alone, so that a failure names the cause ----

struct StyleCase {
  const char* name;
  Style style;
};

class BufferTest : public testing::TestWithParam<std::tuple<StyleCase, Layout>> {};

TEST_P(BufferTest, AllCallsAreRight) {
  const auto& [style, layout] = GetParam();
  std::vector<Case> cases;
  for (const Case& c : AllCases(layout.nranks(), {1, 77, 5000, 40000}, Scramble(Seed(), 3))) {
    const bool type = c.type == ncclFloat64 || c.type == ncclFloat16 || c.type == ncclUint8;
    const bool fold = c.fold == harness::Fold::kSum || c.fold == harness::Fold::kMax;
    if (type && fold && IsSampled(c.seed, std::hash<std::string_view>()(style.name) + Number(layout)))
      cases.push_back(c);
  }
  RunRanks(
      layout, [&, style = style.style](RankContext& context) { RunCases(context, cases, style, size_t{16} << 20); },
      Limit(30));
}

constexpr StyleCase kStyles[] = {
    {"MemAllocAligned", {Choice::kNo, Choice::kYes, Choice::kNo}},
    {"MemAllocMisaligned", {Choice::kNo, Choice::kYes, Choice::kYes}},
    {"MemAllocInPlace", {Choice::kYes, Choice::kYes, Choice::kNo}},
    {"MallocAligned", {Choice::kNo, Choice::kNo, Choice::kNo}},
    {"MallocMisaligned", {Choice::kNo, Choice::kNo, Choice::kYes}},
    {"MallocInPlace", {Choice::kYes, Choice::kNo, Choice::kRandom}},
    {"MixedMemory", {Choice::kNo, Choice::kRandom, Choice::kNo}},
    {"MixedInPlace", {Choice::kRandom, Choice::kYes, Choice::kNo}},
};

INSTANTIATE_TEST_SUITE_P(Styles, BufferTest,
                         testing::Combine(testing::ValuesIn(kStyles),
                                          testing::Values(harness::Processes(3), harness::Threads(3))),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param).name) + std::get<1>(info.param).Text();
                         });

// ---- roots ----

TEST(Roots, EveryRootOfEveryRootedCall) {
  std::vector<Case> cases;
  for (const harness::Call call : {harness::Call::kReduce, harness::Call::kBroadcast, harness::Call::kBcast,
                                   harness::Call::kGather, harness::Call::kScatter}) {
    for (int root = 0; root < 5; ++root) {
      for (const size_t count : {1, 333, 20000}) {
        cases.push_back({call, ncclInt32, harness::Fold::kSum, count, root, Scramble(Seed(), cases.size())});
      }
    }
  }
  for (const Layout& layout : {harness::Processes(5), harness::Threads(5), harness::OneThread(5)}) {
    RunRanks(
        layout, [&](RankContext& context) { RunCases(context, cases, {}, size_t{8} << 20); }, Limit(20));
  }
}

}  // namespace
}  // namespace axccl::tests
