// How many blocks of its GPU a call takes: as many as the GPU has multiprocessors for each of its ranks, however many
// other GPUs there are.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/cuda/words.h"

namespace axccl::tests {
namespace {

using harness::Clique;
using harness::EnterGpu;
using harness::Layout;
using harness::RankContext;
using harness::RunOptions;
using harness::RunRanks;

constexpr int kMultiprocessors = 8;
constexpr size_t kLarge = 1 << 20;

RunOptions Gpus(int devices) {
  RunOptions options;
  options.environment = {{"SOFTGPU_DEVICES", std::to_string(devices)},
                         {"SOFTGPU_MULTIPROCESSORS", std::to_string(kMultiprocessors)}};
  return options;
}

// Blocks of the last launch of this process; 0 if no software GPU counts them.
int LastBlocks() {
  void* const library = dlopen("libcuda.so.1", RTLD_NOW);
  auto* const last = reinterpret_cast<uint64_t (*)()>(dlsym(library, "softgpu_last_blocks"));
  return last == nullptr ? 0 : static_cast<int>(last());
}

int BlocksOfSum(Clique& clique, size_t size) {
  Words words(size, 1);
  EXPECT_OK(Sum(&words, &words, clique.comm(), clique.stream()));
  const int blocks = LastBlocks();
  EXPECT_TRUE(clique.Synchronize());
  EXPECT_TRUE(words.AreAll(clique.nranks()));
  return blocks;
}

TEST(Lanes, ARankHasItsGpuToItself) {
  RunRanks(
      harness::Processes(4),
      [](RankContext& context) {
        ASSERT_NE(EnterGpu(context.rank()), nullptr);
        Clique clique;
        ASSERT_TRUE(clique.Init(context));
        EXPECT_EQ(BlocksOfSum(clique, kLarge), kMultiprocessors);
        EXPECT_EQ(BlocksOfSum(clique, 1), 1);
        ASSERT_TRUE(context.Barrier());
      },
      Gpus(4));
}

TEST(Lanes, RanksShareTheGpuThatIsTheirs) {
  RunRanks(
      harness::Processes(4),
      [](RankContext& context) {
        ASSERT_NE(EnterGpu(context.rank() % 2), nullptr);
        Clique clique;
        ASSERT_TRUE(clique.Init(context));
        EXPECT_EQ(BlocksOfSum(clique, kLarge), kMultiprocessors / 2);
        ASSERT_TRUE(context.Barrier());
      },
      Gpus(2));
}

// All ranks have the same plan, so the GPU with the most ranks decides. Ranks of a group on other GPUs share nothing.
TEST(Lanes, TheFullestGpuCounts) {
  RunRanks(
      harness::Processes(4),
      [](RankContext& context) {
        ASSERT_NE(EnterGpu(context.rank() == 3 ? 1 : 0), nullptr);
        Clique clique;
        ASSERT_TRUE(clique.Init(context));
        EXPECT_EQ(BlocksOfSum(clique, kLarge), kMultiprocessors / 3);
        ASSERT_TRUE(context.Barrier());
        ncclComm_t half = nullptr;
        ASSERT_OK(ncclCommSplit(clique.comm(), context.rank() / 2, 0, &half, nullptr));
        Clique pair;
        ASSERT_TRUE(pair.Adopt(half));
        EXPECT_EQ(BlocksOfSum(pair, kLarge), context.rank() < 2 ? kMultiprocessors / 2 : kMultiprocessors);
        ASSERT_TRUE(context.Barrier());
      },
      Gpus(2));
}

}  // namespace
}  // namespace axccl::tests
