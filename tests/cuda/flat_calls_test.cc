// Small calls on one view of ranks on GPUs, which are made like calls on plain buffers: whatever the strides, which may
// be others on each rank, their data travels as words.
#include <gtest/gtest.h>

#include <functional>
#include <utility>
#include <vector>

#include "tests/collectives/owned_view.h"
#include "tests/cuda/graph.h"
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
constexpr int32_t kSentinel = -7;

int32_t Value(int rank, int64_t row, int64_t column, int round = 0) {
  return static_cast<int32_t>(1000 * rank + 100 * row + column + 50'000 * round);
}

// In memory row by row, or column by column if `turned`, with gaps between these.
class Matrix {
 public:
  Matrix(int64_t rows, int64_t columns, bool turned, int64_t gap)
      : rows_(rows),
        columns_(columns),
        turned_(turned),
        pitch_((turned ? rows : columns) + gap),
        words_(static_cast<size_t>(pitch_ * (turned ? columns : rows)), kSentinel) {}

  int32_t& At(int64_t row, int64_t column) {
    return words_.get()[turned_ ? column * pitch_ + row : row * pitch_ + column];
  }
  void Fill(int rank, int round = 0) {
    for (int64_t r = 0; r < rows_; ++r)
      for (int64_t c = 0; c < columns_; ++c) At(r, c) = Value(rank, r, c, round);
  }
  // How many numbers are not what they should be, and words of gaps that have changed. Forgets all.
  int64_t CountWrong(const std::function<int32_t(int64_t, int64_t)>& expected) {
    int64_t wrong = 0;
    for (int64_t r = 0; r < rows_; ++r)
      for (int64_t c = 0; c < columns_; ++c) wrong += std::exchange(At(r, c), kSentinel) != expected(r, c);
    for (size_t i = 0; i < words_.size(); ++i) wrong += words_.get()[i] != kSentinel;
    return wrong;
  }
  View view() {
    return View(words_.get(), {rows_, columns_},
                turned_ ? std::vector<int64_t>{1, pitch_} : std::vector<int64_t>{pitch_, 1});
  }

 private:
  const int64_t rows_, columns_;
  const bool turned_;
  const int64_t pitch_;
  Words words_;
};

// Where the blocks of a rank lie.
struct Form {
  bool in_turned, out_turned;
  int64_t in_gap, out_gap;
};
Form FormOf(int rank, int salt) {
  const int bits = 5 * rank + 3 * salt;
  return {(bits & 1) != 0, (bits & 2) != 0, bits / 4 % 2, bits / 8 % 2};
}

// One call of a kind on a matrix, and what it brings.
struct Case {
  const char* name;
  int64_t in_rows, in_columns, out_rows, out_columns;
  std::function<ncclResult_t(const axcclView_t*, const axcclView_t*)> call;
  std::function<int32_t(int64_t, int64_t)> expected;  // null: this rank gets nothing
};

int32_t SumOf(int n, int64_t row, int64_t column, int round) {
  int32_t sum = 0;
  for (int rank = 0; rank < n; ++rank) sum += Value(rank, row, column, round);
  return sum;
}

// Of a group of `n` ranks.
std::vector<Case> CasesOf(axcclChannel_t channel, int n, int rank, int round, const Clique& clique) {
  const cudaStream_t stream = Cuda(clique.stream());
  const int root = n - 1;
  using In = const axcclView_t*;
  const auto at_root = [&](std::function<int32_t(int64_t, int64_t)> f) { return rank == root ? f : nullptr; };
  const auto gathered = [=](int64_t r, int64_t c) {
    return Value(static_cast<int>(c / kColumns), r, c % kColumns, round);
  };
  const auto summed = [=](int64_t r, int64_t c) { return SumOf(n, r, c, round); };
  return {
      {"all_reduce", kRows, kColumns, kRows, kColumns,
       [=](In in, In out) { return axcclAllReduce(1, in, out, ncclSum, channel, nullptr, stream); }, summed},
      {"all_gather", kRows, kColumns, kRows, n * kColumns,
       [=](In in, In out) { return axcclAllGather(1, in, out, 1, channel, nullptr, stream); }, gathered},
      {"reduce_scatter", kRows, n * kColumns, kRows, kColumns,
       [=](In in, In out) { return axcclReduceScatter(1, in, out, 1, ncclSum, channel, nullptr, stream); },
       [=](int64_t r, int64_t c) { return SumOf(n, r, rank * kColumns + c, round); }},
      {"all_to_all", kRows, n * kColumns, n * kRows, kColumns,
       [=](In in, In out) { return axcclAllToAll(1, in, out, 1, 0, channel, nullptr, stream); },
       [=](int64_t r, int64_t c) { return Value(static_cast<int>(r / kRows), r % kRows, rank * kColumns + c, round); }},
      {"broadcast", kRows, kColumns, kRows, kColumns,
       [=](In in, In out) { return axcclBroadcast(1, in, out, root, channel, nullptr, stream); },
       [=](int64_t r, int64_t c) { return Value(root, r, c, round); }},
      {"gather", kRows, kColumns, kRows, n * kColumns,
       [=](In in, In out) { return axcclGather(1, in, out, 1, root, channel, nullptr, stream); }, at_root(gathered)},
      {"scatter", kRows, n * kColumns, kRows, kColumns,
       [=](In in, In out) { return axcclScatter(1, in, out, 1, root, channel, nullptr, stream); },
       [=](int64_t r, int64_t c) { return Value(root, r, rank * kColumns + c, round); }},
      {"reduce", kRows, kColumns, kRows, kColumns,
       [=](In in, In out) { return axcclReduce(1, in, out, ncclSum, root, channel, nullptr, stream); },
       [=](int64_t r, int64_t c) { return rank == root ? SumOf(n, r, c, round) : 0; }},
  };
}

uint64_t CountLl(const Clique& clique) { return harness::InfoOf(clique.comm()).ll; }

// Each kind of call, with any strides.
void MakeAll(axcclChannel_t channel, int n, int rank, int round, const Clique& clique) {
  for (int salt = 0; salt < 8; ++salt) {
    const Form form = FormOf(rank, salt);
    for (const Case& one : CasesOf(channel, n, rank, round, clique)) {
      Matrix in(one.in_rows, one.in_columns, form.in_turned, form.in_gap);
      Matrix out(one.out_rows, one.out_columns, form.out_turned, form.out_gap);
      in.Fill(rank, round);
      const uint64_t before = CountLl(clique);
      ASSERT_OK(one.call(in.view(), out.view())) << one.name;
      ASSERT_OK(harness::SynchronizeStream(clique.stream()));
      const auto nothing = [](int64_t, int64_t) { return kSentinel; };
      EXPECT_EQ(out.CountWrong(one.expected != nullptr ? one.expected : nothing), 0) << one.name << ", salt " << salt;
      EXPECT_EQ(CountLl(clique), before + 1) << one.name << ", salt " << salt;
    }
  }
}

// A message to the next rank and one from the rank before.
void PassOn(axcclChannel_t channel, int n, int rank, const Clique& clique) {
  const cudaStream_t stream = Cuda(clique.stream());
  const int next = (rank + 1) % n, previous = (rank + n - 1) % n;
  for (int salt = 0; salt < 8; ++salt) {
    const Form form = FormOf(rank, salt);
    Matrix in(kRows, kColumns, form.in_turned, form.in_gap), out(kRows, kColumns, form.out_turned, form.out_gap);
    in.Fill(rank);
    const uint64_t before = CountLl(clique);
    ASSERT_OK(ncclGroupStart());
    ASSERT_OK(axcclSend(1, in.view(), next, channel, nullptr, stream));
    ASSERT_OK(axcclRecv(1, out.view(), previous, channel, nullptr, stream));
    ASSERT_OK(ncclGroupEnd());
    ASSERT_OK(harness::SynchronizeStream(clique.stream()));
    EXPECT_EQ(out.CountWrong([&](int64_t r, int64_t c) { return Value(previous, r, c); }), 0) << "salt " << salt;
    EXPECT_EQ(CountLl(clique), before + 2);
  }
}

class FlatCallsTest : public testing::TestWithParam<Layout> {};  // one rank a thread

TEST_P(FlatCallsTest, WhateverTheStrides) {
  RunRanks(
      GetParam(),
      [](RankContext& context) {
        Clique clique;
        ASSERT_TRUE(clique.Init(context));
        const int n = context.nranks(), rank = context.rank();
        for (int round = 0; round < 2; ++round)
          ASSERT_NO_FATAL_FAILURE(MakeAll(axcclDefaultChannel(clique.comm()), n, rank, round, clique));
        ASSERT_NO_FATAL_FAILURE(PassOn(axcclDefaultChannel(clique.comm()), n, rank, clique));
        ASSERT_TRUE(context.Barrier());
        if (n < 3) return;
        // A channel of the first rank and the last ones.
        std::vector<int64_t> most{0};
        for (int64_t r = 2; r < n; ++r) most.push_back(r);
        const axcclChannel_t channel = harness::MakeChannel(clique.comm(), n, {most, {1}}, 9);
        const int position = rank == 0 ? 0 : rank - 1;
        if (rank != 1) {
          ASSERT_NO_FATAL_FAILURE(MakeAll(channel, n - 1, position, 2, clique));
          ASSERT_NO_FATAL_FAILURE(PassOn(channel, n - 1, position, clique));
        }
        EXPECT_OK(axcclChannelDestroy(channel));
        ASSERT_TRUE(context.Barrier());
      },
      SmallGpu(2));
}

INSTANTIATE_TEST_SUITE_P(Layouts, FlatCallsTest,
                         testing::Values(harness::Processes(2), harness::Processes(4), harness::Threads(3)),
                         [](const auto& info) { return info.param.Text(); });

// Blocks of one rank and of another one are dense copies of their own.
TEST(FlatCalls, InGroupsAndGraphs) {
  const auto body = [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    const int n = context.nranks(), rank = context.rank();
    const axcclChannel_t channel = axcclDefaultChannel(clique.comm());
    Matrix in(kRows, kColumns, rank == 0, 1), sum(kRows, kColumns, rank != 0, 1), wide(kRows, n * kColumns, false, 1),
        part(kRows, kColumns, true, 0), all(kRows, n * kColumns, rank == 1, 2);
    const cudaStream_t stream = Cuda(clique.stream());
    const auto calls = [&] {
      ASSERT_OK(ncclGroupStart());
      ASSERT_OK(axcclAllReduce(1, in.view(), sum.view(), ncclSum, channel, nullptr, stream));
      ASSERT_OK(axcclAllGather(1, in.view(), all.view(), 1, channel, nullptr, stream));
      ASSERT_OK(axcclReduceScatter(1, wide.view(), part.view(), 1, ncclSum, channel, nullptr, stream));
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
      EXPECT_EQ(sum.CountWrong([&](int64_t r, int64_t c) { return SumOf(n, r, c, round); }), 0) << round;
      EXPECT_EQ(all.CountWrong([&](int64_t r, int64_t c) {
        return Value(static_cast<int>(c / kColumns), r, c % kColumns, round);
      }),
                0)
          << round;
      EXPECT_EQ(part.CountWrong([&](int64_t r, int64_t c) { return SumOf(n, r, rank * kColumns + c, round); }), 0)
          << round;
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
