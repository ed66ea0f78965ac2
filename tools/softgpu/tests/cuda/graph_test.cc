// Captures and graphs.
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>

#include "tools/softgpu/tests/cuda/fixture.h"

namespace softgpu::test {
namespace {

class Graphs : public DriverTest {
 protected:
  CUgraphExec Instantiate(CUgraph graph) {
    CUgraphExec exec = nullptr;
    EXPECT_EQ(cuGraphInstantiate(&exec, graph, 0), CUDA_SUCCESS);
    return exec;
  }
  CUgraph Capture(CUstream stream, const std::function<void()>& work) {
    CUgraph graph = nullptr;
    EXPECT_EQ(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), CUDA_SUCCESS);
    work();
    EXPECT_EQ(cuStreamEndCapture(stream, &graph), CUDA_SUCCESS);
    return graph;
  }

  std::atomic<int> called_{0};
};

TEST_F(Graphs, ReplayACapture) {
  const CUstream stream = NewStream();
  CUdeviceptr word = Zeroed(4);
  uint32_t three = 3;
  const CUgraph graph = Capture(stream, [&] {
    for (int i = 0; i < 2; ++i) OK(Launch("add", stream, {&word, &three}));
  });
  EXPECT_EQ(Word(word), 0u) << "capturing runs nothing";
  const CUgraphExec exec = Instantiate(graph);
  for (int i = 0; i < 5; ++i) OK(cuGraphLaunch(exec, stream));
  OK(cuStreamSynchronize(stream));
  EXPECT_EQ(Word(word), 30u);
  OK(cuGraphExecDestroy(exec));
  OK(cuGraphDestroy(graph));
  EXPECT_EQ(cuGraphLaunch(exec, stream), CUDA_ERROR_INVALID_VALUE);
}

// Branches of a graph that wait for each other.
TEST_F(Graphs, ForkedBranchesRunSideBySide) {
  const CUstream stream = NewStream(), branch = NewStream();
  CUdeviceptr flag = Zeroed(4);
  CUevent fork = nullptr, join = nullptr;
  OK(cuEventCreate(&fork, CU_EVENT_DISABLE_TIMING));
  OK(cuEventCreate(&join, CU_EVENT_DISABLE_TIMING));
  const CUgraph graph = Capture(stream, [&] {
    OK(cuMemsetD32Async(flag, 0, 1, stream));
    OK(cuEventRecord(fork, stream));
    OK(cuStreamWaitEvent(branch, fork, 0));
    OK(Launch("wait_flag", stream, {&flag}));
    OK(Launch("set_flag", branch, {&flag}));
    OK(cuEventRecord(join, branch));
    OK(cuStreamWaitEvent(stream, join, 0));
    CUstreamCaptureStatus status;
    OK(cuStreamIsCapturing(branch, &status));
    EXPECT_EQ(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
  });
  size_t nodes = 0;
  OK(cuGraphGetNodes(graph, nullptr, &nodes));
  EXPECT_EQ(nodes, 3u);
  const CUgraphExec exec = Instantiate(graph);
  for (int i = 0; i < 3; ++i) OK(cuGraphLaunch(exec, stream));
  OK(cuStreamSynchronize(stream));
  EXPECT_EQ(cuEventQuery(join), CUDA_ERROR_CAPTURED_EVENT);
}

TEST_F(Graphs, UnsupportedCapturesAreErrors) {
  const CUstream stream = NewStream(), other = NewStream(), blocking = NewStream(CU_STREAM_DEFAULT);
  CUgraph graph = nullptr;
  CUevent event = nullptr;
  CUdeviceptr word = Zeroed(4), address = 0;
  OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));

  OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  EXPECT_EQ(cuStreamSynchronize(stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  EXPECT_EQ(cuMemsetD32Async(word, 1, 1, stream), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  EXPECT_EQ(cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  EXPECT_EQ(graph, nullptr);

  OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  EXPECT_EQ(cuMemAlloc(&address, 4), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  EXPECT_EQ(cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);

  OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  OK(cuMemAlloc(&address, 4)) << "relaxed";
  OK(cuStreamEndCapture(stream, &graph));

  OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  OK(cuThreadExchangeStreamCaptureMode(&mode));
  OK(cuMemAlloc(&address, 4)) << "relaxed by the thread";
  OK(cuThreadExchangeStreamCaptureMode(&mode));
  EXPECT_EQ(mode, CU_STREAM_CAPTURE_MODE_RELAXED);
  OK(cuStreamEndCapture(stream, &graph));

  EXPECT_EQ(cuStreamBeginCapture(nullptr, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  EXPECT_EQ(cuStreamEndCapture(stream, &graph), CUDA_ERROR_ILLEGAL_STATE);

  OK(cuStreamBeginCapture(blocking, CU_STREAM_CAPTURE_MODE_RELAXED));
  EXPECT_EQ(cuMemsetD32Async(word, 1, 1, nullptr), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
  EXPECT_EQ(cuStreamEndCapture(blocking, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);

  // A branch is not joined.
  OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  OK(cuMemsetD32Async(word, 1, 1, stream));
  OK(cuEventRecord(event, stream));
  OK(cuStreamWaitEvent(other, event, 0));
  OK(cuMemsetD32Async(word, 2, 1, other));
  EXPECT_EQ(cuStreamEndCapture(other, &graph), CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
  EXPECT_EQ(cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  OK(cuEventRecord(event, stream));
  OK(cuStreamWaitEvent(other, event, 0));
  OK(cuMemsetD32Async(word, 2, 1, other));
  EXPECT_EQ(cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
  OK(cuMemsetD32Async(word, 1, 1, other)) << "the stream no longer captures";
  OK(cuStreamSynchronize(other));

  // Work from outside the capture.
  OK(cuEventRecord(event, other));
  OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  EXPECT_EQ(cuStreamWaitEvent(stream, event, 0), CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
  EXPECT_EQ(cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

TEST_F(Graphs, CapturesCanBeInspectedAndChanged) {
  const CUstream stream = NewStream();
  CUdeviceptr word = Zeroed(4);
  const CUgraph captured = Capture(stream, [&] {
    OK(cuMemsetD32Async(word, 1, 1, stream));
    CUstreamCaptureStatus status;
    cuuint64_t id = 0;
    CUgraph graph = nullptr;
    const CUgraphNode* dependencies = nullptr;
    size_t count = 0;
    OK(cuStreamGetCaptureInfo(stream, &status, &id, &graph, &dependencies, nullptr, &count));
    EXPECT_EQ(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
    EXPECT_NE(id, 0u);
    ASSERT_EQ(count, 1u);
    CUgraphNode host = nullptr;
    CUDA_HOST_NODE_PARAMS parameters = {[](void* data) { *static_cast<std::atomic<int>*>(data) = 5; }, &called_};
    OK(cuGraphAddHostNode(&host, graph, dependencies, count, &parameters));
    OK(cuStreamUpdateCaptureDependencies(stream, &host, nullptr, 1, CU_STREAM_SET_CAPTURE_DEPENDENCIES));
    OK(cuMemsetD32Async(word, 2, 1, stream));
  });
  const CUgraphExec exec = Instantiate(captured);
  OK(cuGraphLaunch(exec, stream));
  OK(cuStreamSynchronize(stream));
  EXPECT_EQ(called_, 5);
  EXPECT_EQ(Word(word), 2u);
}

// Programs built with CUDA 11 have kernel nodes without the two last members.
TEST_F(Graphs, HaveKernelNodesOfOlderHeaders) {
  using AddNode = CUresult (*)(CUgraphNode*, CUgraph, const CUgraphNode*, size_t, const CUDA_KERNEL_NODE_PARAMS_v1*);
  using GetParams = CUresult (*)(CUgraphNode, CUDA_KERNEL_NODE_PARAMS_v1*);
  using SetParams = CUresult (*)(CUgraphExec, CUgraphNode, const CUDA_KERNEL_NODE_PARAMS_v1*);
  const auto find = [](const char* name) {
    void* found = nullptr;
    EXPECT_EQ(cuGetProcAddress(name, &found, 11080, CU_GET_PROC_ADDRESS_DEFAULT, nullptr), CUDA_SUCCESS) << name;
    return found;
  };
  const auto add_node = reinterpret_cast<AddNode>(find("cuGraphAddKernelNode"));
  const auto get = reinterpret_cast<GetParams>(find("cuGraphKernelNodeGetParams"));
  const auto set = reinterpret_cast<SetParams>(find("cuGraphExecKernelNodeSetParams"));
  ASSERT_TRUE(add_node != nullptr && get != nullptr && set != nullptr);
  CUdeviceptr words = Zeroed(8);
  uint32_t seven = 7;
  void* arguments[] = {&words, &seven};
  struct {
    CUDA_KERNEL_NODE_PARAMS_v1 kernel = {};
    uint64_t behind[2] = {~0ull, ~0ull};  // not members
  } p;
  p.kernel.func = Function("add");
  p.kernel.gridDimX = p.kernel.gridDimY = p.kernel.gridDimZ = 1;
  p.kernel.blockDimX = p.kernel.blockDimY = p.kernel.blockDimZ = 1;
  p.kernel.kernelParams = arguments;
  CUgraph graph = nullptr;
  CUgraphNode node = nullptr;
  OK(cuGraphCreate(&graph, 0));
  OK(add_node(&node, graph, nullptr, 0, &p.kernel));
  const CUgraphExec exec = Instantiate(graph);
  OK(cuGraphLaunch(exec, nullptr));
  OK(cuStreamSynchronize(nullptr));
  EXPECT_EQ(Word(words), 7u);
  seven = 9;
  OK(set(exec, node, &p.kernel));
  OK(cuGraphLaunch(exec, nullptr));
  OK(cuStreamSynchronize(nullptr));
  EXPECT_EQ(Word(words), 16u);
  p.kernel = {};
  OK(get(node, &p.kernel));
  EXPECT_EQ(p.kernel.gridDimX, 1u);
  EXPECT_EQ(*static_cast<uint32_t*>(p.kernel.kernelParams[1]), 7u);
  EXPECT_EQ(p.behind[0] & p.behind[1], ~0ull);
}

TEST_F(Graphs, CanBeMadeByHand) {
  CUdeviceptr words = Zeroed(8);
  uint32_t seven = 7;
  CUgraph graph = nullptr, child = nullptr;
  OK(cuGraphCreate(&graph, 0));
  OK(cuGraphCreate(&child, 0));
  void* arguments[] = {&words, &seven};
  CUDA_KERNEL_NODE_PARAMS kernel = {};
  kernel.func = Function("add");
  kernel.gridDimX = kernel.gridDimY = kernel.gridDimZ = kernel.blockDimX = kernel.blockDimY = kernel.blockDimZ = 1;
  kernel.kernelParams = arguments;
  CUgraphNode add = nullptr, fill = nullptr, copy = nullptr, nested = nullptr;
  OK(cuGraphAddKernelNode(&add, child, nullptr, 0, &kernel));
  CUDA_MEMSET_NODE_PARAMS set = {};
  set.dst = words;
  set.elementSize = 4;
  set.width = 2;
  set.height = 1;
  set.value = 100;
  OK(cuGraphAddMemsetNode(&fill, graph, nullptr, 0, &set, context_));
  OK(cuGraphAddChildGraphNode(&nested, graph, &fill, 1, child));
  CUDA_MEMCPY3D line = {};
  line.srcMemoryType = line.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  line.srcDevice = words;
  line.dstDevice = words + 4;
  line.WidthInBytes = 4;
  line.Height = line.Depth = 1;
  OK(cuGraphAddMemcpyNode(&copy, graph, &nested, 1, &line, context_));
  const CUgraphExec exec = Instantiate(graph);
  OK(cuGraphLaunch(exec, nullptr));
  OK(cuStreamSynchronize(nullptr));
  EXPECT_EQ(Word(words + 4), 107u);

  set.value = 200;
  OK(cuGraphExecMemsetNodeSetParams(exec, fill, &set, context_));
  OK(cuGraphLaunch(exec, nullptr));
  EXPECT_EQ(Word(words + 4), 207u);

  CUDA_KERNEL_NODE_PARAMS read = {};
  OK(cuGraphKernelNodeGetParams(add, &read));
  EXPECT_EQ(*static_cast<uint32_t*>(read.kernelParams[1]), 7u);

  const std::string path = testing::TempDir() + "graph_" + std::to_string(getpid()) + ".dot";
  OK(cuGraphDebugDotPrint(graph, path.c_str(), 0));
  std::stringstream dot;
  dot << std::ifstream(path).rdbuf();
  for (const char* part : {"digraph graph_", "[label=\"set\"]", "[label=\"graph\"]", "[label=\"copy\"]", " -> node_"})
    EXPECT_NE(dot.str().find(part), std::string::npos) << part << " in " << dot.str();
  unlink(path.c_str());
  EXPECT_EQ(cuGraphDebugDotPrint(graph, "/nowhere/graph.dot", 0), CUDA_ERROR_OPERATING_SYSTEM);
  const CUgraphNode circle[] = {copy}, back[] = {fill};
  OK(cuGraphAddDependencies(graph, circle, back, nullptr, 1));
  CUgraphExec none = nullptr;
  EXPECT_EQ(cuGraphInstantiate(&none, graph, 0), CUDA_ERROR_INVALID_VALUE) << "a cycle";
}

TEST_F(Graphs, UpdatesKeepTheStructure) {
  const CUstream stream = NewStream();
  CUdeviceptr word = Zeroed(4);
  const auto capture = [&](uint32_t value, int times) {
    return Capture(stream, [&] {
      for (int i = 0; i < times; ++i) OK(cuMemsetD32Async(word, value, 1, stream));
    });
  };
  const CUgraphExec exec = Instantiate(capture(1, 1));
  CUgraphExecUpdateResultInfo info = {};
  OK(cuGraphExecUpdate(exec, capture(2, 1), &info));
  OK(cuGraphLaunch(exec, stream));
  OK(cuStreamSynchronize(stream));
  EXPECT_EQ(Word(word), 2u);
  EXPECT_EQ(cuGraphExecUpdate(exec, capture(2, 2), &info), CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
  EXPECT_EQ(info.result, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
}

TEST_F(Graphs, UserObjectsLiveAsLongAsTheirGraphs) {
  std::atomic<int> ended{0};
  CUuserObject object = nullptr;
  OK(cuUserObjectCreate(
      &object, &ended,
      [](void* data) {
        auto* count = static_cast<std::atomic<int>*>(data);
        ++*count;
        count->notify_all();
      },
      1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
  CUgraph graph = nullptr;
  OK(cuGraphCreate(&graph, 0));
  OK(cuGraphRetainUserObject(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE));
  const CUgraphExec exec = Instantiate(graph);
  OK(cuGraphDestroy(graph));
  EXPECT_EQ(ended, 0);
  OK(cuGraphLaunch(exec, nullptr));
  OK(cuGraphExecDestroy(exec));
  ended.wait(0);
  EXPECT_EQ(ended, 1);
  EXPECT_EQ(cuUserObjectRetain(object, 1), CUDA_ERROR_INVALID_VALUE);
}

}  // namespace
}  // namespace softgpu::test
