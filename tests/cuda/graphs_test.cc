// What graphs with captured calls consist of, and what they hold.
#include <cuda.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <vector>

#include "axccl/channels.h"
#include "axccl/views.h"
#include "tests/cuda/chunked_memory.h"
#include "tests/cuda/graph.h"
#include "tests/cuda/words.h"

namespace axccl::tests {
namespace {

using harness::Clique;
using harness::Cuda;
using harness::EnterGpu;
using harness::GpuDriver;
using harness::RankContext;
using harness::RunRanks;

// On many views, so that graphs keep a table of them.
constexpr int kViews = 32;
constexpr int64_t kViewed[] = {16, 16}, kApart[] = {32, 1};
constexpr size_t kOfView = 512;  // words

void SumMany(const Clique& clique, const Words& in, Words* out) {
  ASSERT_OK(ncclGroupStart());
  for (int r = 0; r < clique.size(); ++r) {
    std::vector<axcclView_t> inputs(kViews, AXCCL_VIEW_INITIALIZER);
    for (size_t v = 0; v < kViews; ++v) {
      inputs[v].data = const_cast<int32_t*>(in.get()) + v * kOfView;
      inputs[v].datatype = ncclInt32;
      inputs[v].num_dims = 2;
      inputs[v].sizes = kViewed;
      inputs[v].strides = kApart;
    }
    std::vector<axcclView_t> outputs = inputs;
    for (size_t v = 0; v < kViews; ++v) outputs[v].data = out->get() + (static_cast<size_t>(r) * kViews + v) * kOfView;
    ASSERT_OK(axcclAllReduce(kViews, inputs.data(), outputs.data(), ncclSum, axcclDefaultChannel(clique.comm(r)),
                             nullptr, Cuda(clique.stream())));
  }
  ASSERT_OK(ncclGroupEnd());
}

bool AreSums(const Words& out, int32_t value) {
  for (size_t at = 0; at < out.size(); ++at) {
    if (at % 32 < 16 && out.get()[at] != value) return false;
  }
  return true;
}

TEST(Graphs, GiveBackWhatTheyHaveTaken) {
  harness::RunOptions options;
  options.environment = {{"SOFTGPU_DEVICES", "1"}};
  const auto body = [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    const Words ones(kViews * kOfView, 1), twos(kViews * kOfView, 2);
    Words out(2 * kViews * kOfView), other(2 * kViews * kOfView);
    const auto free_after = [&](int captures) {
      for (int i = 0; i < captures; ++i) {
        Graph graph;
        EXPECT_NO_FATAL_FAILURE(graph.Capture(clique.stream(), [&] { SumMany(clique, ones, &out); }));
        if (i % 50 != 0) continue;
        EXPECT_NO_FATAL_FAILURE(graph.Launch(clique.stream()));
        EXPECT_TRUE(clique.Synchronize());
      }
      size_t free = 0, total = 0;
      EXPECT_EQ(EnterGpu()->memory_info(&free, &total), 0);
      return free;
    };
    const size_t before = free_after(3);
    EXPECT_EQ(free_after(200), before);
    // What a graph still has is not given to another one.
    Graph first, second;
    ASSERT_NO_FATAL_FAILURE(first.Capture(clique.stream(), [&] { SumMany(clique, ones, &out); }));
    ASSERT_NO_FATAL_FAILURE(second.Capture(clique.stream(), [&] { SumMany(clique, twos, &other); }));
    ASSERT_NO_FATAL_FAILURE(SumMany(clique, twos, &out));
    ASSERT_NO_FATAL_FAILURE(first.Launch(clique.stream()));
    ASSERT_NO_FATAL_FAILURE(second.Launch(clique.stream()));
    ASSERT_TRUE(clique.Synchronize());
    EXPECT_TRUE(AreSums(out, 2) && AreSums(other, 4)) << out.get()[0] << " " << other.get()[0];
  };
  RunRanks(harness::OneThread(2), body, options);
}

}  // namespace
}  // namespace axccl::tests
