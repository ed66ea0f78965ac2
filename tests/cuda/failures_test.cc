// Waits on a GPU that would never end: the communicator is aborted, the peer is dead, or the calls differ.
#include <gtest/gtest.h>

#include <thread>

#include "tests/cuda/words.h"
#include "tests/harness/timing.h"

namespace axccl::tests {
namespace {

using harness::AllowedNs;
using harness::Clique;
using harness::EnterGpu;
using harness::Layout;
using harness::NowNs;
using harness::RankContext;
using harness::RunOptions;
using harness::RunRanks;

void ExpectSumWorks(const Clique& clique, Words* data) {
  data->Fill(1);
  ASSERT_OK(Sum(data, data, clique.comm(), clique.stream()));
  ASSERT_OK(harness::SynchronizeStream(clique.stream()));
  EXPECT_TRUE(data->AreAll(clique.nranks())) << data->get()[0];
}

class FailureTest : public testing::TestWithParam<Layout> {};  // two ranks or more, one a thread

// The peer never calls; an abort ends only the kernel.
TEST_P(FailureTest, Abort) {
  RunRanks(GetParam(), [](RankContext& context) {
    Clique clique, other;
    ASSERT_TRUE(clique.Init(context));
    ASSERT_TRUE(other.Init(context));
    Words data(3000, 1), others(3000);
    ASSERT_NO_FATAL_FAILURE(ExpectSumWorks(clique, &data));
    ASSERT_TRUE(context.Barrier());
    if (context.rank() == 0) {
      ASSERT_OK(Sum(&data, &data, clique.comm(), clique.stream()));
      EXPECT_EQ(EnterGpu()->query_stream(clique.stream()), 600) << "the kernel does not wait";
    }
    ASSERT_NO_FATAL_FAILURE(ExpectSumWorks(other, &others));
    if (context.rank() == 0) {
      ASSERT_TRUE(context.Step("abort"));
      const uint64_t start = NowNs();
      ASSERT_OK(ncclCommAbort(clique.comm()));
      ASSERT_OK(harness::SynchronizeStream(clique.stream()));
      EXPECT_LT(NowNs() - start, AllowedNs(1000));
      ASSERT_TRUE(context.Barrier());
    } else {
      ASSERT_TRUE(context.Barrier());
      ncclResult_t state = ncclInternalError;
      EXPECT_OK(ncclCommGetAsyncError(clique.comm(), &state));
      EXPECT_EQ(state, ncclSuccess) << "no call is running: " << ncclGetLastError(nullptr);
      EXPECT_EQ(Sum(&data, &data, clique.comm(), clique.stream()), ncclRemoteError) << ncclGetLastError(nullptr);
      EXPECT_EQ(AwaitError(clique.comm(), 1000), ncclRemoteError) << ncclGetLastError(nullptr);
      ASSERT_OK(ncclCommAbort(clique.comm()));
    }
    clique.ForgetComms();
    // An abort frees memory of the GPU, which waits for other work of the process there.
    ASSERT_TRUE(context.Barrier());
    ASSERT_NO_FATAL_FAILURE(ExpectSumWorks(other, &others));
    ASSERT_TRUE(context.Barrier());
  });
}

// Another thread aborts while this one waits for the stream.
TEST_P(FailureTest, AbortOfAnotherThread) {
  RunRanks(GetParam(), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    Words data(3000, 1);
    if (context.rank() == 0) {
      ASSERT_OK(Sum(&data, &data, clique.comm(), clique.stream()));
      std::thread aborter([comm = clique.comm()] { EXPECT_OK(ncclCommAbort(comm)); });
      ASSERT_OK(harness::SynchronizeStream(clique.stream()));
      aborter.join();
      clique.ForgetComms();
    }
    ASSERT_TRUE(context.Barrier());
    if (context.rank() != 0) {
      ASSERT_NO_FATAL_FAILURE(Abort(&clique));
    }
    ASSERT_TRUE(context.Barrier());
  });
}

// A rank revokes the communicator while the kernel of another one waits; the ranks go on with a split of it.
TEST_P(FailureTest, Revoke) {
  RunRanks(GetParam(), [](RankContext& context) {
    Clique clique, next;
    ASSERT_TRUE(clique.Init(context));
    Words data(3000, 1);
    ASSERT_NO_FATAL_FAILURE(ExpectSumWorks(clique, &data));
    ASSERT_TRUE(context.Barrier());
    if (context.rank() == 0) {
      ASSERT_OK(Sum(&data, &data, clique.comm(), clique.stream()));
      EXPECT_EQ(EnterGpu()->query_stream(clique.stream()), 600) << "the kernel does not wait";
    }
    ASSERT_TRUE(context.Barrier());
    const uint64_t start = NowNs();
    if (context.rank() == context.nranks() - 1) {
      ASSERT_OK(ncclCommRevoke(clique.comm(), NCCL_REVOKE_DEFAULT));
    } else {
      EXPECT_EQ(AwaitError(clique.comm(), 1000), ncclRemoteError) << ncclGetLastError(nullptr);
      EXPECT_TRUE(harness::LastErrorHas("revoked the communicator")) << ncclGetLastError(nullptr);
    }
    ASSERT_OK(harness::SynchronizeStream(clique.stream()));
    EXPECT_LT(NowNs() - start, AllowedNs(1000));
    ncclComm_t child = nullptr;
    ASSERT_TRUE(context.Step("split"));
    ASSERT_OK(ncclCommSplit(clique.comm(), 0, 0, &child, nullptr));
    ASSERT_TRUE(next.Adopt(child));
    ASSERT_NO_FATAL_FAILURE(ExpectSumWorks(next, &data));
    ASSERT_TRUE(context.Barrier());
  });
}

// Every rank gets the error, whichever rank found it; a rank that calls late may get it from the call.
void ExpectMismatch(RankContext& context, Clique* clique, ncclResult_t called) {
  EXPECT_TRUE(called == ncclSuccess || called == ncclInvalidUsage) << called;
  ASSERT_OK(harness::SynchronizeStream(clique->stream()));
  EXPECT_EQ(AwaitError(clique->comm(), 1000), ncclInvalidUsage) << ncclGetLastError(nullptr);
  EXPECT_TRUE(harness::LastErrorHas("mismatch")) << ncclGetLastError(nullptr);
  EXPECT_TRUE(harness::LastErrorHas("AllReduce")) << ncclGetLastError(nullptr);
  ASSERT_NO_FATAL_FAILURE(AbortTogether(context, clique));
}

TEST_P(FailureTest, DifferentCounts) {
  RunRanks(GetParam(), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    Words warm(10), data(context.rank() == 0 ? 3000 : 3001);
    ASSERT_NO_FATAL_FAILURE(ExpectSumWorks(clique, &warm));
    ASSERT_TRUE(context.Step("mismatch"));
    ASSERT_NO_FATAL_FAILURE(ExpectMismatch(context, &clique, Sum(&data, &data, clique.comm(), clique.stream())));
  });
}

