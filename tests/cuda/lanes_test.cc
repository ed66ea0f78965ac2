// How many blocks of its GPU a call takes: as many as the GPU has multiprocessors for each of its ranks, however many
// other GPUs there are.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <algorithm>
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

// ---- minCTAs and maxCTAs ----

// Rank 0's are used.
void MakeClique(RankContext& context, int least, int most, Clique* clique) {
  ncclUniqueId id;
  ASSERT_TRUE(harness::ShareUniqueId(context, &id));
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  if (context.rank() == 0) {
    config.minCTAs = least;
    config.maxCTAs = most;
  }
  ncclComm_t comm = nullptr;
  ASSERT_OK(ncclCommInitRankConfig(&comm, context.nranks(), id, context.rank(), &config));
  ASSERT_TRUE(clique->Adopt(comm));
}

// Every rank exchanges that many messages with the other one, in one group.
int BlocksOfMessages(Clique& clique, int messages) {
  Words sent(static_cast<size_t>(messages)), received(static_cast<size_t>(messages));
  const int peer = 1 - clique.rank(0);
  EXPECT_OK(ncclGroupStart());
  for (int i = 0; i < messages; ++i) {
    EXPECT_OK(ncclSend(sent.get() + i, 1, ncclInt32, peer, clique.comm(), harness::Cuda(clique.stream())));
    EXPECT_OK(ncclRecv(received.get() + i, 1, ncclInt32, peer, clique.comm(), harness::Cuda(clique.stream())));
  }
  EXPECT_OK(ncclGroupEnd());
  const int blocks = LastBlocks();
  EXPECT_TRUE(clique.Synchronize());
  return blocks;
}

TEST(Lanes, AreAtMostMaxCtas) {
  const auto body = [](RankContext& context) {
    ASSERT_NE(EnterGpu(context.rank()), nullptr);
    for (const int most : {1, 3, 8, 100}) {
      Clique clique;
      ASSERT_NO_FATAL_FAILURE(MakeClique(context, 1, most, &clique));
      EXPECT_EQ(BlocksOfSum(clique, kLarge), std::min(most, kMultiprocessors));
      EXPECT_EQ(BlocksOfMessages(clique, 4), std::min(most, 2));  // one each way
      ASSERT_TRUE(context.Barrier());
    }
  };
  RunRanks(harness::Processes(2), body, Gpus(2));
}

TEST(Lanes, AreAtLeastMinCtasIfTheCallIsLarge) {
  const auto body = [](RankContext& context) {
    ASSERT_NE(EnterGpu(context.rank()), nullptr);
    constexpr size_t kWordsOfLane = 2048;
    for (const int least : {1, 4, 8, 30}) {
      Clique clique;
      ASSERT_NO_FATAL_FAILURE(MakeClique(context, least, 64, &clique));
      EXPECT_GE(BlocksOfSum(clique, static_cast<size_t>(least) * kWordsOfLane), std::min(least, kMultiprocessors));
      EXPECT_EQ(BlocksOfSum(clique, 1), 1);
      ASSERT_TRUE(context.Barrier());
    }
  };
  RunRanks(harness::Processes(2), body, Gpus(2));
}

TEST(Lanes, TheEnvironmentHasPrecedence) {
  for (const char* name : {"NCCL_MAX_CTAS", "NCCL_MAX_NCHANNELS"}) {
    RunOptions options = Gpus(2);
    options.environment.emplace_back(name, "2");
    const auto body = [](RankContext& context) {
      ASSERT_NE(EnterGpu(context.rank()), nullptr);
      Clique clique;
      ASSERT_NO_FATAL_FAILURE(MakeClique(context, 1, 7, &clique));
      EXPECT_EQ(BlocksOfSum(clique, kLarge), 2);
      ASSERT_TRUE(context.Barrier());
    };
    RunRanks(harness::Processes(2), body, options);
  }
}

// A child has what its parent has, unless it is given a configuration of its own.
TEST(Lanes, ChildrenWithoutAConfigurationInheritTheBounds) {
  const auto body = [](RankContext& context) {
    ASSERT_NE(EnterGpu(context.rank()), nullptr);
    Clique parent;
    ASSERT_NO_FATAL_FAILURE(MakeClique(context, 4, 4, &parent));
    ncclConfig_t two = NCCL_CONFIG_INITIALIZER, unset = NCCL_CONFIG_INITIALIZER;
    two.maxCTAs = 2;
    for (ncclConfig_t* const config : {static_cast<ncclConfig_t*>(nullptr), &two, &unset}) {
      ncclComm_t comm = nullptr;
      ASSERT_OK(ncclCommSplit(parent.comm(), 0, context.rank(), &comm, config));
      Clique child;
      ASSERT_TRUE(child.Adopt(comm));
      EXPECT_EQ(BlocksOfSum(child, kLarge), config == nullptr ? 4 : config == &two ? 2 : kMultiprocessors);
      ASSERT_TRUE(context.Barrier());
    }
  };
  RunRanks(harness::Processes(2), body, Gpus(2));
}

}  // namespace
}  // namespace axccl::tests
