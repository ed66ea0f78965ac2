// The cost of waiting: ranks that wait long use almost no CPU time, however many there are.
#include <gtest/gtest.h>
#include <time.h>

#include <thread>
#include <vector>

#include "tests/harness/case_runner.h"
#include "tests/harness/timing.h"

namespace axccl::tests {
namespace {

using harness::Clique;
using harness::Cuda;
using harness::Layout;
using harness::NowNs;
using harness::ProcessCpuNs;
using harness::RankContext;
using harness::RunRanks;

class WaitingTest : public testing::TestWithParam<Layout> {};

TEST_P(WaitingTest, SixteenRanksWaitWithoutBurningCpu) {
  RunRanks(GetParam(), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    std::vector<int> data(1000, 1);
    const auto run = [&] {
      ASSERT_OK(ncclAllReduce(data.data(), data.data(), data.size(), ncclInt32, ncclSum, clique.comm(),
                              Cuda(clique.stream())));
      ASSERT_TRUE(clique.Synchronize());
    };
    run();
    ASSERT_TRUE(context.Barrier());
    const uint64_t start = NowNs();
    const uint64_t used = ProcessCpuNs();
    if (context.rank() == 0) {
      // Measures two seconds of waiting; it synchronises nothing.
      const timespec two_seconds{2, 0};
      clock_nanosleep(CLOCK_MONOTONIC, 0, &two_seconds, nullptr);
    }
    ASSERT_NO_FATAL_FAILURE(run());
    const double share = static_cast<double>(ProcessCpuNs() - used) / static_cast<double>(NowNs() - start);
    EXPECT_LT(share, 0.05) << "of a core";
    EXPECT_GE(NowNs() - start, uint64_t{1900000000});
  });
}

INSTANTIATE_TEST_SUITE_P(Layouts, WaitingTest, testing::Values(harness::Processes(16), harness::Threads(16)),
                         [](const auto& info) { return info.param.Text(); });

TEST(Waiting, IdleCommunicatorsUseNoCpu) {
  RunRanks(harness::Processes(2), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    ASSERT_TRUE(context.Barrier());
    const uint64_t used = ProcessCpuNs();
    const timespec one_second{1, 0};
    clock_nanosleep(CLOCK_MONOTONIC, 0, &one_second, nullptr);
    EXPECT_LT(ProcessCpuNs() - used, uint64_t{20000000});
  });
}

}  // namespace
}  // namespace axccl::tests
