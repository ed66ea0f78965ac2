// Small calls on one view of ranks on GPUs, which are made like calls on plain buffers: whatever the strides, which may
// be others on each rank, their data travels as words.
#include <gtest/gtest.h>

#include <vector>

#include "tests/cuda/graph.h"
#include "tests/cuda/matrix_calls.h"
#include "tests/cuda/words.h"
#include "tests/harness/channels.h"

namespace axccl::tests {
namespace {

using harness::Clique;
using harness::Cuda;
using harness::LastErrorHas;
using harness::Layout;
using harness::RankContext;
using harness::RunRanks;

constexpr int64_t kRows = 3, kColumns = 5;

MatrixGroup GroupOf(axcclChannel_t channel, int n, int rank, const Clique& clique) {
  return {channel, n, rank, kRows, kColumns, clique.stream()};
}

uint64_t CountLl(const Clique& clique) { return harness::InfoOf(clique.comm()).ll; }

// Each kind of call, with any strides.
void MakeAll(const MatrixGroup& group, const Clique& clique, DeviceRoom* room) {
  for (int salt = 0; salt < 8; ++salt) {
    const Form form = Form::Of(group.rank, salt);
    std::vector<MatrixCall> calls = group.Calls(salt);
    calls.push_back(group.PassOn(salt));
    for (const MatrixCall& one : calls) {
      room->Reset();
      Matrix in(room, one.in_rows, one.in_columns, form.in_turned, form.in_gap);
      Matrix out(room, one.out_rows, one.out_columns, form.out_turned, form.out_gap);
      in.Fill(group.rank, salt);
      const uint64_t before = CountLl(clique);
      ASSERT_OK(one.call(in.view(), out.view())) << one.name;
      ASSERT_OK(harness::SynchronizeStream(clique.stream()));
      EXPECT_EQ(out.CountWrong(one.expected), 0) << one.name << ", salt " << salt;
      EXPECT_EQ(CountLl(clique), before + (&one == &calls.back() ? 2 : 1)) << one.name << ", salt " << salt;
    }
  }
}

class FlatCallsTest : public testing::TestWithParam<Layout> {};  // one rank a thread

TEST_P(FlatCallsTest, WhateverTheStrides) {
  RunRanks(
      GetParam(),
      [](RankContext& context) {
        Clique clique;
        ASSERT_TRUE(clique.Init(context));
        DeviceRoom room;
        const int n = context.nranks(), rank = context.rank();
        ASSERT_TRUE(context.Barrier());
        ASSERT_NO_FATAL_FAILURE(MakeAll(GroupOf(axcclDefaultChannel(clique.comm()), n, rank, clique), clique, &room));
        ASSERT_TRUE(context.Barrier());
        if (n < 3) return;
        // A channel of the first rank and the last ones.
        std::vector<int64_t> most{0};
        for (int64_t r = 2; r < n; ++r) most.push_back(r);
        const axcclChannel_t channel = harness::MakeChannel(clique.comm(), n, {most, {1}}, 9);
        if (rank != 1) {
          ASSERT_NO_FATAL_FAILURE(MakeAll(GroupOf(channel, n - 1, rank == 0 ? 0 : rank - 1, clique), clique, &room));
        }
        EXPECT_OK(axcclChannelDestroy(channel));
        ASSERT_TRUE(context.Barrier());
      },
      SmallGpu(2));
}

INSTANTIATE_TEST_SUITE_P(Layouts, FlatCallsTest,
                         testing::Values(harness::Processes(2), harness::Processes(4), harness::Threads(3)),
                         [](const auto& info) { return info.param.Text(); });

// Each call has dense copies of its own.
TEST(FlatCalls, InGroupsAndGraphs) {
  const auto body = [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    DeviceRoom room;
    const int n = context.nranks(), rank = context.rank();
    const MatrixGroup group = GroupOf(axcclDefaultChannel(clique.comm()), n, rank, clique);
    Matrix in(&room, kRows, kColumns, rank == 0, 1), sum(&room, kRows, kColumns, rank != 0, 1),
        wide(&room, kRows, n * kColumns, false, 1), part(&room, kRows, kColumns, true, 0),
        all(&room, kRows, n * kColumns, rank == 1, 2);
    ASSERT_TRUE(context.Barrier());
    const auto calls = [&] {
      const std::vector<MatrixCall> kinds = group.Calls(0);
      ASSERT_OK(ncclGroupStart());
      ASSERT_OK(kinds[MatrixGroup::kAllReduce].call(in.view(), sum.view()));
      ASSERT_OK(kinds[MatrixGroup::kAllGather].call(in.view(), all.view()));
      ASSERT_OK(kinds[MatrixGroup::kReduceScatter].call(wide.view(), part.view()));
      ASSERT_OK(ncclGroupEnd());
    };
    Graph graph;
    ASSERT_NO_FATAL_FAILURE(graph.Capture(clique.stream(), calls));
    for (int round = 0; round < 6; ++round) {
      in.Fill(rank, round);
      wide.Fill(rank, round);
      const uint64_t before = CountLl(clique);
      ASSERT_NO_FATAL_FAILURE(round % 2 == 0 ? graph.Launch(clique.stream()) : calls());
      ASSERT_TRUE(clique.Synchronize());
      const std::vector<MatrixCall> kinds = group.Calls(round);
      EXPECT_EQ(sum.CountWrong(kinds[MatrixGroup::kAllReduce].expected), 0) << round;
      EXPECT_EQ(all.CountWrong(kinds[MatrixGroup::kAllGather].expected), 0) << round;
      EXPECT_EQ(part.CountWrong(kinds[MatrixGroup::kReduceScatter].expected), 0) << round;
      EXPECT_EQ(CountLl(clique), before + 3);
      ASSERT_TRUE(context.Barrier());
    }
    graph.Destroy();
  };
  RunRanks(harness::Processes(3), body, SmallGpu(2));
  RunRanks(harness::Threads(2), body, SmallGpu(2));
}

// As before: a call on a view and one on plain buffers are not the same.
TEST(FlatCalls, AreNotCallsOnPlainBuffers) {
  RunRanks(harness::Processes(2), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    Words words(4, 1);
    const cudaStream_t stream = Cuda(clique.stream());
    if (context.rank() == 0) {
      ASSERT_OK(ncclAllReduce(words.get(), words.get(), 4, ncclInt32, ncclSum, clique.comm(), stream));
    } else {
      const View view(words.get(), {4});
      ASSERT_OK(axcclAllReduce(1, view, view, ncclSum, axcclDefaultChannel(clique.comm()), nullptr, stream));
    }
    harness::SynchronizeStream(clique.stream());
    EXPECT_EQ(AwaitError(clique.comm(), 5000), ncclInvalidUsage);
    EXPECT_TRUE(LastErrorHas("axcclAllReduce of blocks [4]")) << ncclGetLastError(nullptr);
    EXPECT_OK(ncclCommAbort(clique.comm()));
    clique.ForgetComms();
  });
}

}  // namespace
}  // namespace axccl::tests
