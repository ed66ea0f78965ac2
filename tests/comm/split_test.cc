// Split and Shrink: colours, keys, nesting, and that parents and children do not affect each other.
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
using harness::ExpectShape;
using harness::Fold;
using harness::Layout;
using harness::Processes;
using harness::RankContext;
using harness::RunCliques;
using harness::Seed;
using harness::Threads;

// Sum of `value` over the communicator, on its own stream.
int Sum(ncclComm_t comm, axcclStream_t stream, int value) {
  int sum = -1;
  EXPECT_OK(ncclAllReduce(&value, &sum, 1, ncclInt32, ncclSum, comm, Cuda(stream)));
  EXPECT_OK(axcclStreamSynchronize(stream));
  return sum;
}

class SplitTest : public testing::TestWithParam<Layout> {};

TEST_P(SplitTest, ColoursAndKeys) {
  RunCliques(GetParam(), [](RankContext& context, Clique& clique) {
    const int n = context.nranks();
    const int r = context.rank();
    // Odd and even ranks, in reverse order.
    ncclComm_t half = nullptr;
    ASSERT_TRUE(context.Step("split by parity"));
    ASSERT_OK(ncclCommSplit(clique.comm(), r % 2, n - r, &half, nullptr));
    const int size = r % 2 == 0 ? (n + 1) / 2 : n / 2;
    ExpectShape(half, size, size - 1 - r / 2);
    int expected = 0;
    for (int k = r % 2; k < n; k += 2) expected += k;
    EXPECT_EQ(Sum(half, clique.stream(), r), expected);
    // Equal keys: by parent rank.
    ncclComm_t same = nullptr;
    ASSERT_TRUE(context.Step("split with equal keys"));
    ASSERT_OK(ncclCommSplit(clique.comm(), 1000000, 5, &same, nullptr));
    ExpectShape(same, n, r);
    EXPECT_EQ(Sum(same, clique.stream(), 1), n);
    // The parent is as before, and all three interleave.
    for (int i = 0; i < 10; ++i) {
      EXPECT_EQ(Sum(clique.comm(), clique.stream(), 1), n);
      EXPECT_EQ(Sum(half, clique.stream(), 1), size);
      EXPECT_EQ(Sum(same, clique.stream(), 2), 2 * n);
    }
    EXPECT_OK(ncclCommDestroy(half));
    EXPECT_EQ(Sum(same, clique.stream(), 2), 2 * n);
    EXPECT_OK(ncclCommDestroy(same));
  });
}

TEST_P(SplitTest, NoColourGivesNoCommunicator) {
  RunCliques(GetParam(), [](RankContext& context, Clique& clique) {
    const bool in = context.rank() != 0;
    ncclComm_t child = reinterpret_cast<ncclComm_t>(8);
    ASSERT_OK(ncclCommSplit(clique.comm(), in ? 3 : NCCL_SPLIT_NOCOLOR, 0, &child, nullptr));
    if (!in) {
      EXPECT_EQ(child, nullptr);
      return;
    }
    ExpectShape(child, context.nranks() - 1, context.rank() - 1);
    EXPECT_EQ(Sum(child, clique.stream(), 1), context.nranks() - 1);
    EXPECT_OK(ncclCommDestroy(child));
  });
}

TEST_P(SplitTest, NestedAndOutlivingTheParent) {
  RunCliques(GetParam(), [](RankContext& context, Clique& clique) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.splitShare = 1;
    ncclComm_t child = nullptr;
    ncclComm_t grandchild = nullptr;
    const int r = context.rank();
    const int n = context.nranks();
    ASSERT_OK(ncclCommSplit(clique.comm(), 0, -r, &child, &config));
    ExpectShape(child, n, n - 1 - r);
    ASSERT_OK(ncclCommSplit(child, r == 0 ? 0 : 1, r, &grandchild, nullptr));
    ExpectShape(grandchild, r == 0 ? 1 : n - 1, r == 0 ? 0 : r - 1);
    EXPECT_OK(ncclCommDestroy(clique.comm()));
    clique.ForgetComms();
    EXPECT_EQ(Sum(child, clique.stream(), r), n * (n - 1) / 2);
    EXPECT_OK(ncclCommDestroy(child));
    EXPECT_EQ(Sum(grandchild, clique.stream(), 1), r == 0 ? 1 : n - 1);
    EXPECT_OK(ncclCommDestroy(grandchild));
  });
}