TEST_P(FailureTest, DifferentCalls) {
  RunRanks(GetParam(), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    Words in(3000), out(3000 * static_cast<size_t>(context.nranks()));
    ASSERT_TRUE(context.Step("mismatch"));
    const ncclResult_t called = context.rank() == 0 ? Sum(&in, &out, clique.comm(), clique.stream())
                                                    : ncclAllGather(in.get(), out.get(), 3000, ncclInt32, clique.comm(),
                                                                    harness::Cuda(clique.stream()));
    ASSERT_NO_FATAL_FAILURE(ExpectMismatch(context, &clique, called));
  });
}

INSTANTIATE_TEST_SUITE_P(Layouts, FailureTest,
                         testing::Values(harness::Processes(2), harness::Processes(3), harness::Threads(2)),
                         [](const auto& info) { return info.param.Text(); });

TEST(Death, EndsTheWaitsOfTheOthers) {
  RunRanks(harness::Processes(3), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    Words data(3000);
    ASSERT_NO_FATAL_FAILURE(ExpectSumWorks(clique, &data));
    if (context.rank() == 2) {
      ASSERT_TRUE(context.Barrier());
      context.Die();
    }
    ASSERT_OK(Sum(&data, &data, clique.comm(), clique.stream()));
    ASSERT_TRUE(context.Barrier());
    ASSERT_OK(harness::SynchronizeStream(clique.stream()));
    EXPECT_EQ(AwaitError(clique.comm(), 1000), ncclRemoteError) << ncclGetLastError(nullptr);
    EXPECT_TRUE(harness::LastErrorHas("rank 2")) << ncclGetLastError(nullptr);
    ASSERT_TRUE(context.Barrier(1, 2));
    ASSERT_NO_FATAL_FAILURE(Abort(&clique));
    ASSERT_TRUE(context.Barrier(2, 2));
  });
}

