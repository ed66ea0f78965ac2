// Whole collectives on the device's interpreter: real plans of all algorithms, several operations in sequence, on
// fibers under seeded schedules with weak memory.

#include <gtest/gtest.h>

#include <algorithm>

#include "src/algo/algo.h"
#include "tests/harness/run_ranks.h"
#include "tests/kernels/cuda/kernel_on_fibers.h"
#include "tests/kernels/cuda/random_calls.h"
#include "tests/kernels/cuda/scenarios.h"

namespace axccl::kernels::cuda {
namespace {

// Sanitizers make each repetition ten times slower.
int Times(int times) { return harness::TimeScale() > 1 ? times / 4 : times; }

// Most blocks copy in bulk unless the size is very small (tests/harness/fibers/twin.h), so both kinds of copies run.
class CudaInterpreter : public testing::Test {
 protected:
  void ExpectCopiesInBulk() const { EXPECT_GT(fibers::BulkBytes(), before_ + static_cast<uint64_t>(Times(10'000))); }

 private:
  const uint64_t before_ = fibers::BulkBytes();
};

// Runs every algorithm alone, three times.
TEST_F(CudaInterpreter, RunsEveryAlgorithm) {
  constexpr int kLanes = 3;
  harness::Random random(harness::Seed());
  for (int kind = 0; kind < plan::kNumKinds; ++kind) {
    for (const std::string_view algorithm : algo::Algorithms(static_cast<plan::Kind>(kind))) {
      for (int ranks = 2; ranks <= 4; ++ranks) {
        if (static_cast<plan::Kind>(kind) == plan::Kind::kSendRecv && ranks != 2) continue;
        for (int repeat = 0; repeat < Times(4); ++repeat) {
          CallSpec call = RandomCall(ranks, kLanes, &random);
          call.kind = static_cast<plan::Kind>(kind);
          call.algorithm = algorithm;
          Legalize(&call);
          if (random.OneIn(2)) OfferStaged(ranks, kLanes, &call, &random);
          ASSERT_EQ(RunSequence(RunKernel, ranks, kLanes, {call, call, call}, random.Next()), "");
        }
      }
    }
  }
  ExpectCopiesInBulk();
}

TEST_F(CudaInterpreter, RunsSequencesOfAnyCalls) {
  harness::Random random(harness::Seed() + 1);
  for (int repeat = 0; repeat < Times(150); ++repeat) ASSERT_EQ(RunAnyCalls(RunKernel, random.Next()), "");
  ExpectCopiesInBulk();
}

TEST_F(CudaInterpreter, RunsCallsOfManyTurns) {
  harness::Random random(harness::Seed() + 2);
  for (int repeat = 0; repeat < Times(60); ++repeat) ASSERT_EQ(RunLongCalls(RunKernel, random.Next()), "");
}

TEST_F(CudaInterpreter, RunsCallsOfLargeTurns) {
  harness::Random random(harness::Seed() + 6);
  for (int repeat = 0; repeat < Times(40); ++repeat) ASSERT_EQ(RunLargeCalls(RunKernel, random.Next()), "");
  ExpectCopiesInBulk();
}

TEST_F(CudaInterpreter, RunsSmallCalls) {
  harness::Random random(harness::Seed() + 4);
  for (int repeat = 0; repeat < Times(300); ++repeat) ASSERT_EQ(RunSmallCalls(RunKernel, random.Next()), "");
}

TEST_F(CudaInterpreter, RunsSmallCallsAmongOthers) {
  harness::Random random(harness::Seed() + 8);
  for (int repeat = 0; repeat < Times(150); ++repeat) ASSERT_EQ(RunSmallCallsAmongOthers(RunKernel, random.Next()), "");
}

TEST_F(CudaInterpreter, RunsRowedCalls) {
  harness::Random random(harness::Seed() + 6);
  for (int repeat = 0; repeat < Times(50); ++repeat) ASSERT_EQ(RunRowedCalls(RunKernel, random.Next()), "");
}

TEST_F(CudaInterpreter, RunsMulticastCalls) {
  harness::Random random(harness::Seed() + 9);
  for (int repeat = 0; repeat < Times(150); ++repeat) ASSERT_EQ(RunMulticastCalls(RunKernel, random.Next()), "");
}

// Words that were stored long ago and are no longer used are cleared.
TEST_F(CudaInterpreter, ForgetsOldWords) {
  CallSpec call;
  call.algorithm = "oneshot";
  call.count = 3;
  call.packs = true;
  World world(2, 1, 1);
  constexpr size_t kWords = kRotation * kPackedBytes / 4;  // of endpoint 0
  for (int rank = 0; rank < 2; ++rank) std::fill_n(world.packed(rank), kWords, uint64_t{9999} << 32);
  for (size_t i = 0; i < kWords; ++i) world.Add(call);
  ASSERT_TRUE(world.Run(RunKernel, World::Shape(), fibers::Options()));
  EXPECT_EQ(world.Check(), "");
  for (int rank = 0; rank < 2; ++rank) {
    for (size_t i = 0; i < kWords; ++i)
      ASSERT_EQ(world.packed(rank)[i] != 0, i % (kPackedBytes / 4) < call.count) << "rank " << rank << ", word " << i;
  }
}

TEST_F(CudaInterpreter, RunsOneOfTwoPrograms) {
  harness::Random random(harness::Seed() + 4);
  for (int repeat = 0; repeat < Times(150); ++repeat) ASSERT_EQ(RunOffers(RunKernel, random.Next()), "");
}

// More steps than a block keeps in shared memory, and more consecutive waits than the block has threads.
TEST_F(CudaInterpreter, RunsWithManyRanks) {
  harness::Random random(harness::Seed() + 3);
  for (int repeat = 0; repeat < Times(40); ++repeat) {
    const int ranks = 5 + static_cast<int>(random.Below(World::kMaxRanks - 4));
    const CallSpec first = RandomCall(ranks, 2, &random), second = RandomCall(ranks, 2, &random);
    ASSERT_EQ(RunSequence(RunKernel, ranks, 2, {first, second}, random.Next()), "");
  }
}

TEST_F(CudaInterpreter, RunsPipelines) {
  harness::Random random(harness::Seed() + 7);
  for (int repeat = 0; repeat < Times(300); ++repeat) ASSERT_EQ(RunPipelines(RunKernel, random.Next()), "");
}

TEST_F(CudaInterpreter, MembersMayMeetLate) {
  harness::Random random(harness::Seed() + 5);
  for (int repeat = 0; repeat < Times(200); ++repeat) ASSERT_EQ(RunBeforeMeeting(RunKernel, random.Next()), "");
}

}  // namespace
}  // namespace axccl::kernels::cuda
