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

size_t EventNodesOf(Clique& clique, Words* words) {
  const GpuDriver* const driver = EnterGpu();
  void *captured = nullptr, *executable = nullptr;
  EXPECT_EQ(driver->begin_capture(clique.stream(), CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), 0);
  for (int i = 0; i < 2; ++i) EXPECT_OK(Sum(words, words, clique.comm(), clique.stream()));
  EXPECT_EQ(driver->end_capture(clique.stream(), &captured), 0);
  CUgraphNode nodes[64];
  size_t count = std::size(nodes);
  EXPECT_EQ(AXCCL_TEST_DRIVER(cuGraphGetNodes)(static_cast<CUgraph>(captured), nodes, &count), CUDA_SUCCESS);
  const auto is_event = [](CUgraphNode node) {
    CUgraphNodeType type{};
    EXPECT_EQ(AXCCL_TEST_DRIVER(cuGraphNodeGetType)(node, &type), CUDA_SUCCESS);
    return type == CU_GRAPH_NODE_TYPE_WAIT_EVENT || type == CU_GRAPH_NODE_TYPE_EVENT_RECORD;
  };
  const auto events = std::count_if(nodes, nodes + count, is_event);
  EXPECT_EQ(driver->instantiate(&executable, captured, 0), 0);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(driver->launch_graph(executable, clique.stream()), 0);
  EXPECT_TRUE(clique.Synchronize());
  EXPECT_EQ(driver->destroy_executable(executable), 0);
  EXPECT_EQ(driver->destroy_graph(captured), 0);
  return static_cast<size_t>(events);
}

// Bodies of conditional nodes may have no events. A program that does not mix graphs with other calls has none.
TEST(Graphs, HaveEventsOnlyIfTheyAreMixed) {
  struct {
    const char* variable;
    int mode;  // -1: not given
    bool mixed;
  } const kCases[] = {{nullptr, -1, true}, {nullptr, 2, true}, {nullptr, 1, false},
                      {nullptr, 0, false}, {"0", -1, false},   {"1", 0, true}};
  for (const auto& c : kCases) {
    harness::RunOptions options;
    if (c.variable != nullptr) options.environment = {{"NCCL_GRAPH_MIXING_SUPPORT", c.variable}};
    const auto body = [&](RankContext&) {
      ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
      if (c.mode >= 0) config.graphUsageMode = c.mode;
      ncclUniqueId id;
      ncclComm_t comm = nullptr;
      ASSERT_NE(EnterGpu(0), nullptr);
      ASSERT_OK(ncclGetUniqueId(&id));
      ASSERT_OK(ncclCommInitRankConfig(&comm, 1, id, 0, &config));
      Clique clique;
      ASSERT_TRUE(clique.Adopt(comm));
      Words words(1000, 1);
      EXPECT_EQ(EventNodesOf(clique, &words) != 0, c.mixed) << (c.variable != nullptr ? c.variable : "-") << c.mode;
      EXPECT_TRUE(words.AreAll(1));
    };
    RunRanks(harness::OneThread(1), body, options);
  }
}

}  // namespace
}  // namespace axccl::tests
