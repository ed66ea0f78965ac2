// AXCCL_TIMEOUT on GPU ranks: a wait that lasts too long fails on all ranks, with a text that names the missing rank;
// other delays are no error.
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>

#include "tests/cuda/graph.h"
#include "tests/cuda/words.h"
#include "tests/harness/timing.h"

namespace axccl::tests {
namespace {

using harness::Clique;
using harness::EnterGpu;
using harness::Layout;
using harness::RankContext;
using harness::RunOptions;
using harness::RunRanks;

void Pass(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

void ExpectSumWorks(const Clique& clique, Words* data) {
  data->Fill(1);
  ASSERT_OK(Sum(data, data, clique.comm(), clique.stream()));
  ASSERT_OK(harness::SynchronizeStream(clique.stream()));
  EXPECT_TRUE(data->AreAll(clique.nranks())) << data->get()[0];
}

// Expects the timeout on every rank, whether it waited or not; and that the kernels have ended.
void ExpectTimeout(RankContext& context, Clique* clique, std::initializer_list<std::string> parts) {
  EXPECT_EQ(AwaitError(clique->comm(), 2000), ncclTimeout) << ncclGetLastError(nullptr);
  for (const std::string& part : parts) harness::ExpectLastErrorHas({part.c_str()});
  ASSERT_OK(harness::SynchronizeStream(clique->stream()));
  ASSERT_NO_FATAL_FAILURE(AbortTogether(context, clique));
}

class DeadlineTest : public testing::TestWithParam<Layout> {};  // one rank a thread

TEST_P(DeadlineTest, OneRankNeverCalls) {
  const std::string seconds = Deadline();
  const auto body = [&](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    Words data(3000);
    ASSERT_NO_FATAL_FAILURE(ExpectSumWorks(clique, &data));
    if (context.rank() != 1) {
      ASSERT_OK(Sum(&data, &data, clique.comm(), clique.stream()));
    }
    ASSERT_NO_FATAL_FAILURE(
        ExpectTimeout(context, &clique,
                      {"waited " + seconds + " s for rank", "in ncclAllReduce count 3000 int32 sum (operation 1)",
                       "AXCCL_TIMEOUT", "not called by rank 1"}));
  };
  RunRanks(GetParam(), body, Within(seconds));
}

// A deadline of one call, and one that the communicator gets while a kernel waits.
TEST_P(DeadlineTest, OfACallAndOfACommunicator) {
  for (const bool of_call : {true, false}) {
    RunRanks(GetParam(), [of_call](RankContext& context) {
      Clique clique;
      ASSERT_TRUE(clique.Init(context));
      Words data(3000, 1);
      const int64_t size = 3000;
      axcclView_t view{sizeof(axcclView_t), data.get(), ncclInt32, 1, &size, nullptr};
      axcclOptions_t options = AXCCL_OPTIONS_INITIALIZER;
      if (of_call) options.timeout = 0.7;
      const auto sum = [&] {
        return axcclAllReduce(1, &view, &view, ncclSum, axcclDefaultChannel(clique.comm()), &options,
                              harness::Cuda(clique.stream()));
      };
      ASSERT_OK(sum());
      ASSERT_OK(harness::SynchronizeStream(clique.stream()));
      EXPECT_TRUE(data.AreAll(clique.nranks())) << data.get()[0];
      ASSERT_TRUE(context.Barrier());
      if (context.rank() == 0) {
        ASSERT_OK(sum());
        if (!of_call) {
          ASSERT_OK(axcclCommSetTimeout(clique.comm(), 0.7));
        }
      }
      ASSERT_NO_FATAL_FAILURE(
          ExpectTimeout(context, &clique,
                        {"waited 0.7 s for rank", of_call ? "of the call's options" : "of axcclCommSetTimeout",
                         clique.nranks() == 2 ? "not called by rank 1" : "not called by ranks 1, 2"}));
    });
  }
}

TEST_P(DeadlineTest, MessageThatIsNeverSent) {
  const std::string seconds = Deadline();
  const auto body = [&](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    Words data(3000);
    if (context.rank() == 0) {
      ASSERT_OK(ncclRecv(data.get(), 3000, ncclInt32, 1, clique.comm(), harness::Cuda(clique.stream())));
    }
    ASSERT_NO_FATAL_FAILURE(
        ExpectTimeout(context, &clique, {"rank 0 waited " + seconds + " s for rank 1 in ncclRecv count 3000 int32"}));
  };
  RunRanks(GetParam(), body, Within(seconds));
}

// All waits together last longer than one may.
TEST_P(DeadlineTest, SlowRanksAreWaitedFor) {
  const auto body = [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    Words data(3000);
    for (int i = 0; i < 4; ++i) {
      ASSERT_TRUE(context.Barrier());
      if (context.rank() == i % context.nranks()) Pass(0.8 * harness::TimeScale());
      ASSERT_NO_FATAL_FAILURE(ExpectSumWorks(clique, &data));
    }
    ncclResult_t state = ncclInProgress;
    ASSERT_OK(ncclCommGetAsyncError(clique.comm(), &state));
    EXPECT_EQ(state, ncclSuccess) << ncclGetLastError(nullptr);
    ASSERT_TRUE(context.Barrier());
  };
  RunRanks(GetParam(), body, Within(std::to_string(2.5 * harness::TimeScale())));
}

TEST_P(DeadlineTest, GraphThatOneRankDoesNotLaunch) {
  const std::string seconds = Deadline();
  const auto body = [&](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    Words data(3000, 1);
    Graph graph;
    ASSERT_NO_FATAL_FAILURE(
        graph.Capture(clique.stream(), [&] { ASSERT_OK(Sum(&data, &data, clique.comm(), clique.stream())); }));
    for (int i = 0; i < 20; ++i) ASSERT_NO_FATAL_FAILURE(graph.Launch(clique.stream()));
    ASSERT_TRUE(clique.Synchronize());
    ASSERT_TRUE(context.Barrier());
    if (context.rank() != 1) {
      ASSERT_NO_FATAL_FAILURE(graph.Launch(clique.stream()));
    }
    ASSERT_NO_FATAL_FAILURE(ExpectTimeout(context, &clique,
                                          {"waited " + seconds + " s for rank",
                                           "in ncclAllReduce count 3000 int32 sum (operation 20)", "AXCCL_TIMEOUT"}));
  };
  RunRanks(GetParam(), body, Within(seconds));
}

// Also without a deadline.
TEST_P(DeadlineTest, RankThatHasLeft) {
  RunRanks(GetParam(), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    Words data(3000);
    ASSERT_NO_FATAL_FAILURE(ExpectSumWorks(clique, &data));
    ASSERT_TRUE(context.Barrier());
    if (context.rank() == 1) {
      ASSERT_OK(ncclCommDestroy(clique.comm()));
      ASSERT_TRUE(context.Barrier());
    } else {
      ASSERT_TRUE(context.Barrier());
      ASSERT_OK(Sum(&data, &data, clique.comm(), clique.stream()));
      EXPECT_EQ(AwaitError(clique.comm(), 2000), ncclRemoteError) << ncclGetLastError(nullptr);
      EXPECT_TRUE(harness::LastErrorHas("for rank 1, which has destroyed")) << ncclGetLastError(nullptr);
      ASSERT_OK(harness::SynchronizeStream(clique.stream()));
      ASSERT_OK(ncclCommAbort(clique.comm()));
    }
    clique.ForgetComms();
    ASSERT_TRUE(context.Barrier());
  });
}

INSTANTIATE_TEST_SUITE_P(Layouts, DeadlineTest, testing::Values(harness::Processes(3), harness::Threads(2)),
                         [](const auto& info) { return info.param.Text(); });

// A call behind other work on the stream does not wait for a rank, even if that lasts longer than the deadline. (A
// process runs one such function at a time.)
TEST(Deadline, OtherWorkOnTheStreamIsNoWait) {
  const auto body = [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    Words data(3000, 1);
    ASSERT_NO_FATAL_FAILURE(ExpectSumWorks(clique, &data));
    ASSERT_TRUE(context.Barrier());
    ASSERT_EQ(EnterGpu()->call_host(
                  clique.stream(), [](void*) { Pass(2.0 * harness::TimeScale()); }, nullptr),
              0);
    ASSERT_NO_FATAL_FAILURE(ExpectSumWorks(clique, &data));
    ncclResult_t state = ncclInProgress;
    ASSERT_OK(ncclCommGetAsyncError(clique.comm(), &state));
    EXPECT_EQ(state, ncclSuccess) << ncclGetLastError(nullptr);
    ASSERT_TRUE(context.Barrier());
  };
  RunRanks(harness::Processes(2), body, Within(std::to_string(1.5 * harness::TimeScale())));
}

}  // namespace
}  // namespace axccl::tests
