// Calls with parts of different sizes against their definition: random extents (0 among them), offsets, spare rows,
// shapes, strides, types, lists, memory and algorithms. Every byte of every buffer is compared.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "tests/collectives/uneven_cases.h"
#include "tests/harness/client.h"
#include "tests/harness/gpu.h"
#include "tests/harness/networks.h"

namespace axccl::tests {
namespace {

using harness::Clique;
using harness::Cuda;
using harness::GuardedArena;
using harness::Layout;
using harness::Memory;
using harness::Random;
using harness::RankContext;
using harness::RunOptions;
using harness::RunRanks;
using harness::Scramble;
using harness::Seed;

void RunCases(RankContext& context, uint64_t seed, int cases) {
  Clique clique;
  ASSERT_TRUE(clique.Init(context));
  std::vector<std::vector<std::unique_ptr<GuardedArena>>> arenas(static_cast<size_t>(clique.size()));
  for (auto& own : arenas) {
    for (const Memory memory : {Memory::kMemAlloc, Memory::kMalloc})
      own.push_back(GuardedArena::Create(memory, size_t{48} << 20));
  }
  Random random(seed);
  for (int i = 0; i < cases; ++i) {
    const UnevenCase c = AnyUnevenCase(&random, clique.nranks(), 400);
    // Only host ranks support numbers that are read when the call starts.
    if (harness::OnGpu() && c.op >= UnevenOp::kRagged) continue;
    ASSERT_TRUE(context.Step("%s", c.Text().c_str()));
    std::vector<std::unique_ptr<UnevenPart>> parts;
    for (int m = 0; m < clique.size(); ++m)
      parts.push_back(std::make_unique<UnevenPart>(c, clique.rank(m), &arenas[static_cast<size_t>(m)]));
    ASSERT_OK(ncclGroupStart());
    for (int m = 0; m < clique.size(); ++m)
      EXPECT_OK(parts[static_cast<size_t>(m)]->Launch(axcclDefaultChannel(clique.comm(m)), Cuda(clique.stream(m))))
          << c.Text();
    ASSERT_OK(ncclGroupEnd()) << c.Text();
    ASSERT_TRUE(clique.Synchronize()) << c.Text();
    for (const auto& part : parts) part->Check();
    for (auto& own : arenas) {
      for (auto& arena : own) {
        EXPECT_EQ(arena->CheckSentinels(), "") << c.Text();
        arena->Reset();
      }
    }
    ASSERT_FALSE(testing::Test::HasFailure());
  }
}

class UnevenTest : public testing::TestWithParam<Layout> {};

TEST_P(UnevenTest, RandomCasesAgreeWithTheDefinition) {
  uint64_t round = static_cast<uint64_t>(GetParam().processes * 100 + GetParam().threads * 10 + GetParam().ranks);
  for (const char* algorithms : {"", "ring"}) {
    const uint64_t seed = Scramble(Seed(), ++round, 0xbe7);
    RunOptions options;
    options.environment = {{"NCCL_ALGO", algorithms}, {"AXCCL_SCRATCH_BYTES", "128K"}};
    RunRanks(
        GetParam(), [&](RankContext& context) { RunCases(context, seed, harness::OnGpu() ? 120 : 250); }, options);
    if (HasFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, UnevenTest,
                         testing::Values(harness::Processes(1), harness::Processes(2), harness::Processes(3),
                                         harness::Processes(5), harness::Threads(2), harness::Threads(4),
                                         harness::OneThread(3), Layout{2, 2, 1}, Layout{2, 1, 2}),
                         [](const auto& info) { return info.param.Text(); });

// The algorithm with which each byte of an all-gather crosses between machines once, not once for every rank there.
TEST(Uneven, AllGathersBetweenMachinesAreHierarchical) {
  if (harness::OnGpu()) GTEST_SKIP() << "GPU ranks make uneven calls in even parts";
  if (access(harness::kNetworks, F_OK) != 0) GTEST_SKIP() << harness::kNoNetworks;
  RunRanks(harness::Processes(5), [](RankContext& context) {
    setenv("NCCL_HOSTID", context.rank() < 3 ? "one" : "two", 1);
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    const std::vector<int64_t> extents = {3, 0, 70000, 1, 5};
    int64_t all = 0, before = 0;
    for (int r = 0; r < 5; ++r) {
      before += r < context.rank() ? extents[static_cast<size_t>(r)] : 0;
      all += extents[static_cast<size_t>(r)];
    }
    std::vector<int32_t> sent(static_cast<size_t>(extents[static_cast<size_t>(context.rank())]) + 1);
    for (size_t i = 0; i < sent.size(); ++i) sent[i] = static_cast<int32_t>(before) + static_cast<int32_t>(i);
    std::vector<int32_t> received(static_cast<size_t>(all), -1);
    const int64_t own = static_cast<int64_t>(sent.size()) - 1;
    axcclView_t in = AXCCL_VIEW_INITIALIZER, out = AXCCL_VIEW_INITIALIZER;
    in.data = sent.data(), in.datatype = ncclInt32, in.num_dims = 1, in.sizes = &own;
    out.data = received.data(), out.datatype = ncclInt32, out.num_dims = 1, out.sizes = &all;
    ASSERT_OK(axcclAllGatherV(1, &in, &out, 0, extents.data(), axcclDefaultChannel(clique.comm()), nullptr,
                              Cuda(clique.stream())));
    ASSERT_TRUE(clique.Synchronize());
    for (size_t i = 0; i < received.size(); ++i) ASSERT_EQ(received[i], static_cast<int32_t>(i));
    const char* taken = nullptr;
    ASSERT_OK(axcclCommGetLastAlgorithm(clique.comm(), &taken));
    EXPECT_STREQ(taken, "hierarchical");
  });
}

}  // namespace
}  // namespace axccl::tests
