// How many calls of the driver the library's calls make, which the software GPU counts.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/cuda/words.h"

namespace axccl::tests {
namespace {

using harness::Clique;
using harness::EnterGpu;
using harness::RankContext;
using harness::RunOptions;
using harness::RunRanks;

RunOptions Counting() {
  RunOptions options;
  options.environment = {{"SOFTGPU_COUNT_CALLS", "1"}};
  return options;
}

// The calls of this thread that follow.
class DriverCalls {
 public:
  DriverCalls() {
    void* const library = dlopen("libcuda.so.1", RTLD_NOW);
    count_ = reinterpret_cast<uint64_t (*)()>(dlsym(library, "softgpu_calls"));
    list_ = reinterpret_cast<const char* (*)()>(dlsym(library, "softgpu_list_calls"));
    forget_ = reinterpret_cast<void (*)()>(dlsym(library, "softgpu_forget_calls"));
    if (count_ != nullptr) forget_();
  }
  bool are_counted() const { return count_ != nullptr; }
  uint64_t count() const { return count_(); }
  std::string list() const { return list_(); }

 private:
  uint64_t (*count_)() = nullptr;
  const char* (*list_)() = nullptr;
  void (*forget_)() = nullptr;
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

}  // namespace
}  // namespace axccl::tests
