// What a process keeps of plans: its ranks' own programs, and only the plans that its ranks may still ask for.
#include "src/comm/programs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "src/base/lru_cache.h"
#include "src/exec/prepared/outbound.h"
#include "tests/harness/failing_new.h"
#include "tests/harness/run_ranks.h"

namespace axccl::comm {
namespace {

using plan::Contract;
using plan::Kind;

constexpr size_t kPlenty = size_t{1} << 30;

std::shared_ptr<const exec::Program> Get(Programs* programs, const Programs::Request& request) {
  auto program = programs->Get(request);
  EXPECT_TRUE(program.ok()) << program.status().message();
  return program.ok() ? *program : nullptr;
}

// Broadcasts from every root, as optimisers that shard their state make them; each plan has the operations of all
// ranks.
size_t BytesOfAllRoots(int ranks, std::string_view algorithm) {
  Programs programs(kPlenty, kPlenty);
  for (int root = 0; root < ranks; ++root) {
    const auto program = Get(&programs, {{Kind::kBroadcast, ranks, root}, algorithm});
    EXPECT_TRUE(program->plan->schedule.program.empty());
    EXPECT_EQ(program->plan->schedule.contract.root, root);
  }
  const Programs::Usage usage = programs.usage();
  EXPECT_EQ(usage.plans, 0u) << "no other rank of the process will ask for it";
  EXPECT_EQ(usage.programs, static_cast<size_t>(ranks));
  EXPECT_EQ(usage.made, static_cast<uint64_t>(ranks));
  return usage.program_bytes;
}

TEST(ProgramsTest, ARankKeepsItsOwnProgramOfEveryRoot) {
  for (const std::string_view algorithm : {"direct", "oneshot", "tree", "ring"}) {
    const size_t of_16 = BytesOfAllRoots(16, algorithm), of_32 = BytesOfAllRoots(32, algorithm);
    // A program's length grows at most with the number of ranks, so twice the ranks take at most four times the memory.
    EXPECT_LE(of_32, 4 * of_16) << algorithm;
    EXPECT_LE(of_32, 32 * 4096u) << algorithm;
  }
}

TEST(ProgramsTest, RanksOfAProcessShareAPlanUntilAllHaveTheirs) {
  Programs programs(kPlenty, kPlenty);
  for (int root = 0; root < 4; ++root) {
    for (int rank = 0; rank < 8; ++rank) {
      EXPECT_EQ(programs.usage().plans, rank == 0 ? 0u : 1u);
      Programs::Request request{{Kind::kBroadcast, 8, root}, "oneshot"};
      request.rank = rank;
      request.sharers = 8;
      EXPECT_EQ(Get(&programs, request)->rank, rank);
    }
  }
  EXPECT_EQ(programs.usage().plans, 0u);
  EXPECT_EQ(programs.usage().made, 4u);
}

// Threads are not in step: some ask for the program of a barrier while others ask for that of the collective before it.
TEST(ProgramsTest, PlansOfManyRanksAreKeptBesideEachOther) {
  const int ranks = harness::TimeScale() == 1 ? 256 : 32;
  Programs& programs = Programs::Process();
  const uint64_t made = programs.usage().made;
  std::vector<std::shared_ptr<const exec::Program>> used;
  for (int rank = 0; rank < ranks; ++rank) {
    for (const auto& [kind, algorithm] : {std::pair(Kind::kBarrier, "oneshot"), {Kind::kAllGather, "direct"}}) {
      Programs::Request request{{kind, ranks, 0}, algorithm};
      request.rank = rank;
      request.sharers = ranks;
      used.push_back(Get(&programs, request));
    }
  }
  EXPECT_EQ(programs.usage().made, made + 2);
  EXPECT_EQ(programs.usage().plans, 0u);
}

// Ranks that do not ask for their programs, and shapes that are no longer used, do not accumulate.
TEST(ProgramsTest, WhatIsKeptIsBounded) {
  constexpr size_t kMostPlans = 100'000, kMostPrograms = 50'000;
  Programs programs(kMostPlans, kMostPrograms);
  size_t largest = 0;
  for (const std::string_view algorithm : {"oneshot", "direct", "tree", "ring"}) {
    for (int root = 0; root < 32; ++root) {
      Programs::Request request{{Kind::kBroadcast, 32, root}, algorithm};
      request.sharers = 2;
      const auto program = Get(&programs, request);
      largest = std::max(largest, program->bytes());
      const Programs::Usage usage = programs.usage();
      EXPECT_TRUE(usage.plan_bytes <= kMostPlans || usage.plans == 1) << usage.plan_bytes;
      EXPECT_LE(usage.program_bytes, kMostPrograms);
    }
  }
  EXPECT_LT(largest, kMostPrograms / 4) << "the bound allows several programs";
  EXPECT_GT(programs.usage().programs, 4u);
}

// A communicator finds the programs that it uses without making them again, however many others were requested.
TEST(ProgramsTest, WhatIsUsedIsFound) {
  Programs programs(1, 1);  // keeps only the last of each
  std::vector<std::shared_ptr<const exec::Program>> used;
  for (int root = 0; root < 200; ++root) used.push_back(Get(&programs, {{Kind::kReduce, 200, root}, "tree"}));
  const uint64_t made = programs.usage().made;
  for (int root = 0; root < 200; ++root)
    EXPECT_EQ(Get(&programs, {{Kind::kReduce, 200, root}, "tree"}), used[static_cast<size_t>(root)]);
  EXPECT_EQ(programs.usage().made, made);
  const plan::Hash hash = used[0]->plan->hash;
  used.clear();
  const auto again = Get(&programs, {{Kind::kReduce, 200, 0}, "tree"});
  EXPECT_EQ(programs.usage().made, made + 1);
  EXPECT_EQ(again->plan->hash, hash) << "channels recognise the previous plan by its hash";
}

TEST(ProgramsTest, NamesOutliveThePlan) {
  Programs programs(1, 1);
  const char* const name = Get(&programs, {{Kind::kAllReduce, 4, 0}, "twoshot"})->algorithm;
  (void)Get(&programs, {{Kind::kAllReduce, 4, 0}, "ring"});
  EXPECT_STREQ(name, "twoshot");
}

// GPU ranks need the programs of all ranks; and between machines, a rank keeps what it sends with its signals.
TEST(ProgramsTest, KeepsWhatElseIsNeeded) {
  Programs programs(kPlenty, kPlenty);
  Programs::Request request{{Kind::kAllReduce, 4, 0}, "ring"};
  request.whole = true;
  EXPECT_EQ(Get(&programs, request)->plan->schedule.program.size(), 4u);
  request.whole = false;
  EXPECT_TRUE(Get(&programs, request)->plan->schedule.program.empty());
  EXPECT_EQ(Get(&programs, request)->outbound, nullptr);
  request.placement = plan::Placement::Of(std::vector<int>{0, 0, 1, 1});
  EXPECT_NE(Get(&programs, request)->outbound, nullptr);
}

// An entry for which memory ran out is not half kept: it would never be thrown away.
TEST(LruCacheTest, KeepsWholeEntriesOnly) {
  LruCache<int, int> cache(3);
  for (int key = 0; key < 20; ++key) {
    harness::FailEachNew([&] { cache.Insert(key, 10 * key, 1); }, [&] { EXPECT_EQ(cache.Find(key), nullptr); });
    EXPECT_EQ(*cache.Find(key), 10 * key);
    EXPECT_EQ(cache.size(), static_cast<size_t>(std::min(key + 1, 3)));
    EXPECT_EQ(cache.bytes(), cache.size());
  }
}

}  // namespace
}  // namespace axccl::comm
