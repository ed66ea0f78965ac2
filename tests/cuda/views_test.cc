// Calls on views of ranks on GPUs, beyond the suites of all devices: what is refused and how, ranks that make different
// calls, lists of more operands than can be announced, and lists in groups.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "tests/collectives/owned_view.h"
#include "tests/cuda/words.h"
#include "tests/harness/client.h"
#include "tests/harness/gpu.h"
#include "tests/harness/guarded_buffer.h"

namespace axccl::tests {
namespace {

using harness::Clique;
using harness::Cuda;
using harness::GuardedArena;
using harness::LastErrorHas;
using harness::Layout;
using harness::RankContext;
using harness::RunRanks;

// Device memory for one rank's calls.
struct Room {
  std::unique_ptr<GuardedArena> arena = GuardedArena::Create(harness::Memory::kMalloc, size_t{4} << 20);

  int32_t* Ints(size_t count) { return static_cast<int32_t*>(arena->Take(count * sizeof(int32_t), 0)); }
};

void ExpectRefused(ncclResult_t result, const char* words) {
  EXPECT_EQ(result, ncclInvalidUsage);
  EXPECT_TRUE(LastErrorHas(words)) << ncclGetLastError(nullptr);
}

// None of these leaves anything behind: the next call works.
TEST(CudaViews, RefusesWhatIsNotServed) {
  RunRanks(harness::Threads(2), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    Room room;
    int32_t *const in = room.Ints(64), *const out = room.Ints(64);
    const axcclChannel_t channel = axcclDefaultChannel(clique.comm());
    const cudaStream_t stream = Cuda(clique.stream());
    const int64_t numbers[] = {0, 1};
    ExpectRefused(axcclRaggedAllToAll(1, View(in, {3, 2}), View(out, {3, 2}), 0, numbers, numbers, numbers, numbers,
                                      channel, nullptr, stream),
                  "axcclRaggedAllToAll: numbers that are read when the call starts are not served on CUDA devices yet");
    ncclRedOp_t op;
    const axcclReduceFn_t function = [](void*, const void*, size_t, void*) {};
    ASSERT_OK(axcclRedOpCreateCallback(&op, function, nullptr, ncclInt32, clique.comm()));
    ExpectRefused(axcclAllReduce(1, View(in, {2}), View(out, {2}), op, channel, nullptr, stream),
                  "callbacks run on host ranks only");
    ASSERT_OK(ncclRedOpDestroy(op, clique.comm()));
    in[0] = context.rank() + 1;
    ASSERT_OK(axcclAllReduce(1, View(in, {1}), View(out, {1}), ncclSum, channel, nullptr, stream));
    ASSERT_TRUE(clique.Synchronize());
    EXPECT_EQ(out[0], 3);
  });
}

// Blocks of equal size but different shapes.
TEST(CudaViews, DisagreementIsReported) {
  RunRanks(harness::Threads(2), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    Room room;
    int32_t *const in = room.Ints(64), *const out = room.Ints(64);
    const std::vector<int64_t> sizes = context.rank() == 0 ? std::vector<int64_t>{2, 4} : std::vector<int64_t>{4, 2};
    ASSERT_OK(axcclAllReduce(1, View(in, sizes), View(out, sizes), ncclSum, axcclDefaultChannel(clique.comm()), nullptr,
                             Cuda(clique.stream())));
    harness::SynchronizeStream(clique.stream());
    EXPECT_EQ(AwaitError(clique.comm(), 5000), ncclInvalidUsage);
    EXPECT_TRUE(LastErrorHas("[2, 4]") && LastErrorHas("[4, 2]")) << ncclGetLastError(nullptr);
    EXPECT_OK(ncclCommAbort(clique.comm()));
    clique.ForgetComms();
  });
}

