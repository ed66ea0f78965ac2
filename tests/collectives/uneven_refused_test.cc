// Parts of different sizes: what is allowed, and what is refused.
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <vector>

#include "tests/collectives/owned_view.h"
#include "tests/harness/client.h"

namespace axccl::tests {
namespace {

using harness::Clique;
using harness::Cuda;
using harness::LastErrorHas;
using harness::RankContext;
using harness::RunRanks;

using Values = std::vector<int32_t>;
using Rows = std::vector<int64_t>;

// The parts of an output or input overlap the other operand in place.
TEST(Uneven, InPlace) {
  for (const auto& layout : {harness::Processes(2), harness::Threads(2)}) {
    RunRanks(layout, [](RankContext& context) {
      Clique clique;
      ASSERT_TRUE(clique.Init(context));
      const axcclChannel_t channel = axcclDefaultChannel(clique.comm());
      const cudaStream_t stream = Cuda(clique.stream());
      const int rank = context.rank();
      const int64_t extents[] = {1, 2};
      Values all = rank == 0 ? Values{1, 0, 0} : Values{0, 2, 3};
      const View mine(all.data() + rank, {extents[rank]}), whole(all.data(), {3});
      ASSERT_OK(axcclAllGatherV(1, mine, whole, 0, extents, channel, nullptr, stream));
      ASSERT_TRUE(clique.Synchronize());
      EXPECT_EQ(all, (Values{1, 2, 3}));
      ASSERT_OK(axcclReduceScatterV(1, whole, mine, 0, ncclSum, extents, channel, nullptr, stream));
      ASSERT_TRUE(clique.Synchronize());
      EXPECT_EQ(all, rank == 0 ? (Values{2, 2, 3}) : (Values{1, 4, 6}));
      // Both views are the same; ranks other than the root hold zeros afterwards.
      const int32_t root = 1;
      ASSERT_OK(axcclReduceTo(1, whole, whole, ncclMax, &root, channel, nullptr, stream));
      ASSERT_TRUE(clique.Synchronize());
      EXPECT_EQ(all, rank == 1 ? (Values{2, 4, 6}) : (Values{0, 0, 0}));
      ASSERT_OK(axcclBroadcastFrom(1, whole, whole, &root, channel, nullptr, stream));
      ASSERT_TRUE(clique.Synchronize());
      EXPECT_EQ(all, (Values{2, 4, 6}));
    });
  }
}

// The numbers are read when the stream reaches the call, so an earlier callback may still write them.
TEST(Uneven, RaggedNumbersAreReadLate) {
  RunRanks(harness::Processes(2), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    const int rank = context.rank();
    // The example of views.h.
    struct Numbers {
      int rank;
      int64_t input_offsets[2] = {7, 7}, send[2] = {7, 7}, output_offsets[2] = {7, 7}, receive[2] = {7, 7};
    } numbers{rank};
    auto write = [](void* argument) {
      auto* n = static_cast<Numbers*>(argument);
      const Numbers values[2] = {{0, {0, 1}, {1, 2}, {0, 0}, {1, 1}}, {1, {0, 1}, {1, 1}, {1, 2}, {2, 1}}};
      *n = values[n->rank];
    };
    Values in = rank == 0 ? Values{1, 2, 2} : Values{3, 4, 0}, out(4);
    const View from(in.data(), {3}), to(out.data(), {4});
    ASSERT_OK(axcclLaunchHostFunc(clique.stream(), write, &numbers));
    ASSERT_OK(axcclRaggedAllToAll(1, from, to, 0, numbers.input_offsets, numbers.send, numbers.output_offsets,
                                  numbers.receive, axcclDefaultChannel(clique.comm()), nullptr, Cuda(clique.stream())));
    ASSERT_TRUE(clique.Synchronize());
    EXPECT_EQ(out, rank == 0 ? (Values{1, 3, 0, 0}) : (Values{2, 2, 4, 0}));
  });
}

// What one rank can detect alone is refused at once, and nothing is written.
TEST(Uneven, WrongExtentsAreNamed) {
  RunRanks(harness::Threads(2), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    const axcclChannel_t channel = axcclDefaultChannel(clique.comm());
    const cudaStream_t stream = Cuda(clique.stream());
    Values memory(64, 7);
    int32_t* const data = memory.data();
    const View three(data, {3}), two(data + 8, {2}), five(data + 16, {5}), square(data + 32, {2, 2}), scalar(data, {});
    auto refused = [](ncclResult_t result, const char* words) {
      EXPECT_EQ(result, ncclInvalidArgument) << words;
      EXPECT_TRUE(LastErrorHas(words)) << words << " not in " << ncclGetLastError(nullptr);
    };
    const int64_t sum5[] = {3, 2}, sum6[] = {3, 3}, negative[] = {3, -1}, huge[] = {INT64_MAX, 1};
    const View& part = context.rank() == 0 ? three : two;
    refused(axcclAllGatherV(1, part, five, 0, nullptr, channel, nullptr, stream),
            "axcclAllGatherV: argument extents is NULL; pass the number of rows of every rank");
    refused(axcclAllGatherV(1, three, five, 0, negative, channel, nullptr, stream), "operand 0 has -1 rows for rank 1");
    refused(axcclAllGatherV(1, three, five, 0, huge, channel, nullptr, stream), "operand 0 has 1 rows for rank 1");
    refused(axcclAllGatherV(1, three, five, 0, sum6, channel, nullptr, stream),
            "axcclAllGatherV: output has size 5 along dimension 0, its pieces take 6");
    refused(axcclReduceScatterV(1, five, three, 0, ncclSum, sum6, channel, nullptr, stream),
            "axcclReduceScatterV: input has size 5 along dimension 0, its pieces take 6");
    refused(axcclAllGatherV(1, three, square, 0, sum5, channel, nullptr, stream), "output has 2 dimensions");
    refused(axcclAllGatherV(1, three, five, 1, sum5, channel, nullptr, stream), "dim is 1, but input has 1 dimensions");
    refused(axcclAllGatherV(1, scalar, scalar, 0, sum5, channel, nullptr, stream),
            "dim is 0, but input has no dimensions");
    refused(axcclAllToAllV(1, five, three, 0, sum5, nullptr, channel, nullptr, stream),
            "argument receive_extents is NULL");
    refused(axcclAllToAllV(1, five, five, 0, sum5, sum5, channel, nullptr, stream), "cannot run in place");
    refused(axcclRaggedAllToAll(1, five, three, 0, sum5, sum5, nullptr, sum5, channel, nullptr, stream),
            "axcclRaggedAllToAll: an array that is read when the call starts is NULL");
    refused(axcclBroadcastFrom(1, five, three, nullptr, channel, nullptr, stream), "axcclBroadcastFrom: an array");
    refused(axcclBroadcastFrom(0, five, five, nullptr, channel, nullptr, stream),
            "axcclBroadcastFrom: argument count is 0");
    // An element that several blocks hold would be reduced while it is still read.
    const View repeated(data, {5, 2}, {0, 1}), line(data, {1, 2});
    const int64_t own_row[] = {context.rank() == 0 ? 1 : 4, context.rank() == 0 ? 4 : 1};
    refused(axcclReduceScatterV(1, repeated, line, 0, ncclSum, own_row, channel, nullptr, stream),
            "axcclReduceScatterV: input reaches one element by two indices, which in place is not allowed");
    // More numbers than ranks have room to exchange.
    const View nothing(nullptr, {0});
    const std::vector<axcclView_t> many(1 << 16, nothing.view);
    const Rows none(2 * many.size());
    refused(axcclAllGatherV(1 << 16, many.data(), many.data(), 0, none.data(), channel, nullptr, stream),
            "axcclAllGatherV: argument count is 65536; with the numbers of rows of every rank at most about ");
    EXPECT_EQ(memory, Values(64, 7));
    ASSERT_TRUE(clique.Synchronize());
  });
}