// The application frees memory that the library uses: the kernel that accesses it fails, and with it everything that
// the process has on the device. The communicator fails, also on the peer, which waits for that kernel. Calls on other
// communicators fail if they come before their watchdog has noticed it, and the call itself may fail if the kernel was
// fast.
TEST(Faults, MemoryFreedByTheApplication) {
  RunRanks(harness::Processes(2), [](RankContext& context) {
    Clique clique, other;
    ASSERT_TRUE(clique.Init(context));
    ASSERT_TRUE(other.Init(context));
    const harness::GpuDriver* const driver = EnterGpu();
    uint64_t memory = 0, kept = 0;  // after a failed kernel neither can be freed
    ASSERT_EQ(driver->allocate(&memory, 3000 * sizeof(int32_t)), 0);
    ASSERT_EQ(driver->allocate(&kept, 3000 * sizeof(int32_t)), 0);
    const auto sum = [](const Clique& ranks, uint64_t words) {
      void* const data = reinterpret_cast<void*>(words);
      return ncclAllReduce(data, data, 3000, ncclInt32, ncclSum, ranks.comm(), harness::Cuda(ranks.stream()));
    };
    ASSERT_OK(sum(other, kept));
    ASSERT_OK(harness::SynchronizeStream(other.stream()));
    ASSERT_OK(sum(clique, memory));  // used last, so the next call does not check again that it is memory
    ASSERT_OK(harness::SynchronizeStream(clique.stream()));
    ASSERT_TRUE(context.Barrier());
    if (context.rank() == 0) {
      ASSERT_EQ(driver->free_memory(memory), 0);
    }
    const ncclResult_t called = sum(clique, memory);
    // Rank 0's kernel may have failed before this rank calls.
    EXPECT_TRUE(called == ncclSuccess || called == ncclUnhandledCudaError) << called;
    EXPECT_EQ(driver->synchronize(clique.stream()) == 0, context.rank() == 1);
    if (context.rank() == 0) {
      EXPECT_EQ(sum(other, kept), ncclUnhandledCudaError);
      EXPECT_TRUE(harness::LastErrorHas("freed")) << ncclGetLastError(nullptr);
    }
    EXPECT_EQ(AwaitError(clique.comm(), 1000), ncclUnhandledCudaError) << ncclGetLastError(nullptr);
    EXPECT_TRUE(harness::LastErrorHas("rank 0: CUDA device 0") && harness::LastErrorHas("freed"))
        << ncclGetLastError(nullptr);
    ASSERT_TRUE(context.Barrier());
    ASSERT_OK(ncclCommAbort(clique.comm()));
    ASSERT_OK(ncclCommAbort(other.comm()));
    clique.ForgetComms();
    other.ForgetComms();
  });
}

// Memory that was never used before is checked, so the call itself fails.
TEST(Faults, MemoryFreedBeforeItsFirstUse) {
  RunRanks(harness::Processes(1), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    const harness::GpuDriver* const driver = EnterGpu();
    uint64_t memory = 0;
    ASSERT_EQ(driver->allocate(&memory, size_t{4} << 20), 0);
    ASSERT_EQ(driver->free_memory(memory), 0);
    void* const data = reinterpret_cast<void*>(memory);
    EXPECT_EQ(ncclAllReduce(data, data, 3000, ncclInt32, ncclSum, clique.comm(), harness::Cuda(clique.stream())),
              ncclInvalidArgument);
    EXPECT_TRUE(harness::LastErrorHas("sendbuff")) << ncclGetLastError(nullptr);
  });
}

}  // namespace
}  // namespace axccl::tests
