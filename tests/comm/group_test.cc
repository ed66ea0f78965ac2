// Groups: nesting, errors inside, several communicators, and estimates.
#include <gtest/gtest.h>

#include <vector>

#include "tests/harness/case_runner.h"
#include "tests/harness/timing.h"

namespace axccl::tests {
namespace {

using harness::Call;
using harness::CaseRunner;
using harness::Clique;
using harness::Cuda;
using harness::Fold;
using harness::Processes;
using harness::RankContext;
using harness::RunRanks;
using harness::Seed;
using harness::Threads;

TEST(Group, EndWithoutStartIsInvalidUsage) {
  RunRanks(Processes(1), [](RankContext& context) {
    EXPECT_EQ(ncclGroupEnd(), ncclInvalidUsage);
    EXPECT_TRUE(harness::LastErrorHas("ncclGroupEnd")) << ncclGetLastError(nullptr);
    ASSERT_OK(ncclGroupStart());
    ASSERT_OK(ncclGroupEnd());
    EXPECT_EQ(ncclGroupEnd(), ncclInvalidUsage);
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    CaseRunner runner(context, clique, size_t{1} << 18);
    ASSERT_TRUE(runner.Run({Call::kAllReduce, ncclInt32, Fold::kSum, 10, 0, Seed()}, {}));
  });
}

TEST(Group, OnlyTheOutermostEndActs) {
  RunRanks(harness::OneThread(3), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    int data[3] = {1, 2, 4};
    ASSERT_OK(ncclGroupStart());
    for (int i = 0; i < 3; ++i) {
      ASSERT_OK(ncclGroupStart());
      ASSERT_OK(ncclAllReduce(&data[i], &data[i], 1, ncclInt32, ncclSum, clique.comm(i), Cuda(clique.stream(i))));
      // If this launched, a blocking library would never reach the next rank's call.
      ASSERT_OK(ncclGroupEnd());
      EXPECT_EQ(axcclStreamQuery(clique.stream(i)), ncclSuccess);
    }
    ASSERT_OK(ncclGroupEnd());
    ASSERT_TRUE(clique.Synchronize());
    for (const int value : data) EXPECT_EQ(value, 7);
  });
}

TEST(Group, ManyOperationsOfManyCommunicators) {
  RunRanks(Processes(3), [](RankContext& context) {
    constexpr int kComms = 5;
    constexpr int kOps = 20;
    Clique cliques[kComms];
    for (Clique& clique : cliques) ASSERT_TRUE(clique.Init(context, 2));
    std::vector<int64_t> data(kComms * kOps);
    for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<int64_t>(i) + context.rank();
    ASSERT_OK(ncclGroupStart());
    for (int k = 0; k < kOps; ++k) {
      for (int c = 0; c < kComms; ++c) {
        int64_t* value = &data[static_cast<size_t>(c * kOps + k)];
        ASSERT_OK(
            ncclAllReduce(value, value, 1, ncclInt64, ncclSum, cliques[c].comm(), Cuda(cliques[c].stream(0, k % 2))));
      }
    }
    ASSERT_OK(ncclGroupEnd());
    for (Clique& clique : cliques) ASSERT_TRUE(clique.Synchronize());
    for (size_t i = 0; i < data.size(); ++i) EXPECT_EQ(data[i], static_cast<int64_t>(i) * 3 + 3) << i;
  });
}

TEST(Group, StreamsJoinBeforeAndForkAfter) {
  // A group over two streams starts after earlier work of both; work enqueued later on either comes after the group.
  RunRanks(Processes(2), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context, 2));
    struct State {
      std::vector<int> a, b, copy;
    } state;
    state.a.assign(1000, 0);
    state.b.assign(1000, 0);
    for (int round = 0; round < 20; ++round) {
      const auto fill = [](void* s) {
        State* state = static_cast<State*>(s);
        std::fill(state->a.begin(), state->a.end(), 1);
        std::fill(state->b.begin(), state->b.end(), 10);
      };
      ASSERT_OK(axcclLaunchHostFunc(clique.stream(0, 1), fill, &state));
      ASSERT_OK(ncclGroupStart());
      // `a` is on the stream that did not fill it.
      ASSERT_OK(ncclAllReduce(state.a.data(), state.a.data(), 1000, ncclInt32, ncclSum, clique.comm(),
                              Cuda(clique.stream(0, 0))));
      ASSERT_OK(ncclAllReduce(state.b.data(), state.b.data(), 1000, ncclInt32, ncclSum, clique.comm(),
                              Cuda(clique.stream(0, 1))));
      ASSERT_OK(ncclGroupEnd());
      ASSERT_OK(axcclLaunchHostFunc(
          clique.stream(0, 0), [](void* s) { static_cast<State*>(s)->copy = static_cast<State*>(s)->b; }, &state));
      ASSERT_TRUE(clique.Synchronize());
      ASSERT_EQ(state.a, std::vector<int>(1000, 2));
      ASSERT_EQ(state.copy, std::vector<int>(1000, 20));
    }
  });
}

