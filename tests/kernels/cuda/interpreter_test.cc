// Whole collectives on the device's interpreter: real plans of all algorithms, several operations after each other, on
// fibers under seeded schedules with weak memory.

#include <gtest/gtest.h>

#include <string>

#include "src/algo/algo.h"
#include "tests/kernels/cuda/kernel_on_fibers.h"
#include "tests/kernels/cuda/random_calls.h"
#include "tests/kernels/cuda/world.h"

namespace axccl::kernels::cuda {
namespace {

constexpr int kLanes = 2;

World::Shape RandomShape(int ranks, harness::Random* random) {
  World::Shape shape;
  shape.threads = 1 + static_cast<uint32_t>(random->Below(6));
  shape.together = random->OneIn(3);
  const uint32_t strands = static_cast<uint32_t>(kLanes * (shape.together ? ranks : 1));
  shape.blocks = 1 + static_cast<uint32_t>(random->Below(strands + 1));
  shape.more = random->OneIn(4);
  return shape;
}

void CheckSequence(int ranks, const std::vector<CallSpec>& calls, uint64_t seed) {
  harness::Random random(seed);
  World world(ranks, kLanes, seed);
  for (const CallSpec& call : calls) world.Add(call);
  fibers::Options options;
  options.seed = seed;
  const bool ended = world.Run(RunKernel, RandomShape(ranks, &random), options);
  std::string text;
  for (const CallSpec& call : calls) text += "  " + call.Text() + "\n";
  ASSERT_TRUE(ended) << "hangs with seed " << seed << ":\n" << text;
  ASSERT_EQ(world.Check(), "") << "seed " << seed << ":\n" << text;
  for (int rank = 0; rank < ranks; ++rank) {
    EXPECT_EQ(world.control(rank).report, 0u);
    EXPECT_EQ(world.state(rank).sequence, calls.size());
    EXPECT_EQ(world.state(rank).turn, world.state(0).turn);
  }
}

// Every algorithm by itself, three times.
TEST(CudaInterpreter, RunsEveryAlgorithm) {
  harness::Random random(harness::Seed());
  for (int kind = 0; kind < plan::kNumKinds; ++kind) {
    for (const std::string_view algorithm : algo::Algorithms(static_cast<plan::Kind>(kind))) {
      for (int ranks = 2; ranks <= 4; ++ranks) {
        if (static_cast<plan::Kind>(kind) == plan::Kind::kSendRecv && ranks != 2) continue;
        for (int repeat = 0; repeat < 4; ++repeat) {
          CallSpec call = RandomCall(ranks, kLanes, &random);
          call.kind = static_cast<plan::Kind>(kind);
          call.algorithm = algorithm;
          Legalize(&call);
          ASSERT_NO_FATAL_FAILURE(CheckSequence(ranks, {call, call, call}, random.Next()));
        }
      }
    }
  }
}

TEST(CudaInterpreter, RunsSequencesOfAnyCalls) {
  harness::Random random(harness::Seed() + 1);
  for (int repeat = 0; repeat < 150; ++repeat) {
    const int ranks = 2 + static_cast<int>(random.Below(3));
    std::vector<CallSpec> calls;
    for (uint64_t n = 2 + random.Below(6); n != 0; --n) calls.push_back(RandomCall(ranks, kLanes, &random));
    ASSERT_NO_FATAL_FAILURE(CheckSequence(ranks, calls, random.Next()));
  }
}

}  // namespace
}  // namespace axccl::kernels::cuda