// Rank 0 expects nothing from rank 1, which sends rows; and the number of rank 1's rows differs between the ranks.
TEST(CudaViews, DifferentNumbersOfRowsAreReported) {
  for (const bool messages : {true, false}) {
    RunRanks(harness::Threads(2), [messages](RankContext& context) {
      Clique clique;
      ASSERT_TRUE(clique.Init(context));
      Room room;
      int32_t *const in = room.Ints(64), *const out = room.Ints(64);
      const axcclChannel_t channel = axcclDefaultChannel(clique.comm());
      const int64_t none[] = {2, 0}, some[] = {2, 3}, three[] = {3, 3};
      if (messages) {
        ASSERT_OK(axcclAllToAllV(1, View(in, {5, 2}), View(out, {6, 2}), 0, some, context.rank() == 0 ? none : three,
                                 channel, nullptr, Cuda(clique.stream())));
      } else {
        const int64_t rows = context.rank() == 0 ? 2 : 3;
        ASSERT_OK(axcclAllGatherV(1, View(in, {rows, 2}), View(out, {5, 2}), 0, context.rank() == 0 ? none : some,
                                  channel, nullptr, Cuda(clique.stream())));
      }
      harness::SynchronizeStream(clique.stream());
      EXPECT_EQ(AwaitError(clique.comm(), 5000), ncclInvalidUsage);
      EXPECT_TRUE(LastErrorHas("[0, 2]")) << ncclGetLastError(nullptr);
      EXPECT_OK(ncclCommAbort(clique.comm()));
      clique.ForgetComms();
    });
  }
}

// The output is transposed on one rank; a short list is announced, a long one is not.
TEST(CudaViews, TakesListsOfAnyLength) {
  RunRanks(harness::Threads(2), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    Room room;
    for (const int count : {3, 1600}) {
      std::vector<axcclView_t> in, out;
      const int64_t sizes[] = {2, 3}, wide[] = {4, 3}, strides[] = {1, 4};
      for (int i = 0; i < count; ++i) {
        axcclView_t view = AXCCL_VIEW_INITIALIZER;
        view.datatype = ncclInt32;
        view.num_dims = 2;
        view.sizes = sizes;
        view.data = room.Ints(6);
        for (int e = 0; e < 6; ++e) static_cast<int32_t*>(view.data)[e] = 100 * i + 10 * context.rank() + e;
        in.push_back(view);
        view.sizes = wide;
        view.strides = context.rank() == 0 ? strides : nullptr;
        view.data = room.Ints(12);
        out.push_back(view);
      }
      ASSERT_OK(axcclAllGather(count, in.data(), out.data(), 0, axcclDefaultChannel(clique.comm()), nullptr,
                               Cuda(clique.stream())));
      ASSERT_TRUE(clique.Synchronize());
      for (int i = 0; i < count; ++i) {
        const auto* const data = static_cast<const int32_t*>(out[static_cast<size_t>(i)].data);
        for (int row = 0; row < 4; ++row) {
          for (int column = 0; column < 3; ++column) {
            const int at = context.rank() == 0 ? row + 4 * column : 3 * row + column;
            ASSERT_EQ(data[at], 100 * i + 10 * (row / 2) + row % 2 * 3 + column) << "operand " << i << " of " << count;
          }
        }
      }
      room.arena->Reset();
    }
  });
}