TEST(Group, AnErrorInsideIsReturnedByTheEndAndNothingIsLaunched) {
  RunRanks(Threads(2), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    int data = context.rank();
    ASSERT_OK(ncclGroupStart());
    ASSERT_OK(ncclAllReduce(&data, &data, 1, ncclInt32, ncclSum, clique.comm(), Cuda(clique.stream())));
    EXPECT_EQ(ncclBroadcast(&data, &data, 1, ncclInt32, 17, clique.comm(), Cuda(clique.stream())), ncclInvalidArgument);
    EXPECT_EQ(ncclGroupEnd(), ncclInvalidArgument);
    EXPECT_OK(axcclStreamSynchronize(clique.stream()));
    EXPECT_EQ(data, context.rank());
    ncclResult_t state = ncclInternalError;
    ASSERT_OK(ncclCommGetAsyncError(clique.comm(), &state));
    EXPECT_EQ(state, ncclSuccess);
    // Neither the next group nor the next single call is affected.
    ASSERT_TRUE(context.Barrier());
    ASSERT_OK(ncclGroupStart());
    ASSERT_OK(ncclAllReduce(&data, &data, 1, ncclInt32, ncclSum, clique.comm(), Cuda(clique.stream())));
    ASSERT_OK(ncclGroupEnd());
    ASSERT_OK(axcclStreamSynchronize(clique.stream()));
    EXPECT_EQ(data, 1);
    ASSERT_OK(ncclAllReduce(&data, &data, 1, ncclInt32, ncclSum, clique.comm(), Cuda(clique.stream())));
    ASSERT_OK(axcclStreamSynchronize(clique.stream()));
    EXPECT_EQ(data, 2);
  });
}

// Also one that is no call of the group.
TEST(Group, AnErrorOfAnyCallMeanwhileCancels) {
  RunRanks(Processes(1), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    const int in = 5;
    int out = 0;
    ASSERT_OK(ncclGroupStart());
    ASSERT_OK(ncclAllReduce(&in, &out, 1, ncclInt32, ncclSum, clique.comm(), Cuda(clique.stream())));
    EXPECT_EQ(ncclCommCount(clique.comm(), nullptr), ncclInvalidArgument);
    EXPECT_EQ(ncclGroupEnd(), ncclInvalidArgument);
    EXPECT_TRUE(harness::LastErrorHas("ncclCommCount")) << ncclGetLastError(nullptr);
    EXPECT_OK(axcclStreamSynchronize(clique.stream()));
    EXPECT_EQ(out, 0);
  });
}