TEST_P(SplitTest, ShrinkRemovesRanks) {
  RunCliques(GetParam(), [](RankContext& context, Clique& clique) {
    const int n = context.nranks();
    int excluded[1] = {1};
    if (context.rank() != 1) {
      ncclComm_t rest = nullptr;
      ASSERT_TRUE(context.Step("shrink"));
      ASSERT_OK(ncclCommShrink(clique.comm(), excluded, 1, &rest, nullptr, NCCL_SHRINK_DEFAULT));
      ExpectShape(rest, n - 1, context.rank() == 0 ? 0 : context.rank() - 1);
      EXPECT_EQ(Sum(rest, clique.stream(), 1), n - 1);
      EXPECT_OK(ncclCommDestroy(rest));
    } else {
      ncclComm_t rest = nullptr;
      EXPECT_EQ(ncclCommShrink(clique.comm(), excluded, 1, &rest, nullptr, NCCL_SHRINK_DEFAULT), ncclInvalidArgument);
    }
    ASSERT_TRUE(context.Barrier());
    EXPECT_EQ(Sum(clique.comm(), clique.stream(), 1), n);
    // The parent's ranks, the excluded one included, still agree on how to make communicators.
    ASSERT_TRUE(context.Step("split after shrink"));
    ncclComm_t child = nullptr;
    ASSERT_OK(ncclCommSplit(clique.comm(), 0, 0, &child, nullptr));
    ExpectShape(child, n, context.rank());
    EXPECT_EQ(Sum(child, clique.stream(), 1), n);
    EXPECT_OK(ncclCommDestroy(child));
  });
}

