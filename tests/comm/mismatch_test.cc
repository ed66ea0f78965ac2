// Ranks that make different calls at the same place: ncclInvalidUsage on every rank within a second, a text with both
// calls, and never wrong data.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "tests/harness/case_runner.h"
#include "tests/harness/timing.h"

namespace axccl::tests {
namespace {

using harness::AllowedNs;
using harness::Call;
using harness::CaseRunner;
using harness::Clique;
using harness::Cuda;
using harness::Fold;
using harness::Layout;
using harness::NowNs;
using harness::Processes;
using harness::RankContext;
using harness::RunRanks;
using harness::Seed;
using harness::Threads;

struct Args {
  ncclComm_t comm;
  cudaStream_t stream;
  char* send;  // large enough for everything below
  char* recv;
  size_t count;
};

using CallFunction = ncclResult_t (*)(const Args&);

struct Mismatch {
  const char* name;
  const char* words[2];  // both required in the text on every rank
  CallFunction odd;      // the call of the last rank
  CallFunction others;
  bool may_succeed = false;  // one side may finish before it learns of the others' calls
};

const CallFunction kAllReduceSum = [](const Args& a) {
  return ncclAllReduce(a.send, a.recv, a.count, ncclFloat32, ncclSum, a.comm, a.stream);
};
const CallFunction kBroadcastFrom0 = [](const Args& a) {
  return ncclBroadcast(a.send, a.recv, a.count, ncclFloat32, 0, a.comm, a.stream);
};

const Mismatch kMismatches[] = {
    {"Operation",
     {"AllReduce", "AllGather"},
     [](const Args& a) { return ncclAllGather(a.send, a.recv, a.count, ncclFloat32, a.comm, a.stream); },
     kAllReduceSum},
    {"OperationBroadcast", {"AllReduce", "Broadcast"}, kAllReduceSum, kBroadcastFrom0, true},
    {"OperationAlltoAll",
     {"ReduceScatter", "AlltoAll"},
     [](const Args& a) { return ncclAlltoAll(a.send, a.recv, a.count, ncclFloat32, a.comm, a.stream); },
     [](const Args& a) { return ncclReduceScatter(a.send, a.recv, a.count, ncclFloat32, ncclSum, a.comm, a.stream); }},
    {"Count",
     {"AllReduce", "count"},
     [](const Args& a) { return ncclAllReduce(a.send, a.recv, a.count + 1, ncclFloat32, ncclSum, a.comm, a.stream); },
     kAllReduceSum},
    {"Type",
     {"float", "int32"},
     [](const Args& a) { return ncclAllReduce(a.send, a.recv, a.count, ncclInt32, ncclSum, a.comm, a.stream); },
     kAllReduceSum},
    {"Reduction",
     {"sum", "max"},
     [](const Args& a) { return ncclAllReduce(a.send, a.recv, a.count, ncclFloat32, ncclMax, a.comm, a.stream); },
     kAllReduceSum},
    {"Average",
     {"sum", "avg"},
     [](const Args& a) { return ncclAllReduce(a.send, a.recv, a.count, ncclFloat32, ncclAvg, a.comm, a.stream); },
     kAllReduceSum},
    {"Root",
     {"Broadcast", "root"},
     [](const Args& a) { return ncclBroadcast(a.send, a.recv, a.count, ncclFloat32, 1, a.comm, a.stream); },
     kBroadcastFrom0,
     true},
    {"GatherRoot",
     {"Gather", "root"},
     [](const Args& a) { return ncclGather(a.send, a.recv, a.count, ncclFloat32, 1, a.comm, a.stream); },
     [](const Args& a) { return ncclGather(a.send, a.recv, a.count, ncclFloat32, 0, a.comm, a.stream); },
     true},
};

class MismatchTest : public testing::TestWithParam<std::tuple<Mismatch, Layout, size_t>> {};

void RunMismatch(RankContext& context, const Mismatch& mismatch, size_t count) {
  Clique clique;
  ASSERT_TRUE(clique.Init(context));
  const int n = context.nranks();
  {
    // A few operations before, so that the mismatch is not the first.
    CaseRunner runner(context, clique, size_t{4} << 20);
    ASSERT_TRUE(runner.Enqueue({Call::kAllReduce, ncclFloat32, Fold::kSum, 1000, 0, Seed()}, {}));
    ASSERT_TRUE(runner.Enqueue({Call::kAllGather, ncclInt8, Fold::kSum, 10, 0, Seed()}, {}));
    ASSERT_TRUE(runner.Finish());
  }
  std::vector<char> send((count + 1) * static_cast<size_t>(n) * 4), recv(send.size());
  const Args args{clique.comm(), Cuda(clique.stream()), send.data(), recv.data(), count};
  ASSERT_TRUE(context.Barrier());
  ASSERT_TRUE(context.Step("mismatched calls"));
  const uint64_t start = NowNs();
  const ncclResult_t called = (context.rank() == n - 1 ? mismatch.odd : mismatch.others)(args);
  EXPECT_TRUE(called == ncclSuccess || called == ncclInvalidUsage) << called;
  const ncclResult_t ended = axcclStreamSynchronize(clique.stream());
  // A root that only sends may finish before its peers call; it gets the mismatch as an asynchronous error.
  const bool only_sends = mismatch.may_succeed && ended == ncclSuccess;
  EXPECT_TRUE(only_sends || ended == ncclInvalidUsage) << ended << ": " << ncclGetLastError(nullptr);
  ncclResult_t state = ncclSuccess;
  while (state == ncclSuccess && NowNs() - start < AllowedNs(1000)) {
    ASSERT_OK(ncclCommGetAsyncError(clique.comm(), &state));
  }
  EXPECT_EQ(state, ncclInvalidUsage);
  EXPECT_LT(NowNs() - start, AllowedNs(1000));
  for (const char* word : mismatch.words) {
    EXPECT_TRUE(harness::LastErrorHas(word)) << "no \"" << word << "\" in: " << ncclGetLastError(nullptr);
  }
  ASSERT_TRUE(context.Step("abort"));
  EXPECT_OK(ncclCommAbort(clique.comm()));
  clique.ForgetComms();
  // The library still works in the same processes.
  ASSERT_TRUE(context.Barrier());
  Clique next;
  ASSERT_TRUE(next.Init(context));
  CaseRunner runner(context, next, size_t{1} << 20);
  ASSERT_TRUE(runner.Run({Call::kAllReduce, ncclFloat32, Fold::kSum, 1000, 0, Seed()}, {}));
}

TEST_P(MismatchTest, IsInvalidUsageOnEveryRankWithBothCallsNamed) {
  const auto& [mismatch, layout, count] = GetParam();
  RunRanks(layout,
           [&, mismatch = mismatch, count = count](RankContext& context) { RunMismatch(context, mismatch, count); });
}

INSTANTIATE_TEST_SUITE_P(Pairs, MismatchTest,
                         testing::Combine(testing::ValuesIn(kMismatches),
                                          testing::Values(Processes(2), Processes(4), Threads(3)),
                                          testing::Values(size_t{1}, size_t{3000}, size_t{300000})),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param).name) + std::get<1>(info.param).Text() + "x" +
                                  std::to_string(std::get<2>(info.param));
                         });

