// Memory, contexts, modules and errors of the driver.
#include <functional>
#include <thread>

#include "tools/softgpu/tests/cuda/fixture.h"

namespace softgpu::test {
namespace {

using Driver = DriverTest;

TEST_F(Driver, CopiesInAllDirections) {
  const CUdeviceptr first = Zeroed(1024), second = Zeroed(1024);
  std::vector<uint8_t> in(1024), out(1024);
  for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<uint8_t>(i * 7);
  OK(cuMemcpyHtoD(first, in.data(), 1024));
  OK(cuMemcpyDtoD(second, first, 1024));
  OK(cuMemcpyDtoH(out.data(), second, 1024));
  EXPECT_EQ(in, out);
  OK(cuMemcpy(second + 512, reinterpret_cast<CUdeviceptr>(in.data()), 256));
  OK(cuMemcpy(reinterpret_cast<CUdeviceptr>(out.data()), second + 512, 256));
  EXPECT_TRUE(std::equal(in.begin(), in.begin() + 256, out.begin()));
}

// Its destructor runs `last` after those of all objects that the thread makes later, which are the driver's.
struct LastOfThread {
  ~LastOfThread() { last(); }
  std::function<void()> last;
};

TEST_F(Driver, ServesDestructorsThatRunWhenAThreadHasEnded) {
  CUresult found = CUDA_SUCCESS, made = CUDA_ERROR_UNKNOWN, done = CUDA_ERROR_UNKNOWN;
  std::thread([&] {
    static thread_local LastOfThread object;
    object.last = [&] {
      CUdevice device = 0;
      found = cuCtxGetDevice(&device);
      made = cuCtxSetCurrent(context_);
      done = cuStreamSynchronize(CU_STREAM_PER_THREAD);
      cuCtxSetCurrent(nullptr);
    };
    OK(cuCtxSetCurrent(context_));
    OK(cuStreamSynchronize(CU_STREAM_PER_THREAD));
  }).join();
  EXPECT_EQ(found, CUDA_ERROR_INVALID_CONTEXT);
  OK(made);
  OK(done);
}

TEST_F(Driver, CopiesOutsideOfAllocationsAreErrors) {
  const CUdeviceptr address = Zeroed(1024);
  char host[2048] = {};
  EXPECT_EQ(cuMemcpyHtoD(address, host, 1025), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemcpyHtoD(address + 1000, host, 25), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemcpyHtoD(reinterpret_cast<CUdeviceptr>(host), host, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemsetD8(address, 0, 1025), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemsetD32(address + 2, 0, 1), CUDA_ERROR_INVALID_VALUE) << "not aligned";
}

TEST_F(Driver, CopiesAndFillsPlanes) {
  const CUdeviceptr address = Zeroed(64 * 8);
  OK(cuMemsetD2D16(address, 64, 0x1234, 4, 8));
  std::vector<uint16_t> out(4 * 8);
  CUDA_MEMCPY2D copy = {};
  copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcDevice = address;
  copy.srcPitch = 64;
  copy.dstMemoryType = CU_MEMORYTYPE_HOST;
  copy.dstHost = out.data();
  copy.WidthInBytes = 8;
  copy.Height = 8;
  OK(cuMemcpy2D(&copy));
  EXPECT_EQ(out, std::vector<uint16_t>(32, 0x1234));
  EXPECT_EQ(Word(address + 8), 0u) << "outside of the plane";
}

TEST_F(Driver, FreeAcceptsOnlyAllocations) {
  const CUdeviceptr address = Zeroed(4096);
  EXPECT_EQ(cuMemFree(address + 8), CUDA_ERROR_INVALID_VALUE);
  OK(cuMemFree(address));
  EXPECT_EQ(cuMemFree(address), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemFree(0), CUDA_SUCCESS);
  char byte;
  EXPECT_EQ(cuMemcpyDtoH(&byte, address, 1), CUDA_ERROR_INVALID_VALUE) << "use after free";
}

TEST_F(Driver, ManyAllocationsNeedNoDescriptors) {
  std::vector<CUdeviceptr> all(5000);
  for (CUdeviceptr& address : all) OK(cuMemAlloc(&address, 100));
  size_t before = 0, after = 0, total = 0;
  OK(cuMemGetInfo(&before, &total));
  for (const CUdeviceptr address : all) OK(cuMemFree(address));
  OK(cuMemGetInfo(&after, &total));
  EXPECT_EQ(after, total);
  EXPECT_LT(before, after);
}

TEST_F(Driver, FreshMemoryAtAReusedAddressIsAnotherAllocation) {
  CUdeviceptr first = 0;
  OK(cuMemAlloc(&first, 4096));
  OK(cuMemsetD8(first, 0xab, 4096));
  OK(cuMemFree(first));
  CUdeviceptr second = 0;
  OK(cuMemAlloc(&second, 4096));
  EXPECT_NE(first, second);
  EXPECT_EQ(Word(second), 0u);
}

TEST_F(Driver, RunsOutOfMemory) {
  size_t free = 0, total = 0;
  OK(cuMemGetInfo(&free, &total));
  CUdeviceptr address = 0;
  EXPECT_EQ(cuMemAlloc(&address, total + 1), CUDA_ERROR_OUT_OF_MEMORY);
  OK(cuMemAlloc(&address, 4096)) << "smaller allocations still work";
}

TEST_F(Driver, KnowsTheAttributesOfPointers) {
  const CUdeviceptr address = Zeroed(1000);
  unsigned type = 0;
  int device = -1;
  OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address + 10));
  EXPECT_EQ(type, unsigned{CU_MEMORYTYPE_DEVICE});
  OK(cuPointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address));
  EXPECT_EQ(device, 0);
  CUdeviceptr base = 0;
  size_t bytes = 0;
  OK(cuMemGetAddressRange(&base, &bytes, address + 999));
  EXPECT_EQ(base, address);
  EXPECT_EQ(bytes, 1000u);
  EXPECT_EQ(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address + 1000), CUDA_ERROR_INVALID_VALUE);

  void* host = nullptr;
  OK(cuMemHostAlloc(&host, 100, CU_MEMHOSTALLOC_DEVICEMAP));
  OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, reinterpret_cast<CUdeviceptr>(host)));
  EXPECT_EQ(type, unsigned{CU_MEMORYTYPE_HOST});
  CUdeviceptr of_host = 0;
  OK(cuMemHostGetDevicePointer(&of_host, host, 0));
  OK(cuMemFreeHost(host));

  int local = 0;
  CUpointer_attribute attributes[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
  void* data[] = {&type, &device};
  OK(cuPointerGetAttributes(2, attributes, data, reinterpret_cast<CUdeviceptr>(&local)));
  EXPECT_EQ(type, 0u);
  EXPECT_EQ(device, -2);
}

