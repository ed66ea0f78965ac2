// Deadlines of host ranks that are set for a communicator (axcclCommSetTimeout) or for a call (axcclOptions_t): which
// waits they end, with which text, and which ones they leave alone.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "axccl/axccl.h"
#include "tests/harness/client.h"
#include "tests/harness/process_state.h"
#include "tests/harness/timing.h"

namespace axccl::tests {
namespace {

using harness::Clique;
using harness::Cuda;
using harness::Layout;
using harness::NowNs;
using harness::RankContext;
using harness::RunRanks;

constexpr double kShort = 0.3, kLong = 500;  // seconds

ncclResult_t SumOf(std::vector<float>* data, const axcclOptions_t* options, const Clique& clique) {
  const auto size = static_cast<int64_t>(data->size());
  axcclView_t view = AXCCL_VIEW_INITIALIZER;
  view.data = data->data();
  view.num_dims = 1;
  view.sizes = &size;
  return axcclAllReduce(1, &view, &view, ncclSum, axcclDefaultChannel(clique.comm()), options, Cuda(clique.stream()));
}

double TimeoutOf(ncclComm_t comm) { return harness::InfoOf(comm).timeout; }

// Waits for an operation that `missing` never calls, and expects the deadline to end it.
void ExpectTimeout(const Clique& clique, uint64_t started, const std::string& source, const std::string& absent) {
  EXPECT_EQ(axcclStreamSynchronize(clique.stream()), ncclTimeout);
  const uint64_t took = NowNs() - started;
  EXPECT_GE(took, static_cast<uint64_t>(kShort * 1e9));
  EXPECT_LT(took, harness::AllowedNs(5000));
  const std::string text = ncclGetLastError(clique.comm());
  EXPECT_NE(text.find("waited 0.3 s for rank"), std::string::npos) << text;
  EXPECT_NE(text.find("deadline " + source + " passed; "), std::string::npos) << text;
  EXPECT_NE(text.find("; not called by " + absent), std::string::npos) << text;
}

class TimeoutTest : public testing::TestWithParam<Layout> {};

// Rank 0 alone has a deadline, and the others get its error.
TEST_P(TimeoutTest, OfTheCommunicatorEndsAWait) {
  RunRanks(GetParam(), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    EXPECT_EQ(TimeoutOf(clique.comm()), 600) << "AXCCL_TIMEOUT's default";
    std::vector<float> data(1000, 1);
    const uint64_t started = NowNs();
    if (context.rank() == 0) {
      ASSERT_OK(axcclCommSetTimeout(clique.comm(), kShort));
      EXPECT_EQ(TimeoutOf(clique.comm()), kShort);
    }
    const bool calls = context.rank() == 0 || context.rank() == 2;
    if (calls) (void)SumOf(&data, nullptr, clique);  // on rank 2, the failure may have come before
    if (context.rank() == 0) ExpectTimeout(clique, started, "of axcclCommSetTimeout", "ranks 1, 3");
    if (context.rank() == 2) {
      EXPECT_EQ(axcclStreamSynchronize(clique.stream()), ncclTimeout);
      EXPECT_NE(std::string(ncclGetLastError(clique.comm())).find("rank 0"), std::string::npos);
    }
    ASSERT_TRUE(context.Barrier());
  });
}

TEST_P(TimeoutTest, OfACallEndsItsWaitOnly) {
  RunRanks(GetParam(), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    ASSERT_OK(axcclCommSetTimeout(clique.comm(), kLong));
    std::vector<float> data(1000, 1);
    axcclOptions_t options = AXCCL_OPTIONS_INITIALIZER;
    options.timeout = kShort;
    // A call that all ranks make in time has no use for it, and the next one does not inherit it.
    ASSERT_OK(SumOf(&data, &options, clique));
    ASSERT_TRUE(clique.Synchronize());
    EXPECT_EQ(data[999], 4);
    ASSERT_OK(SumOf(&data, nullptr, clique));
    ASSERT_TRUE(clique.Synchronize());
    EXPECT_EQ(data[0], 16);
    const uint64_t started = NowNs();
    if (context.rank() == 3) {
      ASSERT_OK(SumOf(&data, &options, clique));
      ExpectTimeout(clique, started, "of the call's options", "ranks 0-2");
    }
    ASSERT_TRUE(context.Barrier());
  });
}

