// What ends operations early: the host's abort, calls that do not match, and channels that have broken before.

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

TEST(CudaFailure, FindsCallsThatDoNotMatch) {
  harness::Random random(harness::Seed() + 3);
  for (int repeat = 0; repeat < 100; ++repeat) ASSERT_EQ(RunMismatched(RunKernel, random.Next()), "");
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
