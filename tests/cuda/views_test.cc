// Calls on views of ranks on GPUs, beyond what the suites of all devices say: what is refused and how, ranks that call
// different things, lists of more operands than can be announced, and lists in groups.
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "tests/collectives/owned_view.h"
#include "tests/harness/client.h"
#include "tests/harness/gpu.h"
#include "tests/harness/guarded_buffer.h"

namespace axccl::tests {
namespace {

using harness::Arena;
using harness::Clique;
using harness::Cuda;
using harness::LastErrorHas;
using harness::RankContext;
using harness::RunRanks;

// Memory of the device for one rank's calls.
struct Room {
  std::unique_ptr<Arena> arena = Arena::Create(harness::Memory::kMalloc, size_t{4} << 20);

  int32_t* Ints(size_t count) { return static_cast<int32_t*>(arena->Take(count * sizeof(int32_t), 0)); }
};

void ExpectRefused(ncclResult_t result, const char* words) {
  EXPECT_EQ(result, ncclInvalidUsage);
  EXPECT_TRUE(LastErrorHas(words)) << ncclGetLastError(nullptr);
}

// None of these leaves anything behind: what follows works.
TEST(CudaViews, SaysWhatIsNotServed) {
  RunRanks(harness::Threads(2), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    Room room;
    int32_t *const in = room.Ints(64), *const out = room.Ints(64);
    const axcclChannel_t channel = axcclDefaultChannel(clique.comm());
    const cudaStream_t stream = Cuda(clique.stream());
    const int64_t extents[] = {1, 2};
    ExpectRefused(
        axcclAllGatherV(1, View(in, {context.rank() + 1, 2}), View(out, {3, 2}), 0, extents, channel, nullptr, stream),
        "parts of different sizes on CUDA devices are not served yet");
    ExpectRefused(axcclSend(1, View(in, {2}), 1 - context.rank(), channel, nullptr, stream),
                  "messages of views on CUDA devices are not served yet");
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

// Blocks of one size and different forms.
TEST(CudaViews, RanksThatDoNotAgreeAreTold) {
  RunRanks(harness::Threads(2), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    Room room;
    int32_t *const in = room.Ints(64), *const out = room.Ints(64);
    const std::vector<int64_t> sizes = context.rank() == 0 ? std::vector<int64_t>{2, 4} : std::vector<int64_t>{4, 2};
    ASSERT_OK(axcclAllReduce(1, View(in, sizes), View(out, sizes), ncclSum, axcclDefaultChannel(clique.comm()), nullptr,
                             Cuda(clique.stream())));
    harness::SynchronizeStream(clique.stream());
    ncclResult_t error = ncclInProgress;
    do {
      ASSERT_OK(ncclCommGetAsyncError(clique.comm(), &error));
    } while (error == ncclSuccess || error == ncclInProgress);
    EXPECT_EQ(error, ncclInvalidUsage);
    EXPECT_TRUE(LastErrorHas("[2, 4]") && LastErrorHas("[4, 2]")) << ncclGetLastError(nullptr);
    EXPECT_OK(ncclCommAbort(clique.comm()));
    clique.ForgetComms();
  });
}

// Transposed on one rank, and announced or not, as there are few or many.
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

}  // namespace
}  // namespace axccl::tests