// Errors that ranks can only detect together end the call on all of them, before anything is written.
struct Disagreement {
  const char* name;
  const char* words;
  ncclResult_t (*call)(int rank, int32_t* in, int32_t* out, axcclChannel_t channel, cudaStream_t stream);
};

const Disagreement kDisagreements[] = {
    {"Extents", "gives 2 rows to rank",
     [](int rank, int32_t* in, int32_t* out, axcclChannel_t channel, cudaStream_t stream) {
       const Rows send = {2, 2}, receive = rank == 0 ? Rows{2, 2} : Rows{3, 1};
       return axcclAllToAllV(1, View(in, {4}), View(out, {4}), 0, send.data(), receive.data(), channel, nullptr,
                             stream);
     }},
    {"Roots", "BroadcastFrom of blocks [4] int32: operand 0: rank 0 and rank 1 read different roots",
     [](int rank, int32_t* in, int32_t* out, axcclChannel_t channel, cudaStream_t stream) {
       static const int32_t roots[2] = {0, 1};
       return axcclBroadcastFrom(1, View(in, {4}), View(out, {4}), &roots[rank], channel, nullptr, stream);
     }},
    {"RootRange", "root 2 of operand 0, which rank ",
     [](int rank, int32_t* in, int32_t* out, axcclChannel_t channel, cudaStream_t stream) {
       static const int32_t root = 2;
       return axcclBroadcastFrom(1, View(in, {4}), View(out, {4}), &root, channel, nullptr, stream);
     }},
    {"InputOffset", "read when the call started, leave the 4 rows of its input",
     [](int rank, int32_t* in, int32_t* out, axcclChannel_t channel, cudaStream_t stream) {
       static const int64_t offsets[] = {0, 3}, two[] = {2, 2}, targets[] = {0, 2};
       return axcclRaggedAllToAll(1, View(in, {4}), View(out, {4}), 0, offsets, two, targets, two, channel, nullptr,
                                  stream);
     }},
    {"OutputOffset", "leave the 4 rows of the output",
     [](int rank, int32_t* in, int32_t* out, axcclChannel_t channel, cudaStream_t stream) {
       static const int64_t offsets[] = {0, 2}, two[] = {2, 2}, targets[] = {3, 3};
       return axcclRaggedAllToAll(1, View(in, {4}), View(out, {4}), 0, offsets, two, targets, two, channel, nullptr,
                                  stream);
     }},
    {"Overlap", "both write row 1 of the output of rank 0",
     [](int rank, int32_t* in, int32_t* out, axcclChannel_t channel, cudaStream_t stream) {
       static const int64_t offsets[] = {0, 2}, two[] = {2, 2}, targets[2][2] = {{0, 0}, {1, 2}};
       return axcclRaggedAllToAll(1, View(in, {4}), View(out, {4}), 0, offsets, two, targets[rank], two, channel,
                                  nullptr, stream);
     }},
};

TEST(Uneven, DisagreementIsReportedBeforeAnythingIsWritten) {
  for (const Disagreement& disagreement : kDisagreements) {
    SCOPED_TRACE(disagreement.name);
    RunRanks(harness::Processes(2), [&](RankContext& context) {
      Clique clique;
      ASSERT_TRUE(clique.Init(context));
      Values in(4, context.rank()), out(4, 9);
      (void)disagreement.call(context.rank(), in.data(), out.data(), axcclDefaultChannel(clique.comm()),
                              Cuda(clique.stream()));
      clique.ExpectMismatch({disagreement.words});
      EXPECT_EQ(out, Values(4, 9));
    });
  }
}

}  // namespace
}  // namespace axccl::tests