TEST(Group, NothingIsLaunchedIfAnInitFails) {
  RunRanks(Processes(1), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    ncclUniqueId used;
    ncclComm_t first = nullptr, second = nullptr;
    ASSERT_OK(ncclGetUniqueId(&used));
    ASSERT_OK(ncclCommInitRank(&first, 1, used, 0));
    int in = 5, out = -1;
    ASSERT_OK(ncclGroupStart());
    ASSERT_OK(ncclCommInitRank(&second, 1, used, 0));
    ASSERT_OK(ncclAllReduce(&in, &out, 1, ncclInt32, ncclSum, clique.comm(), Cuda(clique.stream())));
    EXPECT_NE(ncclGroupEnd(), ncclSuccess);
    EXPECT_EQ(second, nullptr);
    ASSERT_TRUE(clique.Synchronize());
    EXPECT_EQ(out, -1);
    ASSERT_OK(ncclAllReduce(&in, &out, 1, ncclInt32, ncclSum, clique.comm(), Cuda(clique.stream())));
    ASSERT_TRUE(clique.Synchronize());
    EXPECT_EQ(out, 5);
    EXPECT_OK(ncclCommDestroy(first));
  });
}

TEST(Group, MixingBlockingAndNonBlockingIsRefused) {
  RunRanks(Processes(1), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    ncclUniqueId id;
    ASSERT_OK(ncclGetUniqueId(&id));
    const ncclComm_t other = harness::BeginInit(id, 1, 0);
    ASSERT_NE(other, nullptr);
    ncclResult_t state = ncclInProgress;
    while (state == ncclInProgress) ASSERT_OK(ncclCommGetAsyncError(other, &state));
    ASSERT_OK(state);
    int a = 1;
    int b = 2;
    ASSERT_OK(ncclGroupStart());
    const ncclResult_t first = ncclAllReduce(&a, &a, 1, ncclInt32, ncclSum, clique.comm(), Cuda(clique.stream()));
    const ncclResult_t second = ncclAllReduce(&b, &b, 1, ncclInt32, ncclSum, other, Cuda(clique.stream()));
    const ncclResult_t end = ncclGroupEnd();
    EXPECT_TRUE(end == ncclInvalidArgument || end == ncclInvalidUsage) << first << " " << second << " " << end;
    EXPECT_TRUE(harness::LastErrorHas("blocking")) << ncclGetLastError(nullptr);
    // Each still works alone.
    CaseRunner runner(context, clique, size_t{1} << 18);
    ASSERT_TRUE(runner.Run({Call::kAllReduce, ncclInt32, Fold::kSum, 10, 0, Seed()}, {}));
    EXPECT_OK(ncclCommDestroy(other));
  });
}

// NCCL destroys both kinds in one group, whatever else is in it.
TEST(Group, DestroysBlockingAndNonBlockingTogether) {
  RunRanks(Processes(1), [](RankContext&) {
    for (const bool with_operation : {false, true}) {
      ncclComm_t comms[4];
      for (int i = 0; i < 4; ++i) {
        ncclUniqueId id;
        ASSERT_OK(ncclGetUniqueId(&id));
        if (i == 0) {
          ASSERT_OK(ncclCommInitRank(&comms[i], 1, id, 0));
          continue;
        }
        comms[i] = harness::BeginInit(id, 1, 0);
        ASSERT_NE(comms[i], nullptr);
        ncclResult_t state = ncclInProgress;
        while (state == ncclInProgress) ASSERT_OK(ncclCommGetAsyncError(comms[i], &state));
        ASSERT_OK(state);
      }
      const int in = 3;
      int out = 0;
      ASSERT_OK(ncclGroupStart());
      for (int i = 0; i < 3; ++i) EXPECT_OK(ncclCommDestroy(comms[i]));
      if (with_operation) {
        EXPECT_OK(ncclAllReduce(&in, &out, 1, ncclInt32, ncclSum, comms[3], nullptr));
      }
      EXPECT_OK(ncclGroupEnd());
      EXPECT_OK(axcclStreamSynchronize(nullptr));
      EXPECT_EQ(out, with_operation ? 3 : 0);
      int count = 0;
      for (int i = 0; i < 3; ++i) EXPECT_EQ(ncclCommCount(comms[i], &count), ncclInvalidArgument) << i;
      EXPECT_OK(ncclCommDestroy(comms[3]));
    }
  });
}