TEST_F(Driver, RegistersMemoryOfTheHost) {
  std::vector<uint32_t> host(100);
  EXPECT_EQ(cuMemHostUnregister(host.data()), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
  OK(cuMemHostRegister(host.data(), 400, 0));
  EXPECT_EQ(cuMemHostRegister(host.data(), 400, 0), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
  uint64_t at = reinterpret_cast<uint64_t>(host.data());
  OK(Launch("touch", nullptr, {&at}));
  OK(cuCtxSynchronize());
  OK(cuMemHostUnregister(host.data()));
}

TEST_F(Driver, KernelsReachPeersOnlyWithAccess) {
  CUcontext peer = nullptr;
  OK(cuDevicePrimaryCtxRetain(&peer, 1));
  OK(cuCtxSetCurrent(peer));
  uint64_t far = Zeroed(64);
  OK(cuCtxSetCurrent(context_));
  int can = 0;
  OK(cuDeviceCanAccessPeer(&can, 0, 1));
  EXPECT_EQ(can, 1);
  OK(cuCtxEnablePeerAccess(peer, 0));
  EXPECT_EQ(cuCtxEnablePeerAccess(peer, 0), CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
  OK(Launch("touch", nullptr, {&far}));
  OK(cuCtxSynchronize());
  OK(cuCtxDisablePeerAccess(peer));
  OK(Launch("touch", nullptr, {&far}));
  EXPECT_EQ(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
}

TEST_F(Driver, FailedKernelsPoisonTheirContextOnly) {
  OK(Launch("fail", nullptr));
  EXPECT_EQ(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
  CUdeviceptr address = 0;
  EXPECT_EQ(cuMemAlloc(&address, 100), CUDA_ERROR_ILLEGAL_ADDRESS);
  CUcontext other = nullptr;
  OK(cuDevicePrimaryCtxRetain(&other, 1));
  OK(cuCtxSetCurrent(other));
  OK(cuMemAlloc(&address, 100));
  OK(cuCtxSynchronize());
  // A reset clears the error.
  OK(cuDevicePrimaryCtxReset(0));
  OK(cuDevicePrimaryCtxRetain(&context_, 0));
  OK(cuCtxSetCurrent(context_));
  OK(cuMemAlloc(&address, 100));
}

TEST_F(Driver, PlainHostMemoryIsNotDeviceMemory) {
  int local = 0;
  uint64_t at = reinterpret_cast<uint64_t>(&local);
  OK(Launch("touch", nullptr, {&at}));
  EXPECT_EQ(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
}

TEST_F(Driver, LaunchesTakeArguments) {
  CUdeviceptr to = Zeroed(4);
  uint32_t value = 5;
  OK(Launch("add", nullptr, {&to, &value}));
  value = 1000;  // the argument has been copied already
  EXPECT_EQ(Word(to), 5u);
  struct {
    uint64_t to;
    uint32_t value;
  } packed = {to, 7};
  size_t bytes = sizeof packed;
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &packed, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes, CU_LAUNCH_PARAM_END};
  OK(cuLaunchKernel(Function("add"), 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, extra));
  EXPECT_EQ(Word(to), 12u);
}

TEST_F(Driver, ImpossibleLaunchesAreErrors) {
  CUfunction add = Function("add");
  CUdeviceptr to = Zeroed(4);
  uint32_t value = 1;
  void* arguments[] = {&to, &value};
  EXPECT_EQ(cuLaunchKernel(add, 1, 1, 1, 1025, 1, 1, 0, nullptr, arguments, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuLaunchKernel(add, 0, 1, 1, 1, 1, 1, 0, nullptr, arguments, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuLaunchKernel(add, 1, 1, 1, 1, 1, 1, 100 << 10, nullptr, arguments, nullptr), CUDA_ERROR_INVALID_VALUE);
  OK(cuFuncSetAttribute(add, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 100 << 10));
  OK(cuLaunchKernel(add, 1, 1, 1, 1, 1, 1, 100 << 10, nullptr, arguments, nullptr));
  EXPECT_EQ(cuFuncSetAttribute(add, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 300 << 10),
            CUDA_ERROR_INVALID_VALUE);
  // Without a request, all of a block's shared memory together has 48 KiB.
  CUfunction shared = Function("shared");
  EXPECT_EQ(cuLaunchKernel(shared, 1, 1, 1, 1, 1, 1, (16 << 10) + 1, nullptr, nullptr, nullptr),
            CUDA_ERROR_INVALID_VALUE);
  OK(cuLaunchKernel(shared, 1, 1, 1, 1, 1, 1, 16 << 10, nullptr, nullptr, nullptr));
  EXPECT_EQ(cuFuncSetAttribute(shared, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, (195 << 10) + 1),
            CUDA_ERROR_INVALID_VALUE);
  OK(cuFuncSetAttribute(shared, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 195 << 10));
  EXPECT_EQ(cuLaunchCooperativeKernel(add, 100000, 1, 1, 32, 1, 1, 0, nullptr, arguments),
            CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
  CUlaunchAttribute cluster = {};
  cluster.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
  cluster.value.clusterDim = {2, 1, 1};
  CUlaunchConfig config = {2, 1, 1, 32, 1, 1, 0, nullptr, &cluster, 1};
  EXPECT_EQ(cuLaunchKernelEx(&config, add, arguments, nullptr), CUDA_ERROR_NOT_SUPPORTED);
  cluster.value.clusterDim = {1, 1, 1};
  OK(cuLaunchKernelEx(&config, add, arguments, nullptr));
}

// 228 KiB, of which the driver takes 1 KiB for each block.
TEST_F(Driver, BlocksShareTheMemoryOfAMultiprocessor) {
  CUfunction shared = Function("shared");  // 32 KiB
  OK(cuFuncSetAttribute(shared, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 100 << 10));
  const auto blocks = [&](size_t dynamic) {
    int found = 0;
    EXPECT_EQ(cuOccupancyMaxActiveBlocksPerMultiprocessor(&found, shared, 32, dynamic), CUDA_SUCCESS);
    return found;
  };
  EXPECT_EQ(blocks(81 << 10), 2);
  EXPECT_EQ(blocks((81 << 10) + 1), 1);
  size_t bytes = 0;
  OK(cuOccupancyAvailableDynamicSMemPerBlock(&bytes, shared, 2, 32));
  EXPECT_EQ(bytes, 81u << 10);
}

TEST_F(Driver, ModulesHaveVariablesAndLibrariesKernels) {
  CUdeviceptr counter = 0;
  size_t bytes = 0;
  OK(cuModuleGetGlobal(&counter, &bytes, module_, "counter"));
  EXPECT_EQ(bytes, 8u);
  OK(cuMemsetD32(counter, 3, 1));
  EXPECT_EQ(Word(counter), 3u);
  CUfunction none = nullptr;
  EXPECT_EQ(cuModuleGetFunction(&none, module_, "absent"), CUDA_ERROR_NOT_FOUND);

  CUlibrary library = nullptr;
  CUkernel kernel = nullptr;
  OK(cuLibraryLoadData(&library, kPtx, nullptr, nullptr, 0, nullptr, nullptr, 0));
  EXPECT_EQ(cuLibraryGetKernel(&kernel, library, "ad"), CUDA_ERROR_NOT_FOUND);
  OK(cuLibraryGetKernel(&kernel, library, "add"));
  uint32_t value = 4;
  void* arguments[] = {&counter, &value};
  OK(cuLaunchKernel(reinterpret_cast<CUfunction>(kernel), 1, 1, 1, 1, 1, 1, 0, nullptr, arguments, nullptr));
  EXPECT_EQ(Word(counter), 7u);
  OK(cuLibraryUnload(library));
  EXPECT_EQ(cuLaunchKernel(reinterpret_cast<CUfunction>(kernel), 1, 1, 1, 1, 1, 1, 0, nullptr, arguments, nullptr),
            CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(cuModuleLoadData(&module_, "bad ptx .version"), CUDA_ERROR_INVALID_PTX);
  EXPECT_EQ(cuModuleLoadData(&module_, "\177ELF"), CUDA_ERROR_NO_BINARY_FOR_GPU);
}

TEST_F(Driver, LinksOnePieceOfPtx) {
  CUlinkState link = nullptr;
  void* image = nullptr;
  size_t bytes = 0;
  OK(cuLinkCreate(0, nullptr, nullptr, &link));
  EXPECT_EQ(cuLinkComplete(link, &image, &bytes), CUDA_ERROR_INVALID_VALUE);
  const std::string ptx = kPtx;
  void* const data = const_cast<char*>(ptx.data());
  OK(cuLinkAddData(link, CU_JIT_INPUT_PTX, data, ptx.size() + 1, "a", 0, nullptr, nullptr));
  EXPECT_EQ(cuLinkAddData(link, CU_JIT_INPUT_PTX, data, ptx.size(), "b", 0, nullptr, nullptr),
            CUDA_ERROR_NOT_SUPPORTED);
  OK(cuLinkComplete(link, &image, &bytes));
  EXPECT_EQ(bytes, ptx.size() + 1);
  CUmodule module = nullptr;
  OK(cuModuleLoadData(&module, image));
  CUfunction function = nullptr;
  OK(cuModuleGetFunction(&function, module, "add"));
  OK(cuModuleUnload(module));
  OK(cuLinkDestroy(link));
  EXPECT_EQ(cuLinkDestroy(link), CUDA_ERROR_INVALID_HANDLE);
}

TEST_F(Driver, EntryPointsByNameAndVersion) {
  void* pointer = nullptr;
  CUdriverProcAddressQueryResult status;
  OK(cuGetProcAddress("cuMemAlloc", &pointer, 12000, 0, &status));
  EXPECT_EQ(pointer, reinterpret_cast<void*>(&cuMemAlloc));
  OK(cuGetProcAddress("cuStreamGetCaptureInfo", &pointer, 13000, 0, &status));
  EXPECT_EQ(pointer, reinterpret_cast<void*>(&cuStreamGetCaptureInfo));
  void* older = nullptr;
  OK(cuGetProcAddress("cuStreamGetCaptureInfo", &older, 12000, 0, &status));
  EXPECT_NE(older, pointer);
  EXPECT_EQ(cuGetProcAddress("cuTexObjectCreate", &pointer, 13000, 0, &status), CUDA_ERROR_NOT_FOUND);
  EXPECT_EQ(status, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
  EXPECT_EQ(pointer, nullptr);
}

TEST_F(Driver, InvalidHandlesAreErrors) {
  auto* nonsense = reinterpret_cast<CUstream>(this);
  EXPECT_EQ(cuStreamSynchronize(nonsense), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(cuEventQuery(reinterpret_cast<CUevent>(this)), CUDA_ERROR_INVALID_HANDLE);
  CUcontext context = nullptr;
  OK(cuCtxPopCurrent(&context));
  CUdeviceptr address = 0;
  EXPECT_EQ(cuMemAlloc(&address, 1), CUDA_ERROR_INVALID_CONTEXT);
  OK(cuCtxPushCurrent(context));
}

TEST_F(Driver, OrderedAllocationLastsUntilItsFreeIsReached) {
  const CUstream stream = NewStream();
  CUdeviceptr flag = Zeroed(4), ordered = 0;
  OK(cuMemAllocAsync(&ordered, 4096, stream));
  OK(Launch("wait_flag", stream, {&flag}));
  OK(cuMemsetD32Async(ordered, 9, 1, stream));
  OK(cuMemFreeAsync(ordered, stream));
  unsigned type = 0;
  OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, ordered));
  OK(Launch("set_flag", NewStream(), {&flag}));
  OK(cuStreamSynchronize(stream));
  EXPECT_EQ(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, ordered), CUDA_ERROR_INVALID_VALUE);
}

}  // namespace
}  // namespace softgpu::test
