// The runtime API, with code registered like nvcc's generated functions do it.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "tools/softgpu/tests/cuda/fixture.h"

extern "C" {
void** __cudaRegisterFatBinary(void* image);
void __cudaUnregisterFatBinary(void** handle);
void __cudaRegisterFunction(void** handle, const char* function, char* device, const char* name, int, uint3*, uint3*,
                            dim3*, dim3*, int*);
void __cudaRegisterVar(void** handle, char* shadow, char* device, const char* name, int, size_t, int, int);
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, CUstream_st* stream);
cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared, void* stream);
cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* function);
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments, size_t shared,
                               cudaStream_t stream);
}

namespace softgpu::test {
namespace {

#define RT(call) ASSERT_EQ(call, cudaSuccess)

char g_add, g_wait_flag, g_set_flag, g_fail, g_absent, g_counter;  // the host's addresses of the symbols
struct {
  unsigned magic, version;
  const void* data;
  void* unused;
} g_wrapper = {0x466243b1, 1, kPtx, nullptr};

class Runtime : public testing::Test {
 protected:
  void SetUp() override {
    RegisterKernels();
    code_ = __cudaRegisterFatBinary(&g_wrapper);
    Register(&g_add, "add");
    Register(&g_wait_flag, "wait_flag");
    Register(&g_set_flag, "set_flag");
    Register(&g_fail, "fail");
    Register(&g_absent, "absent");
    __cudaRegisterVar(code_, &g_counter, nullptr, "counter", 0, 8, 0, 0);
  }
  void TearDown() override {
    cudaSetDevice(0);
    cudaDeviceReset();
    __cudaUnregisterFatBinary(code_);
    cudaGetLastError();
  }
  void Register(char* function, const char* name) {
    __cudaRegisterFunction(code_, function, nullptr, name, -1, nullptr, nullptr, nullptr, nullptr, nullptr);
  }
  void** code_ = nullptr;
};

TEST_F(Runtime, RunsAKernel) {
  uint32_t* word = nullptr;
  RT(cudaMalloc(reinterpret_cast<void**>(&word), 4));
  RT(cudaMemset(word, 0, 4));
  uint32_t value = 9, seen = 0;
  void* arguments[] = {&word, &value};
  RT(cudaLaunchKernel(&g_add, dim3(1), dim3(32), arguments, 0, nullptr));
  // Like <<<>>>.
  __cudaPushCallConfiguration(dim3(2), dim3(32), 0, nullptr);
  dim3 grid, block;
  size_t shared = 1;
  cudaStream_t stream = nullptr;
  RT(__cudaPopCallConfiguration(&grid, &block, &shared, &stream));
  EXPECT_EQ(grid.x, 2u);
  cudaKernel_t kernel = nullptr;
  RT(__cudaGetKernel(&kernel, &g_add));
  RT(__cudaLaunchKernel(kernel, grid, block, arguments, shared, stream));
  RT(cudaMemcpy(&seen, word, 4, cudaMemcpyDeviceToHost));
  EXPECT_EQ(seen, 18u);
  RT(cudaFree(word));
  RT(cudaGetLastError());
}

TEST_F(Runtime, KeepsTheLastErrorOfAThread) {
  EXPECT_EQ(cudaSetDevice(99), cudaErrorInvalidDevice);
  std::thread([] { EXPECT_EQ(cudaGetLastError(), cudaSuccess); }).join();
  EXPECT_EQ(cudaPeekAtLastError(), cudaErrorInvalidDevice);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidDevice);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  EXPECT_STREQ(cudaGetErrorName(cudaErrorInvalidDevice), "cudaErrorInvalidDevice");
  EXPECT_STREQ(cudaGetErrorString(cudaErrorInvalidDevice), "invalid device ordinal");
  EXPECT_STREQ(cudaGetErrorName(cudaErrorStreamCaptureUnsupported), "cudaErrorStreamCaptureUnsupported");
}

TEST_F(Runtime, LaunchErrors) {
  void* none[] = {nullptr};
  EXPECT_EQ(cudaLaunchKernel(&g_fail, dim3(1), dim3(2000), none, 0, nullptr), cudaErrorInvalidConfiguration);
  EXPECT_EQ(cudaLaunchKernel(&g_absent, dim3(1), dim3(1), none, 0, nullptr), cudaErrorInvalidDeviceFunction);
  EXPECT_EQ(cudaLaunchKernel(this, dim3(1), dim3(1), none, 0, nullptr), cudaErrorInvalidDeviceFunction);
  cudaGetLastError();
  RT(cudaLaunchKernel(&g_fail, dim3(1), dim3(1), none, 0, nullptr));
  EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorIllegalAddress);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorIllegalAddress) << "the error is sticky";
  RT(cudaDeviceReset());
  RT(cudaDeviceSynchronize());
}

