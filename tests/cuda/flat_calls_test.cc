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

uint64_t CountFlagged(const Clique& clique) {
  const axcclCommInfo_t info = harness::InfoOf(clique.comm());
  return info.ll + info.ll128;
}

// Each kind of call, with any strides.
void MakeAll(const MatrixGroup& group, const Clique& clique, DeviceRoom* room) {
  for (int salt = 0; salt < 8; ++salt) {
    const Form form = Form::Of(group.rank, salt);
    std::vector<MatrixCall> calls = group.Calls(salt);
    const size_t collectives = calls.size();
    calls.push_back(group.PassOn(salt));
    calls.push_back(group.Permute(salt));
    for (const MatrixCall& one : calls) {
      room->Reset();
      Matrix in(room, one.in_rows, one.in_columns, form.in_turned, form.in_gap);
      Matrix out(room, one.out_rows, one.out_columns, form.out_turned, form.out_gap);
      in.Fill(group.rank, salt);
      const uint64_t before = CountFlagged(clique);
      ASSERT_OK(one.call(in.view(), out.view())) << one.name;
      ASSERT_OK(harness::SynchronizeStream(clique.stream()));
      EXPECT_EQ(out.CountWrong(one.expected), 0) << one.name << ", salt " << salt;
      const bool passes_on = &one == &calls[collectives];
      const bool permutes_both_ways = &one == &calls.back() && group.rank != 0 && group.rank + 1 != group.n;
      const uint64_t flagged = passes_on || permutes_both_ways ? 2 : 1;
      EXPECT_EQ(CountFlagged(clique), before + flagged) << one.name << ", salt " << salt;
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
      const uint64_t before = CountFlagged(clique);
      ASSERT_NO_FATAL_FAILURE(round % 2 == 0 ? graph.Launch(clique.stream()) : calls());
      ASSERT_TRUE(clique.Synchronize());
      const std::vector<MatrixCall> kinds = group.Calls(round);
      EXPECT_EQ(sum.CountWrong(kinds[MatrixGroup::kAllReduce].expected), 0) << round;
      EXPECT_EQ(all.CountWrong(kinds[MatrixGroup::kAllGather].expected), 0) << round;
      EXPECT_EQ(part.CountWrong(kinds[MatrixGroup::kReduceScatter].expected), 0) << round;
      EXPECT_EQ(CountFlagged(clique), before + 3);
      ASSERT_TRUE(context.Barrier());
    }
    graph.Destroy();
  };
  RunRanks(harness::Processes(3), body, SmallGpu(2));
  RunRanks(harness::Threads(2), body, SmallGpu(2));
}

// With `scale`, which multiplies a sum before it is rounded: 1 + 2 + 3 of bfloat16, by 1.5. Each rank has other
// strides.
TEST(FlatCalls, ScaleResults) {
  constexpr size_t kMost = 512;
  const auto body = [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    const harness::GpuDriver* const driver = harness::EnterGpu();
    DeviceRoom room;
    const int rank = context.rank();
    const uint64_t in = room.Take(4 * 3 * kMost), out = room.Take(4 * kMost);
    ASSERT_TRUE(context.Barrier());
    for (const size_t count : {size_t{1}, size_t{7}, kMost}) {
      for (const bool scatters : {false, true}) {
        const auto size = static_cast<int64_t>(count), blocks = int64_t{scatters ? 3 : 1};
        const int64_t step = rank == 1 ? 2 : 1;
        constexpr uint16_t kNumbers[] = {0x3f80, 0x4000, 0x4040};  // 1, 2, 3
        const std::vector<uint16_t> values(2 * 3 * kMost, kNumbers[rank]);
        ASSERT_EQ(driver->copy_to_device(in, values.data(), values.size() * sizeof(uint16_t)), 0);
        std::vector<uint16_t> sums(2 * kMost, 0xffff);
        ASSERT_EQ(driver->copy_to_device(out, sums.data(), sums.size() * sizeof(uint16_t)), 0);
        const View from(reinterpret_cast<void*>(in), {blocks * size}, {step}, ncclBfloat16),
            to(reinterpret_cast<void*>(out), {size}, {3 - step}, ncclBfloat16);
        axcclOptions_t options = AXCCL_OPTIONS_INITIALIZER;
        options.scale = 1.5;
        const axcclChannel_t channel = axcclDefaultChannel(clique.comm());
        const cudaStream_t stream = Cuda(clique.stream());
        const uint64_t before = CountFlagged(clique);
        ASSERT_OK(scatters ? axcclReduceScatter(1, from, to, 0, ncclSum, channel, &options, stream)
                           : axcclAllReduce(1, from, to, ncclSum, channel, &options, stream));
        ASSERT_TRUE(clique.Synchronize());
        EXPECT_EQ(CountFlagged(clique), before + 1);
        ASSERT_EQ(driver->copy_to_host(sums.data(), out, sums.size() * sizeof(uint16_t)), 0);
        for (size_t i = 0; i < sums.size(); ++i) {
          const auto stride = static_cast<size_t>(3 - step);
          const bool is_sum = i % stride == 0 && i / stride < count;
          ASSERT_EQ(sums[i], is_sum ? 0x4110 : 0xffff) << i;  // 9
        }
      }
    }
    ASSERT_TRUE(context.Barrier());
  };
  RunRanks(harness::Processes(3), body, SmallGpu(3));
  RunRanks(harness::Threads(3), body, SmallGpu(1));
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
