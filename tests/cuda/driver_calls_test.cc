// How many calls of the driver the library's calls make, which the software GPU counts.
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "tests/cuda/words.h"

namespace axccl::tests {
namespace {

using harness::Clique;
using harness::EnterGpu;
using harness::RankContext;
using harness::RunOptions;
using harness::RunRanks;

RunOptions Counting(int arch = 90) {
  RunOptions options;
  options.environment = {
      {"SOFTGPU_COUNT_CALLS", "1"}, {"SOFTGPU_DEVICES", "1"}, {"SOFTGPU_ARCH", std::to_string(arch)}};
  return options;
}

// The calls of this thread that follow.
class DriverCalls {
 public:
  DriverCalls() {
    if (are_counted()) CounterOf("softgpu_forget_calls")();
  }
  bool are_counted() const { return count_ != nullptr; }
  uint64_t count() const { return count_(); }
  std::string list() const { return reinterpret_cast<const char*>(CounterOf("softgpu_list_calls")()); }

 private:
  const GpuCounter count_ = CounterOf("softgpu_calls");
};

TEST(DriverCalls, AreCounted) {
  const auto body = [](RankContext& context) {
    const DriverCalls calls;
    if (!calls.are_counted()) return;
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    EXPECT_GT(calls.count(), 10u) << calls.list();
  };
  RunRanks(harness::OneThread(1), body, Counting());
}

// Programs may ask after every call, while the driver is busy. The watchdog asks the driver instead.
TEST(DriverCalls, AsyncErrorMakesNone) {
  const auto body = [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    Words data(3000, 1);
    const auto ask = [&] {
      const DriverCalls calls;
      ncclResult_t state = ncclInProgress;
      EXPECT_OK(ncclCommGetAsyncError(clique.comm(), &state));
      if (calls.are_counted()) {
        EXPECT_EQ(calls.count(), 0u) << calls.list();
      }
      return state;
    };
    EXPECT_EQ(ask(), ncclSuccess);
    ASSERT_TRUE(context.Barrier());
    if (context.rank() == 0) {
      ASSERT_OK(Sum(&data, &data, clique.comm(), clique.stream()));
      EXPECT_EQ(ask(), ncclSuccess);
      EXPECT_EQ(EnterGpu()->query_stream(clique.stream()), 600) << "the kernel does not wait";
      ASSERT_OK(ncclCommRevoke(clique.comm(), NCCL_REVOKE_DEFAULT));
    }
    ASSERT_TRUE(context.Barrier());
    EXPECT_EQ(ask(), context.rank() == 0 ? ncclSuccess : ncclRemoteError);
    ASSERT_NO_FATAL_FAILURE(AbortTogether(context, &clique));
  };
  RunRanks(harness::Threads(2), body, Counting());
}

// The device itself reports that calls differ: who has seen the end of the kernel need not ask again.
TEST(DriverCalls, AsyncErrorKnowsWhatKernelsReport) {
  RunRanks(harness::Threads(2), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    Words data(context.rank() == 0 ? 3000 : 3001, 1);
    ASSERT_TRUE(context.Barrier());
    const ncclResult_t called = Sum(&data, &data, clique.comm(), clique.stream());
    ASSERT_OK(harness::SynchronizeStream(clique.stream()));
    ncclResult_t state = ncclSuccess;
    EXPECT_OK(ncclCommGetAsyncError(clique.comm(), &state));
    EXPECT_TRUE(called != ncclSuccess || state == ncclInvalidUsage) << state;
    ASSERT_NO_FATAL_FAILURE(AbortTogether(context, &clique));
  });
}

// ---- calls that have been made before ----

void ExpectAtMost(uint64_t limit, const std::function<void()>& call) {
  for (int i = 0; i < 3; ++i) call();
  const DriverCalls calls;
  call();
  if (!calls.are_counted()) return;
  EXPECT_LE(calls.count(), limit) << calls.list();
}

// One call each for the capture that the stream may be part of, the stream's number, the launch and the event behind
// it. The legacy stream needs no number, and the context that it is of.
TEST(WarmCalls, OfOneRank) {
  const auto body = [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    Words data(3000);
    for (const bool legacy : {false, true}) {
      const axcclStream_t stream = legacy ? nullptr : clique.stream();
      ExpectAtMost(4, [&] { EXPECT_OK(Sum(&data, &data, clique.comm(), stream)); });
      ASSERT_OK(harness::SynchronizeStream(stream));
    }
  };
  RunRanks(harness::OneThread(1), body, Counting());
}

// Whether the allocations are still there, of which peers of the process use the buffers: one call for each.
TEST(WarmCalls, OfARankWhosePeersUseItsBuffers) {
  RunOptions options = Counting();
  options.environment.emplace_back("SOFTGPU_DEVICES", "2");
  options.environment.emplace_back("NCCL_ALGO", "direct");
  const auto body = [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    Words data(100'000, 1), other(100'000);
    ExpectAtMost(4 + 2, [&] { EXPECT_OK(Sum(&data, &other, clique.comm(), clique.stream())); });
    ASSERT_TRUE(clique.Synchronize());
    ASSERT_TRUE(context.Barrier());
  };
  RunRanks(harness::Threads(2), body, options);
}

// A driver refuses to launch into a stream of a context that is not current. Calls work all the same.
TEST(WarmCalls, FromAnyContext) {
  RunOptions options = Counting();
  options.environment.emplace_back("SOFTGPU_DEVICES", "2");
  const auto body = [](RankContext& context) {
    ASSERT_NE(EnterGpu(0), nullptr);
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    Words data(3000, 1), other(3000, 1);
    const auto sum = [&] { EXPECT_OK(Sum(&data, &other, clique.comm(), clique.stream())); };
    if (EnterGpu(1) != nullptr) sum();
    std::thread(sum).join();  // which has none
    data.Fill(2);
    sum();
    ASSERT_TRUE(clique.Synchronize());
    EXPECT_TRUE(other.AreAll(2)) << other.get()[0];
    ASSERT_NE(EnterGpu(0), nullptr);
  };
  RunRanks(harness::OneThread(1), body, options);
}

// The calls of a group that all ranks of a device make, each on the stream that `stream_of` returns.
void ExpectGroupAtMost(uint64_t limit, const std::function<axcclStream_t(const Clique&, int)>& stream_of) {
  const auto body = [&](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    Words data(3000);
    ExpectAtMost(limit, [&] {
      ASSERT_OK(ncclGroupStart());
      for (int i = 0; i < clique.size(); ++i) ASSERT_OK(Sum(&data, &data, clique.comm(i), stream_of(clique, i)));
      ASSERT_OK(ncclGroupEnd());
    });
    ASSERT_TRUE(clique.Synchronize());
  };
  RunRanks(harness::OneThread(8), body, Counting());
}

// The capture that the stream may be part of, the current context, the stream's number, the launch, and one event
// behind it for all ranks.
TEST(WarmCalls, OfAGroupOnOneStream) {
  ExpectGroupAtMost(5, [](const Clique& clique, int) { return clique.stream(0); });
}

// The launch is behind what all streams have and before what they will get: for each further stream also the capture,
// an event and a wait for it, and a wait for the launch.
TEST(WarmCalls, OfAGroupOnManyStreams) {
  ExpectGroupAtMost(5 + 4 * 7, [](const Clique& clique, int rank) { return clique.stream(rank); });
}

// Parameters are as long as their tasks, and kernels publish in a domain of their own where devices have domains.
TEST(WarmCalls, LaunchesAreShort) {
  for (const int arch : {80, 90}) {
    const auto body = [arch](RankContext& context) {
      Clique clique;
      ASSERT_TRUE(clique.Init(context));
      Words data(3000);
      const auto sum = [&] { EXPECT_OK(Sum(&data, &data, clique.comm(), clique.stream())); };
      sum();
      const GpuCounter bytes = CounterOf("softgpu_parameter_bytes"), remote = CounterOf("softgpu_remote_launches");
      if (bytes == nullptr) return;
      const uint64_t bytes_before = bytes(), remote_before = remote();
      sum();
      EXPECT_LE(bytes() - bytes_before, 400u);
      EXPECT_EQ(remote() - remote_before, arch >= 90 ? 1u : 0u);
      ASSERT_TRUE(clique.Synchronize());
    };
    RunRanks(harness::OneThread(1), body, Counting(arch));
  }
}

}  // namespace
}  // namespace axccl::tests