TEST_P(SplitTest, ManySplitsInARowOfUnequalGroups) {
  // Groups make their communicators at their own pace; a fast group must not disturb what a slow one still reads.
  RunCliques(GetParam(), [](RankContext& context, Clique& clique) {
    const int n = context.nranks();
    const int r = context.rank();
    for (int round = 0; round < 60; ++round) {
      ASSERT_TRUE(context.Step("split %d", round));
      const int loner = round % n;
      const bool out = r == loner && round % 2 == 1;
      ncclComm_t child = nullptr;
      ASSERT_OK(ncclCommSplit(clique.comm(), out ? NCCL_SPLIT_NOCOLOR : r == loner ? 7 : 3, r, &child, nullptr));
      if (out) continue;
      ExpectShape(child, r == loner ? 1 : n - 1, r == loner ? 0 : r > loner ? r - 1 : r);
      if (round % 5 == 0) {
        EXPECT_EQ(Sum(child, clique.stream(), 1), r == loner ? 1 : n - 1);
      }
      ASSERT_OK(ncclCommDestroy(child));
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Layouts, SplitTest, testing::Values(Threads(3), Processes(4), Layout{2, 2, 1}),
                         [](const auto& info) { return info.param.Text(); });

TEST(Split, InAGroupOverSeveralRanksOfOneThread) {
  RunCliques(harness::OneThread(4), [](RankContext& context, Clique& clique) {
    ncclComm_t children[4] = {};
    ASSERT_OK(ncclGroupStart());
    for (int i = 0; i < 4; ++i) ASSERT_OK(ncclCommSplit(clique.comm(i), i / 2, i, &children[i], nullptr));
    ASSERT_OK(ncclGroupEnd());
    Clique halves[2];
    for (int i = 0; i < 4; ++i) ASSERT_TRUE(halves[i / 2].Adopt(children[i]));
    for (Clique& half : halves) {
      ASSERT_EQ(half.nranks(), 2);
      CaseRunner runner(context, half, size_t{1} << 18);
      ASSERT_TRUE(runner.Run({Call::kAllToAll, ncclInt32, Fold::kSum, 33, 0, Seed()}, {}));
    }
  });
}

TEST(Split, RefusesBadArguments) {
  RunCliques(Processes(1), [](RankContext& context, Clique& clique) {
    ncclComm_t child = nullptr;
    EXPECT_EQ(ncclCommSplit(clique.comm(), -5, 0, &child, nullptr), ncclInvalidArgument);
    EXPECT_TRUE(harness::LastErrorHas("color")) << ncclGetLastError(nullptr);
    EXPECT_EQ(ncclCommSplit(clique.comm(), 0, 0, nullptr, nullptr), ncclInvalidArgument);
    EXPECT_EQ(ncclCommSplit(nullptr, 0, 0, &child, nullptr), ncclInvalidArgument);
    int list[1] = {0};
    EXPECT_EQ(ncclCommShrink(clique.comm(), list, -1, &child, nullptr, NCCL_SHRINK_DEFAULT), ncclInvalidArgument);
    EXPECT_EQ(ncclCommShrink(clique.comm(), nullptr, 1, &child, nullptr, NCCL_SHRINK_DEFAULT), ncclInvalidArgument);
    ASSERT_OK(ncclCommSplit(clique.comm(), 0, 0, &child, nullptr));
    ExpectShape(child, 1, 0);
    EXPECT_OK(ncclCommDestroy(child));
    // Without the ranks that are gone: none.
    ASSERT_OK(ncclCommShrink(clique.comm(), nullptr, 0, &child, nullptr, NCCL_SHRINK_DEFAULT));
    ExpectShape(child, 1, 0);
    EXPECT_OK(ncclCommDestroy(child));
  });
}

TEST(Split, ShrinkLeavesTheCallersListAsItIs) {
  static int excluded[2] = {3, 1};  // of all threads
  RunCliques(Threads(4), [](RankContext& context, Clique& clique) {
    if (context.rank() % 2 != 0) return;
    ncclComm_t rest = nullptr;
    ASSERT_OK(ncclCommShrink(clique.comm(), excluded, 2, &rest, nullptr, NCCL_SHRINK_DEFAULT));
    ExpectShape(rest, 2, context.rank() / 2);
    EXPECT_OK(ncclCommDestroy(rest));
  });
  EXPECT_EQ(excluded[0], 3);
  EXPECT_EQ(excluded[1], 1);
}

TEST(Split, RefusesBadRanksAndFlags) {
  RunCliques(Threads(2), [](RankContext& context, Clique& clique) {
    const ncclComm_t comm = clique.comm();
    ncclComm_t child = nullptr;
    const auto refused = [&](ncclResult_t result, const char* call) {
      EXPECT_EQ(result, ncclInvalidArgument) << call;
      EXPECT_TRUE(harness::LastErrorHas(call)) << ncclGetLastError(nullptr);
      EXPECT_EQ(child, nullptr);
    };
    const auto shrink = [&](std::vector<int> excluded, int flags = NCCL_SHRINK_DEFAULT) {
      return ncclCommShrink(comm, excluded.data(), static_cast<int>(excluded.size()), &child, nullptr, flags);
    };
    const int peer = 1 - context.rank();
    refused(shrink({peer, peer}), "ncclCommShrink: ");
    refused(shrink({2}), "ncclCommShrink: ");
    refused(shrink({-1}), "ncclCommShrink: ");
    refused(shrink({context.rank()}), "ncclCommShrink: ");
    refused(shrink({peer}, 77), "ncclCommShrink: ");
    ncclUniqueId id;
    ASSERT_OK(ncclGetUniqueId(&id));
    refused(ncclCommGrow(comm, 3, &id, 0, &child, nullptr), "ncclCommGrow: ");
    refused(ncclCommGrow(comm, 2, &id, -1, &child, nullptr), "ncclCommGrow: ");
    refused(ncclCommGrow(nullptr, 3, nullptr, 2, &child, nullptr), "ncclCommGrow: ");
    EXPECT_EQ(ncclCommGrow(comm, 3, &id, -1, nullptr, nullptr), ncclInvalidArgument);
    ncclUniqueId ids[] = {id, id};
    refused(ncclCommInitRankScalable(&child, 1, 0, 2, ids, nullptr), "ncclCommInitRankScalable: ");
    refused(ncclCommRevoke(comm, 5), "ncclCommRevoke: ");
    EXPECT_EQ(ncclCommGrow(comm, 3 + context.rank(), context.rank() == 0 ? &id : nullptr, -1, &child, nullptr),
              ncclInvalidUsage);
    EXPECT_TRUE(harness::LastErrorHas("pass the same nRanks on all")) << ncclGetLastError(nullptr);
    EXPECT_EQ(Sum(comm, clique.stream(), 2), 4);
  });
}

}  // namespace
}  // namespace axccl::tests