TEST_F(Runtime, VariablesHaveShadows) {
  uint64_t value = 77, seen = 0;
  size_t bytes = 0;
  RT(cudaGetSymbolSize(&bytes, &g_counter));
  EXPECT_EQ(bytes, 8u);
  RT(cudaMemcpyToSymbol(&g_counter, &value, 8, 0, cudaMemcpyHostToDevice));
  RT(cudaMemcpyFromSymbol(&seen, &g_counter, 8, 0, cudaMemcpyDeviceToHost));
  EXPECT_EQ(seen, 77u);
  EXPECT_EQ(cudaMemcpyToSymbol(&g_counter, &value, 8, 1, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
  EXPECT_EQ(cudaGetSymbolSize(&bytes, &g_add), cudaErrorInvalidSymbol);
}

TEST_F(Runtime, ThreadsHaveDevices) {
  RT(cudaSetDevice(2));
  std::thread([] {
    int device = -1;
    RT(cudaGetDevice(&device));
    EXPECT_EQ(device, 0);
  }).join();
  void* memory = nullptr;
  RT(cudaMalloc(&memory, 16));
  cudaPointerAttributes attributes;
  RT(cudaPointerGetAttributes(&attributes, memory));
  EXPECT_EQ(attributes.device, 2);
  EXPECT_EQ(attributes.type, cudaMemoryTypeDevice);
  int local = 0;
  RT(cudaPointerGetAttributes(&attributes, &local));
  EXPECT_EQ(attributes.type, cudaMemoryTypeUnregistered);
  RT(cudaFree(memory));
}

TEST_F(Runtime, DescribesDevices) {
  cudaDeviceProp properties;
  RT(cudaGetDeviceProperties(&properties, 1));
  EXPECT_EQ(properties.major, 9);
  EXPECT_EQ(properties.warpSize, 32);
  EXPECT_EQ(properties.multiProcessorCount, 8);
  int value = 0;
  RT(cudaDeviceGetAttribute(&value, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0));
  EXPECT_EQ(value, 227 << 10);
  char id[32];
  RT(cudaDeviceGetPCIBusId(id, sizeof id, 3));
  EXPECT_STREQ(id, "0000:04:00.0");
  cudaFuncAttributes attributes;
  RT(cudaFuncGetAttributes(&attributes, &g_add));
  EXPECT_EQ(attributes.maxThreadsPerBlock, 1024);
  int blocks = 0;
  RT(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, &g_add, 256, 0));
  EXPECT_EQ(blocks, 8);
}

TEST_F(Runtime, CapturesAndReplays) {
  uint32_t *word = nullptr, value = 2, seen = 0;
  RT(cudaMalloc(reinterpret_cast<void**>(&word), 4));
  RT(cudaMemset(word, 0, 4));
  RT(cudaDeviceSynchronize());  // the stream would not wait for it
  cudaStream_t stream = nullptr;
  RT(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  RT(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  void* arguments[] = {&word, &value};
  RT(cudaLaunchKernel(&g_add, dim3(1), dim3(1), arguments, 0, stream));
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaErrorStreamCaptureUnsupported);
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(stream, &graph), cudaErrorStreamCaptureInvalidated);
  RT(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  RT(cudaLaunchKernel(&g_add, dim3(1), dim3(1), arguments, 0, stream));
  RT(cudaStreamEndCapture(stream, &graph));
  cudaGraphExec_t exec = nullptr;
  RT(cudaGraphInstantiate(&exec, graph, 0));
  for (int i = 0; i < 3; ++i) RT(cudaGraphLaunch(exec, stream));
  RT(cudaStreamSynchronize(stream));
  RT(cudaMemcpy(&seen, word, 4, cudaMemcpyDefault));
  EXPECT_EQ(seen, 6u);
  cudaGetLastError();
}

TEST_F(Runtime, NodesByTheirParameters) {
  uint32_t *word = nullptr, value = 2, seen = 0;
  RT(cudaMalloc(reinterpret_cast<void**>(&word), 4));
  RT(cudaMemset(word, 0, 4));
  void* arguments[] = {&word, &value};
  cudaGraph_t graph = nullptr, child = nullptr;
  RT(cudaGraphCreate(&graph, 0));
  RT(cudaGraphCreate(&child, 0));
  cudaEvent_t event = nullptr;
  RT(cudaEventCreate(&event));
  int calls = 0;
  cudaGraphNodeParams kernel = {}, host = {}, graph_node = {}, empty = {}, record = {}, wait = {}, condition = {};
  kernel.type = cudaGraphNodeTypeKernel;
  kernel.kernel.func = &g_add;
  kernel.kernel.gridDim = kernel.kernel.blockDim = dim3(1);
  kernel.kernel.kernelParams = arguments;
  host.type = cudaGraphNodeTypeHost;
  host.host = {[](void* count) { ++*static_cast<int*>(count); }, &calls};
  graph_node.type = cudaGraphNodeTypeGraph;
  graph_node.graph.graph = child;
  empty.type = cudaGraphNodeTypeEmpty;
  record.type = cudaGraphNodeTypeEventRecord;
  record.eventRecord.event = event;
  wait.type = cudaGraphNodeTypeWaitEvent;
  wait.eventWait.event = event;
  cudaGraphNode_t node = nullptr;
  RT(cudaGraphAddNode(&node, child, nullptr, nullptr, 0, &kernel));
  for (cudaGraphNodeParams* one : {&kernel, &host, &graph_node, &empty, &record, &wait}) {
    const cudaGraphNode_t before = node;
    const size_t count = one == &kernel ? 0 : 1;
    RT(cudaGraphAddNode(&node, graph, &before, nullptr, count, one));
    cudaGraphNodeType type;
    RT(cudaGraphNodeGetType(node, &type));
    EXPECT_EQ(type, one->type);
  }
  cudaGraphConditionalHandle handle = 0;
  EXPECT_EQ(cudaGraphConditionalHandleCreate(&handle, graph, 0, 0), cudaErrorNotSupported);
  condition.type = cudaGraphNodeTypeConditional;
  EXPECT_EQ(cudaGraphAddNode(&node, graph, nullptr, nullptr, 0, &condition), cudaErrorNotSupported);
  cudaGraphExec_t exec = nullptr;
  RT(cudaGraphInstantiate(&exec, graph, 0));
  RT(cudaGraphLaunch(exec, nullptr));
  RT(cudaMemcpy(&seen, word, 4, cudaMemcpyDefault));
  EXPECT_EQ(seen, 4u) << "once in the graph, once in its child";
  EXPECT_EQ(calls, 1);
  cudaGetLastError();
}

TEST_F(Runtime, GraphsUseNoMemory) {
  uint64_t bytes = 1;
  for (const auto attribute : {cudaGraphMemAttrUsedMemCurrent, cudaGraphMemAttrUsedMemHigh,
                               cudaGraphMemAttrReservedMemCurrent, cudaGraphMemAttrReservedMemHigh}) {
    bytes = 1;
    RT(cudaDeviceGetGraphMemAttribute(0, attribute, &bytes));
    EXPECT_EQ(bytes, 0u);
  }
  RT(cudaDeviceSetGraphMemAttribute(0, cudaGraphMemAttrUsedMemHigh, &bytes));
  EXPECT_EQ(cudaDeviceSetGraphMemAttribute(0, cudaGraphMemAttrUsedMemCurrent, &bytes), cudaErrorInvalidValue);
  bytes = 1;
  EXPECT_EQ(cudaDeviceSetGraphMemAttribute(0, cudaGraphMemAttrUsedMemHigh, &bytes), cudaErrorInvalidValue);
  EXPECT_EQ(cudaDeviceGetGraphMemAttribute(99, cudaGraphMemAttrUsedMemHigh, &bytes), cudaErrorInvalidDevice);
}

TEST_F(Runtime, LibrariesHoldKernels) {
  cudaLibrary_t library = nullptr;
  RT(cudaLibraryLoadData(&library, kPtx, nullptr, nullptr, 0, nullptr, nullptr, 0));
  unsigned count = 0;
  RT(cudaLibraryGetKernelCount(&count, library));
  EXPECT_EQ(count, 6u);
  void* pointer = nullptr;
  size_t bytes = 0;
  EXPECT_EQ(cudaLibraryGetManaged(&pointer, &bytes, library, "counter"), cudaErrorSymbolNotFound);
  EXPECT_EQ(cudaLibraryGetUnifiedFunction(&pointer, library, "add"), cudaErrorSymbolNotFound);
  cudaKernel_t kernel = nullptr;
  RT(cudaLibraryGetKernel(&kernel, library, "add"));
  RT(cudaKernelSetAttributeForDevice(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 1024, 0));
  RT(cudaLibraryUnload(library));
  EXPECT_EQ(cudaLibraryGetKernelCount(&count, library), cudaErrorInvalidResourceHandle);

  const std::string path = testing::TempDir() + "softgpu_runtime_test." + std::to_string(getpid()) + ".ptx";
  std::ofstream(path) << ".version 9.0\n.target sm_75\n.entry one();\n.entry one() {}\n.entry other() {}\n";
  RT(cudaLibraryLoadFromFile(&library, path.c_str(), nullptr, nullptr, 0, nullptr, nullptr, 0));
  unlink(path.c_str());
  RT(cudaLibraryGetKernelCount(&count, library));
  EXPECT_EQ(count, 2u) << "one is declared, too";
  RT(cudaLibraryUnload(library));
  EXPECT_EQ(cudaLibraryLoadFromFile(&library, path.c_str(), nullptr, nullptr, 0, nullptr, nullptr, 0),
            cudaErrorFileNotFound);
  cudaGetLastError();
}

TEST_F(Runtime, FindsEntryPointsOfTheDriver) {
  void* pointer = nullptr;
  cudaDriverEntryPointQueryResult status;
  RT(cudaGetDriverEntryPointByVersion("cuMemCreate", &pointer, 13000, cudaEnableDefault, &status));
  EXPECT_EQ(status, cudaDriverEntryPointSuccess);
  EXPECT_NE(pointer, nullptr);
  RT(cudaGetDriverEntryPointByVersion("cuTexObjectCreate", &pointer, 12010, cudaEnableDefault, &status));
  EXPECT_EQ(status, cudaDriverEntryPointSymbolNotFound);
  EXPECT_EQ(pointer, nullptr);
}

TEST_F(Runtime, PeersAndHostMemory) {
  int can = 0;
  RT(cudaDeviceCanAccessPeer(&can, 0, 1));
  EXPECT_EQ(can, 1);
  RT(cudaSetDevice(0));
  RT(cudaDeviceEnablePeerAccess(1, 0));
  EXPECT_EQ(cudaDeviceEnablePeerAccess(1, 0), cudaErrorPeerAccessAlreadyEnabled);
  RT(cudaDeviceDisablePeerAccess(1));
  void *host = nullptr, *device = nullptr;
  RT(cudaHostAlloc(&host, 100, cudaHostAllocMapped));
  RT(cudaHostGetDevicePointer(&device, host, 0));
  EXPECT_EQ(host, device);
  RT(cudaFreeHost(host));
  EXPECT_EQ(cudaFreeHost(host), cudaErrorInvalidValue);
}

}  // namespace
}  // namespace softgpu::test