// Messages to a peer, in a list that is announced and in one that is not, and to oneself, received in other layouts.
TEST(CudaMessages, BetweenLayouts) {
  for (const Layout& layout : {harness::Threads(2), harness::Processes(2)}) {
    RunRanks(layout, [](RankContext& context) {
      Clique clique;
      ASSERT_TRUE(clique.Init(context));
      Room room;
      const axcclChannel_t channel = axcclDefaultChannel(clique.comm());
      const cudaStream_t stream = Cuda(clique.stream());
      const int peer = 1 - context.rank();
      for (const int count : {1, 3, 300}) {
        std::vector<axcclView_t> sent, received, kept;
        const int64_t sizes[] = {2, 3}, transposed[] = {1, 2}, padded[] = {5, 1};
        for (int i = 0; i < count; ++i) {
          axcclView_t view = AXCCL_VIEW_INITIALIZER;
          view.datatype = ncclInt32;
          view.num_dims = 2;
          view.sizes = sizes;
          view.data = room.Ints(6);
          for (int e = 0; e < 6; ++e) static_cast<int32_t*>(view.data)[e] = 1000 * context.rank() + 10 * i + e;
          sent.push_back(view);
          view.data = room.Ints(6);
          view.strides = transposed;
          received.push_back(view);
          view.data = room.Ints(10);
          view.strides = padded;
          kept.push_back(view);
        }
        ASSERT_OK(ncclGroupStart());
        ASSERT_OK(axcclRecv(count, kept.data(), context.rank(), channel, nullptr, stream));
        ASSERT_OK(axcclSend(count, sent.data(), peer, channel, nullptr, stream));
        ASSERT_OK(axcclRecv(count, received.data(), peer, channel, nullptr, stream));
        ASSERT_OK(axcclSend(count, sent.data(), context.rank(), channel, nullptr, stream));
        ASSERT_OK(ncclGroupEnd());
        ASSERT_TRUE(clique.Synchronize());
        for (int i = 0; i < count; ++i) {
          const auto at = static_cast<size_t>(i);
          for (int e = 0; e < 6; ++e) {
            const int value = 10 * i + e, row = e / 3, column = e % 3;
            ASSERT_EQ(static_cast<int32_t*>(received[at].data)[row + 2 * column], 1000 * peer + value)
                << i << " of " << count;
            ASSERT_EQ(static_cast<int32_t*>(kept[at].data)[5 * row + column], 1000 * context.rank() + value) << i;
          }
        }
        ASSERT_TRUE(context.Barrier());
        room.arena->Reset();
      }
    });
  }
}

// A permutation in which one rank sends to itself, and one neither sends nor receives and so gets zeros.
TEST(CudaMessages, Permutations) {
  RunRanks(harness::Layout{1, 2, 2}, [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    Room room;
    const int64_t pairs[] = {0, 2, 1, 1, 2, 0};  // 3 is in none
    std::vector<int32_t*> outputs;
    ASSERT_OK(ncclGroupStart());
    for (int i = 0; i < clique.size(); ++i) {
      int32_t *const in = room.Ints(6), *const out = room.Ints(8);
      for (int e = 0; e < 6; ++e) in[e] = 10 * clique.rank(i) + e;
      std::fill_n(out, 8, -1);
      outputs.push_back(out);
      ASSERT_OK(axcclCollectivePermute(1, View(in, {2, 3}), View(out, {2, 3}, {4, 1}), pairs, 3,
                                       axcclDefaultChannel(clique.comm(i)), nullptr, Cuda(clique.stream(i))));
    }
    ASSERT_OK(ncclGroupEnd());
    ASSERT_TRUE(clique.Synchronize());
    const int sources[] = {2, 1, 0, -1};
    for (int i = 0; i < clique.size(); ++i) {
      const int source = sources[clique.rank(i)];
      for (int e = 0; e < 6; ++e)
        EXPECT_EQ(outputs[static_cast<size_t>(i)][e / 3 * 4 + e % 3], source < 0 ? 0 : 10 * source + e)
            << clique.rank(i);
      EXPECT_EQ(outputs[static_cast<size_t>(i)][3], -1);
    }
    ASSERT_TRUE(context.Barrier());
  });
}

TEST(CudaMessages, MismatchIsReportedToBothSides) {
  RunRanks(harness::Processes(2), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    Room room;
    int32_t* const data = room.Ints(4);
    const axcclChannel_t channel = axcclDefaultChannel(clique.comm());
    if (context.rank() == 0) {
      ASSERT_OK(axcclSend(1, View(data, {4}), 1, channel, nullptr, Cuda(clique.stream())));
    } else {
      ASSERT_OK(axcclRecv(1, View(data, {2, 2}), 0, channel, nullptr, Cuda(clique.stream())));
    }
    harness::SynchronizeStream(clique.stream());
    EXPECT_EQ(AwaitError(clique.comm(), 5000), ncclInvalidUsage);
    EXPECT_TRUE(LastErrorHas("of blocks [4] int32") && LastErrorHas("of blocks [2, 2] int32"))
        << ncclGetLastError(nullptr);
    ASSERT_TRUE(context.Barrier());
    EXPECT_OK(ncclCommAbort(clique.comm()));
    clique.ForgetComms();
  });
}

}  // namespace
}  // namespace axccl::tests