TEST(Mismatch, OrderOfTwoOperations) {
  RunRanks(Processes(2), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    std::vector<char> send(80000), recv(80000);
    const Args args{clique.comm(), Cuda(clique.stream()), send.data(), recv.data(), 5000};
    const uint64_t start = NowNs();
    const CallFunction first = context.rank() == 0 ? kAllReduceSum : kBroadcastFrom0;
    const CallFunction second = context.rank() == 0 ? kBroadcastFrom0 : kAllReduceSum;
    first(args);
    second(args);
    EXPECT_EQ(axcclStreamSynchronize(clique.stream()), ncclInvalidUsage) << ncclGetLastError(nullptr);
    EXPECT_LT(NowNs() - start, AllowedNs(1000));
    EXPECT_OK(ncclCommAbort(clique.comm()));
    clique.ForgetComms();
  });
}

TEST(Mismatch, SendAndReceiveOfDifferentCounts) {
  for (const size_t count : {size_t{1}, size_t{100000}}) {
    RunRanks(Processes(2), [&](RankContext& context) {
      Clique clique;
      ASSERT_TRUE(clique.Init(context));
      std::vector<int> data(count + 1);
      const uint64_t start = NowNs();
      if (context.rank() == 0) {
        ncclSend(data.data(), count, ncclInt32, 1, clique.comm(), Cuda(clique.stream()));
      } else {
        ncclRecv(data.data(), count + 1, ncclInt32, 0, clique.comm(), Cuda(clique.stream()));
      }
      EXPECT_EQ(axcclStreamSynchronize(clique.stream()), ncclInvalidUsage) << ncclGetLastError(nullptr);
      EXPECT_LT(NowNs() - start, AllowedNs(1000));
      EXPECT_TRUE(harness::LastErrorHas("Send")) << ncclGetLastError(nullptr);
      EXPECT_TRUE(harness::LastErrorHas("Recv")) << ncclGetLastError(nullptr);
      EXPECT_OK(ncclCommAbort(clique.comm()));
      clique.ForgetComms();
    });
  }
}

TEST(Mismatch, CountOfZeroAgainstSome) {
  // A call with a count of 0 is dropped, so the ones that follow differ.
  RunRanks(Processes(2), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    std::vector<char> send(800), recv(800);
    Args args{clique.comm(), Cuda(clique.stream()), send.data(), recv.data(), 100};
    if (context.rank() == 1) {
      args.count = 0;
      kAllReduceSum(args);
      args.count = 100;
      kBroadcastFrom0(args);
    } else {
      kAllReduceSum(args);
      kBroadcastFrom0(args);
    }
    EXPECT_EQ(axcclStreamSynchronize(clique.stream()), ncclInvalidUsage) << ncclGetLastError(nullptr);
    EXPECT_OK(ncclCommAbort(clique.comm()));
    clique.ForgetComms();
  });
}

// Rank 0 has not come to the call in which the others differ, and so cannot see it itself.
TEST(Mismatch, OfOtherRanksIsReportedToOneThatPolls) {
  RunRanks(Processes(3), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    std::vector<char> send(80), recv(80);
    const Args args{clique.comm(), Cuda(clique.stream()), send.data(), recv.data(), 2};
    ASSERT_TRUE(context.Barrier());
    const uint64_t start = NowNs();
    if (context.rank() == 1) kBroadcastFrom0(args);
    if (context.rank() == 2) kAllReduceSum(args);
    ncclResult_t state = ncclSuccess;
    while (state == ncclSuccess && NowNs() - start < AllowedNs(1000)) {
      ASSERT_OK(ncclCommGetAsyncError(clique.comm(), &state));
      harness::LookLater();
    }
    EXPECT_EQ(state, ncclInvalidUsage);
    ASSERT_TRUE(context.Barrier());
    EXPECT_OK(ncclCommAbort(clique.comm()));
    clique.ForgetComms();
  });
}

}  // namespace
}  // namespace axccl::tests
