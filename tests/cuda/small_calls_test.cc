// How much a small call costs on the device, which the software GPU counts (tools/softgpu/engine/trace.h): round trips
// to memory, one after the other, and instructions of the warp that has the most to do, up to its last store.
#include <gtest/gtest.h>

#include <cstdio>

#include "tests/cuda/words.h"

namespace axccl::tests {
namespace {

using harness::Clique;
using harness::RankContext;
using harness::RunOptions;
using harness::RunRanks;

constexpr int kRanks = 8;

RunOptions Traced() {
  RunOptions options;
  options.environment = {{"SOFTGPU_TRACE", "1"}, {"SOFTGPU_DEVICES", "1"}};
  return options;
}

// Of all-reduces of 8 bytes. Each rank launches a kernel of its own, so the last one to come waits for no other, and
// what it does is the least.
TEST(SmallCalls, CostLittleOnTheDevice) {
  const auto body = [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    Words data(2);
    const auto sum = [&] {
      data.Fill(1);
      ASSERT_OK(Sum(&data, &data, clique.comm(), clique.stream()));
      ASSERT_OK(harness::SynchronizeStream(clique.stream()));
      ASSERT_TRUE(data.AreAll(kRanks));
    };
    for (int i = 0; i < 3; ++i) ASSERT_NO_FATAL_FAILURE(sum());
    ASSERT_TRUE(context.Barrier());
    const GpuCounter forget = CounterOf("softgpu_forget_efforts");
    if (context.rank() == 0 && forget != nullptr) forget();
    ASSERT_TRUE(context.Barrier());
    for (int i = 0; i < 50; ++i) ASSERT_NO_FATAL_FAILURE(sum());
    ASSERT_TRUE(context.Barrier());
    if (context.rank() != 0 || forget == nullptr) return;
    const uint64_t trips = CounterOf("softgpu_least_trips")();
    const uint64_t instructions = CounterOf("softgpu_least_instructions")();
    std::printf("%llu round trips, %llu instructions\n", static_cast<unsigned long long>(trips),
                static_cast<unsigned long long>(instructions));
    // A quarter of what the interpreter of plans once needed: 101 and 3844.
    EXPECT_LE(trips, 25u);
    EXPECT_LE(instructions, 961u);
  };
  RunRanks(harness::Threads(kRanks), body, Traced());
}

}  // namespace
}  // namespace axccl::tests