TEST(Group, ThreadsHaveGroupsOfTheirOwn) {
  // An open group of one thread must not swallow another thread's calls.
  RunRanks(Threads(2), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    int data = 5;
    if (context.rank() == 0) {
      ASSERT_OK(ncclGroupStart());
      context.Set(0, 1);
      ASSERT_EQ(context.Await(1), 1u);
      ASSERT_OK(ncclAllReduce(&data, &data, 1, ncclInt32, ncclSum, clique.comm(), Cuda(clique.stream())));
      ASSERT_OK(ncclGroupEnd());
    } else {
      ASSERT_EQ(context.Await(0), 1u);
      EXPECT_EQ(ncclGroupEnd(), ncclInvalidUsage);
      ASSERT_OK(ncclAllReduce(&data, &data, 1, ncclInt32, ncclSum, clique.comm(), Cuda(clique.stream())));
      context.Set(1, 1);
    }
    ASSERT_TRUE(clique.Synchronize());
    EXPECT_EQ(data, 10);
  });
}

// ---- estimates ----

TEST(Simulate, EstimatesGrowWithSizeAndMoveNothing) {
  RunRanks(Processes(2), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    std::vector<float> data(size_t{8} << 20, 1.0f);
    float previous = 0;
    for (const size_t count : {size_t{1}, size_t{1} << 16, size_t{1} << 20, size_t{8} << 20}) {
      ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
      ASSERT_OK(ncclGroupStart());
      ASSERT_OK(
          ncclAllReduce(data.data(), data.data(), count, ncclFloat32, ncclSum, clique.comm(), Cuda(clique.stream())));
      ASSERT_OK(ncclGroupSimulateEnd(&info));
      EXPECT_GT(info.estimatedTime, previous) << count;
      EXPECT_LT(info.estimatedTime, 1e9f);
      previous = info.estimatedTime;
    }
    EXPECT_OK(axcclStreamSynchronize(clique.stream()));
    EXPECT_EQ(data[0], 1.0f);
    // The group is closed, and real calls still work.
    EXPECT_EQ(ncclGroupEnd(), ncclInvalidUsage);
    CaseRunner runner(context, clique, size_t{1} << 18);
    ASSERT_TRUE(runner.Run({Call::kAllReduce, ncclInt32, Fold::kSum, 10, 0, Seed()}, {}));
  });
}

TEST(Simulate, AnInnerEndEstimatesNothing) {
  RunRanks(Processes(1), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    int data = 0;
    ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
    ASSERT_OK(ncclGroupStart());
    ASSERT_OK(ncclAllReduce(&data, &data, 1, ncclInt32, ncclSum, clique.comm(), Cuda(clique.stream())));
    ASSERT_OK(ncclGroupStart());
    ASSERT_OK(ncclGroupSimulateEnd(&info));
    EXPECT_EQ(info.estimatedTime, NCCL_UNDEF_FLOAT);
    ASSERT_OK(ncclGroupSimulateEnd(&info));
    EXPECT_GE(info.estimatedTime, 0);
  });
}

TEST(Simulate, RefusesBadInfo) {
  RunRanks(Processes(1), [](RankContext&) {
    ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
    info.magic = 1;
    ASSERT_OK(ncclGroupStart());
    EXPECT_EQ(ncclGroupSimulateEnd(&info), ncclInvalidArgument);
    info = NCCL_SIM_INFO_INITIALIZER;
    info.size = sizeof(info) - 1;
    ASSERT_OK(ncclGroupStart());
    EXPECT_EQ(ncclGroupSimulateEnd(&info), ncclInvalidArgument);
    info = NCCL_SIM_INFO_INITIALIZER;
    EXPECT_EQ(ncclGroupSimulateEnd(&info), ncclInvalidUsage);  // the refused one has closed the group
  });
}

}  // namespace
}  // namespace axccl::tests
