// Events that end operations early: the host's abort, calls that do not match, and channels that broke before.

#include <gtest/gtest.h>

#include "tests/kernels/cuda/kernel_on_fibers.h"
#include "tests/kernels/cuda/random_calls.h"
#include "tests/kernels/cuda/scenarios.h"
#include "tests/kernels/cuda/world.h"

namespace axccl::kernels::cuda {
namespace {

TEST(CudaFailure, EverythingEndsAfterAnAbort) {
  harness::Random random(harness::Seed() + 2);
  for (int repeat = 0; repeat < 100; ++repeat) ASSERT_EQ(RunAborted(RunKernel, random.Next()), "");
}

TEST(CudaFailure, AnAbortSetsTheWordsOfChunks) {
  harness::Random random(harness::Seed() + 5);
  for (int repeat = 0; repeat < 100; ++repeat) ASSERT_EQ(RunAbortedPipelines(RunKernel, random.Next()), "");
}

TEST(CudaFailure, FindsCallsThatDoNotMatch) {
  harness::Random random(harness::Seed() + 3);
  for (int repeat = 0; repeat < 100; ++repeat) ASSERT_EQ(RunMismatched(RunKernel, random.Next()), "");
}

// Several ranks run in one block, and each ends when the host aborts it.
TEST(CudaFailure, EveryStrandSeesItsAbort) {
  constexpr int kRanks = 5;
  World world(kRanks, 1, 1);
  CallSpec call;
  call.algorithm = "oneshot";
  call.count = 16;
  world.Add(call, 1u << (kRanks - 1));
  int aborted = 0;  // the number of ranks aborted so far, one after the other
  const auto reported = [&](int rank) { return __atomic_load_n(&world.control(rank).report, __ATOMIC_RELAXED) != 0; };
  fibers::Options options;
  options.host = [&] {
    if (aborted != 0 && !reported(aborted - 1)) return;
    if (aborted < kRanks) __atomic_store_n(&world.control(aborted++).abort, 1, __ATOMIC_RELAXED);
  };
  World::Shape shape;
  shape.together = true;
  ASSERT_TRUE(world.Run(RunKernel, shape, options)) << aborted;
}

// The second of two operations waits for the rank that does not call it; the first may have waited, too.
TEST(CudaFailure, PublishesWhatItWaitsFor) {
  harness::Random random(harness::Seed() + 4);
  for (int repeat = 0; repeat < 30; ++repeat) {
    const uint64_t seed = random.Next();
    World world(3, 2, seed);
    CallSpec first, second;
    first.algorithm = second.algorithm = "twoshot";
    first.lanes = second.lanes = 2;
    first.count = 40;
    second.count = 300;
    second.kind = plan::Kind::kAllReduce;
    world.Add(first);
    world.Add(second, 1u << 2);
    fibers::Options options;
    options.seed = seed;
    int looks = 0;
    uint64_t last = 0;
    options.host = [&] {
      const uint64_t look = __atomic_load_n(&world.wait(0).look, __ATOMIC_ACQUIRE);
      looks += look != last && Wait::SequenceOf(look) == 1 && Wait::PositionOf(look) == 2;
      last = look;
      if (looks < 5) return;
      for (int rank = 0; rank < 2; ++rank) __atomic_store_n(&world.control(rank).abort, 1, __ATOMIC_RELAXED);
    };
    ASSERT_TRUE(world.Run(RunKernel, World::Shape(), options)) << seed;
    EXPECT_EQ(world.wait(0).count, 300u) << seed;
  }
}

// The members never meet.
TEST(CudaFailure, AnAbortEndsAMeeting) {
  World world(3, 2, 1);
  CallSpec call;
  call.algorithm = "twoshot";
  call.lanes = 2;
  call.count = 100;
  world.Add(call);
  world.HideMembers();
  fibers::Options options;
  options.host = [&world] {
    for (int rank = 0; rank < 3; ++rank) {
      if (Wait::PositionOf(__atomic_load_n(&world.wait(rank).look, __ATOMIC_ACQUIRE)) == Wait::kUnmet)
        __atomic_store_n(&world.control(rank).abort, 1, __ATOMIC_RELAXED);
    }
  };
  ASSERT_TRUE(world.Run(RunKernel, World::Shape(), options));
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(world.control(rank).report, static_cast<uint32_t>(Report::kAborted));
}

TEST(CudaFailure, NothingRunsOnABrokenChannel) {
  World world(2, 1, 1);
  CallSpec call;
  call.algorithm = "oneshot";
  call.count = 16;
  world.AddFor(0, call);
  world.AddFor(0, call);
  fibers::Options options;
  options.host = [&world] { __atomic_store_n(&world.control(0).abort, 1, __ATOMIC_RELAXED); };
  ASSERT_TRUE(world.Run(RunKernel, World::Shape(), options));
  EXPECT_EQ(world.state(0).broken, 1u);
  EXPECT_EQ(world.state(0).sequence, 0u);
  EXPECT_EQ(world.control(0).report, static_cast<uint32_t>(Report::kAborted));
}

}  // namespace
}  // namespace axccl::kernels::cuda
