// The watchdog of GPU ranks where the driver does not answer: a call of it waits, or it has ended.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>

#include "tests/cuda/words.h"

namespace axccl::tests {
namespace {

using harness::Clique;
using harness::RankContext;
using harness::RunOptions;
using harness::RunRanks;

// The driver does not tell whether the device is well before all kernels have ended, and the kernel does not end before
// the watchdog finds that its rank has waited for too long.
TEST(Watchdog, NeedsNoAnswerOfTheDriver) {
  RunOptions options = Within(Deadline());
  options.environment.emplace_back("SOFTGPU_IMPLICIT_SYNC", "query");
  const auto body = [](RankContext& context) {
    Clique clique, other;
    ASSERT_TRUE(clique.Init(context));
    ASSERT_TRUE(other.Init(context));
    Words data(3000, 1);
    for (const Clique* ranks : {&clique, &other}) {
      ASSERT_OK(Sum(&data, &data, ranks->comm(), ranks->stream()));
      ASSERT_OK(harness::SynchronizeStream(ranks->stream()));
    }
    ASSERT_TRUE(context.Barrier());
    if (context.rank() == 0) {
      ASSERT_OK(Sum(&data, &data, clique.comm(), clique.stream()));
    }
    EXPECT_EQ(AwaitError(clique.comm(), 2000), ncclTimeout) << ncclGetLastError(nullptr);
    EXPECT_TRUE(harness::LastErrorHas("not called by rank 1")) << ncclGetLastError(nullptr);
    ASSERT_OK(harness::SynchronizeStream(clique.stream()));
    ASSERT_NO_FATAL_FAILURE(AbortTogether(context, &clique));
    // The other one is well.
    ASSERT_OK(Sum(&data, &data, other.comm(), other.stream()));
    ASSERT_OK(harness::SynchronizeStream(other.stream()));
    ncclResult_t state = ncclInProgress;
    EXPECT_OK(ncclCommGetAsyncError(other.comm(), &state));
    EXPECT_EQ(state, ncclSuccess) << ncclGetLastError(nullptr);
    ASSERT_TRUE(context.Barrier());
  };
  RunRanks(harness::Threads(2), body, options);
  RunRanks(harness::Processes(2), body, options);
}

ncclComm_t g_comm = nullptr;

// Functions of atexit run in the reverse order, so this one runs after those that the driver and the library register
// below. The end of the driver is no failure of the device.
TEST(Watchdog, IsQuietOnceTheDriverHasEnded) {
  RunOptions options;
  options.environment = {{"SOFTGPU_SHUTDOWN", "1"}};
  const auto body = [](RankContext&) {
    ASSERT_EQ(
        std::atexit([] {
          ncclResult_t state = ncclInProgress;
          const ncclResult_t finalized = ncclCommFinalize(g_comm);
          if (finalized != ncclSuccess || ncclCommGetAsyncError(g_comm, &state) != ncclSuccess || state != ncclSuccess)
            _exit(9);
        }),
        0);
    const int device = 0;
    harness::EnterGpu();
    ASSERT_OK(ncclCommInitAll(&g_comm, 1, &device));
  };
  RunRanks(harness::OneThread(1), body, options);
}

}  // namespace
}  // namespace axccl::tests