// A wait that has begun is ended by a deadline that is set later, and communicators that are made later have it, too.
TEST_P(TimeoutTest, IsInheritedAndHoldsForRunningWaits) {
  RunRanks(GetParam(), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    ASSERT_OK(axcclCommSetTimeout(clique.comm(), kLong + context.rank()));
    ncclComm_t half = nullptr;
    ASSERT_OK(ncclCommSplit(clique.comm(), context.rank() % 2, 0, &half, nullptr));
    EXPECT_EQ(TimeoutOf(half), kLong + context.rank());
    ASSERT_OK(ncclCommDestroy(half));
    std::vector<float> data(1000, 1);
    if (context.rank() == 0) {
      ASSERT_OK(SumOf(&data, nullptr, clique));
      const uint64_t started = NowNs();
      ASSERT_OK(axcclCommSetTimeout(clique.comm(), kShort));
      EXPECT_EQ(axcclStreamSynchronize(clique.stream()), ncclTimeout);
      EXPECT_LT(NowNs() - started, harness::AllowedNs(5000));
    }
    ASSERT_TRUE(context.Barrier());
  });
}

// 0 waits for ever: the rank that comes after AXCCL_TIMEOUT is still met.
TEST(Timeout, ZeroWaitsForEver) {
  harness::RunOptions options;
  options.environment = {{"AXCCL_TIMEOUT", "0.2"}};
  RunRanks(
      harness::Processes(2),
      [](RankContext& context) {
        Clique clique;
        ASSERT_TRUE(clique.Init(context));
        EXPECT_EQ(TimeoutOf(clique.comm()), 0.2);
        ASSERT_OK(axcclCommSetTimeout(clique.comm(), 0));
        std::vector<float> data(1000, 1);
        const uint64_t started = NowNs();
        // The deadline of the environment passes meanwhile; nothing depends on how long after that rank 1 comes.
        while (context.rank() == 1 && NowNs() - started < 600'000'000) usleep(10'000);
        ASSERT_OK(SumOf(&data, nullptr, clique));
        ASSERT_TRUE(clique.Synchronize());
        EXPECT_EQ(data[0], 2);
      },
      options);
}

// A step of a rank that is slow, but moves.
struct SlowSteps {
  uint64_t until = 0;
  std::atomic<int> slow{0};
};

void SlowSum(void* a, const void* b, size_t n, void* context) {
  auto* const steps = static_cast<SlowSteps*>(context);
  if (NowNs() < steps->until) {
    ++steps->slow;
    usleep(200'000);
  }
  for (size_t i = 0; i < n; ++i) static_cast<float*>(a)[i] += static_cast<const float*>(b)[i];
}

// "What moves does not wait: a long operation may take any time." Rank 1 is slow in many steps, and rank 0 waits for
// each.
TEST(Timeout, DoesNotEndACallThatMoves) {
  constexpr double kLimit = 2;
  harness::RunOptions options;
  options.environment = {{"NCCL_ALGO", "ring"}};
  const auto body = [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    SlowSteps steps;
    ncclRedOp_t sum{};
    ASSERT_OK(axcclRedOpCreateCallback(&sum, SlowSum, &steps, ncclFloat32, clique.comm()));
    std::vector<float> data(16 << 20, 1);
    const auto reduce = [&] {
      return ncclAllReduce(data.data(), data.data(), data.size(), ncclFloat32, sum, clique.comm(),
                           Cuda(clique.stream()));
    };
    ASSERT_TRUE(context.Barrier());
    const uint64_t started = NowNs();
    if (context.rank() == 0) {
      ASSERT_OK(axcclCommSetTimeout(clique.comm(), kLimit));
    } else {
      steps.until = started + static_cast<uint64_t>(kLimit * 1.4e9);
    }
    ASSERT_OK(reduce());
    ASSERT_TRUE(clique.Synchronize());
    EXPECT_EQ(data.front(), 2);
    EXPECT_EQ(data.back(), 2);
    if (context.rank() == 1) {
      EXPECT_GE(NowNs(), steps.until) << "only " << steps.slow << " steps";
    }
    ASSERT_TRUE(context.Barrier());
  };
  RunRanks(harness::Processes(2), body, options);
}

// As when a batch system suspends a job, or its container is paused: the rank that waits runs again, and the other one
// only a little later.
TEST(Timeout, DoesNotCountAStopOfTheProcess) {
  harness::RunOptions options;
  options.environment = {{"AXCCL_TIMEOUT", "2"}};
  enum Cell { kProcess, kCalled, kEnded };
  const auto body = [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    std::vector<float> data(1000, 1);
    if (context.rank() == 0) {
      context.Set(kProcess, static_cast<uint64_t>(getpid()));
      ASSERT_OK(SumOf(&data, nullptr, clique));
      context.Set(kCalled, 1);
      ASSERT_OK(axcclStreamSynchronize(clique.stream()));
    } else {
      const auto process = static_cast<pid_t>(context.Await(kProcess));
      ASSERT_NE(context.Await(kCalled), 0u);
      usleep(50'000);  // it waits
      ASSERT_EQ(kill(process, SIGSTOP), 0);
      harness::AwaitState(context, static_cast<uint64_t>(process), 'T');
      usleep(2'200'000);  // longer than the deadline
      ASSERT_EQ(kill(process, SIGCONT), 0);
      usleep(100'000);  // it looks
      ASSERT_OK(SumOf(&data, nullptr, clique));
      ASSERT_TRUE(clique.Synchronize());
    }
    EXPECT_EQ(data[0], 2);
    ASSERT_TRUE(context.Barrier());
    // A rank that is stopped alone is missed.
    if (context.rank() == 1) {
      context.Set(kProcess, static_cast<uint64_t>(getpid()));
      ASSERT_TRUE(context.Barrier(1));
      ASSERT_NE(context.Await(kEnded), 0u);
    } else {
      ASSERT_TRUE(context.Barrier(1));
      const auto process = static_cast<pid_t>(context.Get(kProcess));
      ASSERT_EQ(kill(process, SIGSTOP), 0);
      harness::AwaitState(context, static_cast<uint64_t>(process), 'T');
      ASSERT_OK(SumOf(&data, nullptr, clique));
      EXPECT_EQ(axcclStreamSynchronize(clique.stream()), ncclTimeout);
      ASSERT_EQ(kill(process, SIGCONT), 0);
      context.Set(kEnded, 1);
    }
    ASSERT_TRUE(context.Barrier(2));
  };
  RunRanks(harness::Processes(2), body, options);
}

TEST(Timeout, RefusesWhatIsNoTime) {
  RunRanks(harness::Threads(2), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    std::vector<float> data(4, 1);
    for (const double wrong : {-1.0, std::nan("")}) {
      EXPECT_EQ(axcclCommSetTimeout(clique.comm(), wrong), ncclInvalidArgument);
      harness::ExpectLastErrorHas({"axcclCommSetTimeout: argument seconds is", "or 0 to wait forever"});
      axcclOptions_t options = AXCCL_OPTIONS_INITIALIZER;
      options.timeout = wrong;
      EXPECT_EQ(SumOf(&data, &options, clique), ncclInvalidArgument);
      harness::ExpectLastErrorHas({"axcclAllReduce: the options have timeout"});
    }
    EXPECT_EQ(axcclCommSetTimeout(nullptr, 1), ncclInvalidArgument);
    ASSERT_TRUE(context.Barrier());
  });
}

// Programs that were built with an earlier header pass fewer options; those of a later header, more.
TEST(Timeout, OptionsOfOtherVersions) {
  RunRanks(harness::Threads(2), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    std::vector<float> data(4, 1);
    struct Earlier {
      size_t size = sizeof(Earlier);
      unsigned int flags = 0;
      size_t bucket_bytes = 0;
      double scale = 0.5;
      double behind = -1;  // not part of the struct's size
    } earlier;
    earlier.size = offsetof(Earlier, behind);
    ASSERT_OK(SumOf(&data, reinterpret_cast<const axcclOptions_t*>(&earlier), clique));
    ASSERT_TRUE(clique.Synchronize());
    EXPECT_EQ(data[0], 1) << "two ranks, halved";
    for (const size_t size : {size_t{0}, offsetof(Earlier, behind) - 8, sizeof(axcclOptions_t) + 8}) {
      axcclOptions_t options = AXCCL_OPTIONS_INITIALIZER;
      options.size = size;
      EXPECT_EQ(SumOf(&data, &options, clique), ncclInvalidArgument);
      const std::string found = "the options have size " + std::to_string(size);
      harness::ExpectLastErrorHas({found.c_str(), "AXCCL_OPTIONS_INITIALIZER"});
    }
    ASSERT_TRUE(context.Barrier());
  });
}

INSTANTIATE_TEST_SUITE_P(Layouts, TimeoutTest, testing::Values(harness::Processes(4), harness::Threads(4)),
                         [](const auto& info) { return info.param.Text(); });

}  // namespace
}  // namespace axccl::tests
