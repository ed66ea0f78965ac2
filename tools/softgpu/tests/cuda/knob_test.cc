// The knobs, each in a process of its own, because they are read once.
#include <atomic>
#include <cstddef>
#include <initializer_list>
#include <thread>

#include "tools/softgpu/tests/cuda/child.h"
#include "tools/softgpu/tests/cuda/fixture.h"

namespace softgpu::test {
namespace {

// The findings of a process with given knobs; plain data, so that it can be sent.
struct Findings {
  int init, devices, major, minor, version, peers, atomics, enabled, ipc, vmm, pins, pinned, large, small, peer_word;
};

int Look(const std::string&, int channel) {
  Findings f = {};
  f.init = cuInit(0);
  if (f.init == CUDA_SUCCESS) {
    cuDeviceGetCount(&f.devices);
    cuDeviceGetAttribute(&f.major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 0);
    cuDeviceGetAttribute(&f.minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0);
    cuDeviceGetAttribute(&f.vmm, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 0);
    cuDeviceGetAttribute(&f.pins, CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED, 0);
    cuDriverGetVersion(&f.version);
    cuDeviceCanAccessPeer(&f.peers, 0, 1);
    cuDeviceGetP2PAttribute(&f.atomics, CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED, 0, 1);
    CUcontext context = nullptr, peer = nullptr;
    cuDevicePrimaryCtxRetain(&context, 0);
    cuDevicePrimaryCtxRetain(&peer, 1);
    cuCtxSetCurrent(context);
    f.enabled = cuCtxEnablePeerAccess(peer, 0);
    CUdeviceptr large = 0, small = 0;
    f.large = cuMemAlloc(&large, size_t{1} << 30);
    f.small = cuMemAlloc(&small, 1 << 20);
    CUdeviceptr of_peer = 0;
    cuCtxSetCurrent(peer);
    cuMemAlloc(&of_peer, 4);
    cuMemsetD32(of_peer, 42, 1);
    cuCtxSynchronize();
    cuCtxSetCurrent(context);
    cuMemcpyDtoD(small, of_peer, 4);
    cuMemcpyDtoH(&f.peer_word, small, 4);
    CUipcMemHandle handle;
    f.ipc = cuIpcGetMemHandle(&handle, small);
    std::vector<int> memory(1000);
    f.pinned = cuMemHostRegister(memory.data(), 400, 0);
  }
  SendBytes(channel, &f, sizeof f);
  return 0;
}
const RegisterChild g_look("look", Look);

Findings With(const std::vector<std::pair<std::string, std::string>>& knobs) {
  Child child("look", "", knobs);
  Findings f = {};
  EXPECT_TRUE(ReceiveBytes(child.channel(), &f, sizeof f));
  EXPECT_EQ(child.Wait(), 0);
  return f;
}

TEST(Knobs, HaveDefaults) {
  const Findings f = With({});
  EXPECT_EQ(f.init, CUDA_SUCCESS);
  EXPECT_EQ(f.devices, 4);
  EXPECT_EQ(f.major * 10 + f.minor, 90);
  EXPECT_EQ(f.version, 13000);
  EXPECT_EQ(f.peers, 1);
  EXPECT_EQ(f.atomics, 1);
  EXPECT_EQ(f.enabled, CUDA_SUCCESS);
  EXPECT_EQ(f.ipc, CUDA_SUCCESS);
  EXPECT_EQ(f.vmm, 1);
  EXPECT_EQ(f.pins, 1);
  EXPECT_EQ(f.pinned, CUDA_SUCCESS);
  EXPECT_EQ(f.large, CUDA_SUCCESS);
  EXPECT_EQ(f.peer_word, 42);
}

TEST(Knobs, SetTheDevices) {
  EXPECT_EQ(With({{"SOFTGPU_DEVICES", "7"}}).devices, 7);
  EXPECT_EQ(With({{"SOFTGPU_DEVICES", "0"}}).init, CUDA_ERROR_NO_DEVICE);
  const Findings old = With({{"SOFTGPU_ARCH", "75"}, {"SOFTGPU_DRIVER_VERSION", "12020"}});
  EXPECT_EQ(old.major * 10 + old.minor, 75);
  EXPECT_EQ(old.version, 12020);
}

TEST(Knobs, MimicFailure) {
  const Findings alone = With({{"SOFTGPU_PEER_ACCESS", "0"}});
  EXPECT_EQ(alone.peers, 0);
  EXPECT_EQ(alone.atomics, 0);
  const Findings by_pcie = With({{"SOFTGPU_NATIVE_ATOMICS", "0"}});
  EXPECT_EQ(by_pcie.peers, 1);
  EXPECT_EQ(by_pcie.atomics, 0);
  EXPECT_EQ(alone.enabled, CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
  const Findings corrupt = With({{"SOFTGPU_CORRUPT_PEER", "1"}});
  EXPECT_EQ(corrupt.enabled, CUDA_SUCCESS);
  EXPECT_EQ(corrupt.peer_word, 0);
  EXPECT_EQ(With({{"SOFTGPU_IPC", "0"}}).ipc, CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(With({{"SOFTGPU_VMM", "0"}}).vmm, 0);
  const Findings unpinned = With({{"SOFTGPU_HOST_REGISTER", "0"}});
  EXPECT_EQ(unpinned.pins, 0);
  EXPECT_EQ(unpinned.pinned, CUDA_ERROR_NOT_SUPPORTED);
  const Findings small = With({{"SOFTGPU_MEMORY", "64M"}});
  EXPECT_EQ(small.large, CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(small.small, CUDA_SUCCESS);
}

// Which calls wait for a kernel on another device, in the order of the cases, and the last one for a kernel before it
// on its stream. Without a knob, nobody ends that kernel before.
constexpr int kCalls = 12;

int CallWhileAKernelRuns(const std::string& ends, int channel) {
  RegisterKernels();
  cuInit(0);
  CUcontext context[2];
  CUmodule module[2];
  CUstream stream[2];
  CUfunction wait_flag = nullptr, set_flag = nullptr;
  for (int device : {1, 0}) {
    cuDevicePrimaryCtxRetain(&context[device], device);
    cuCtxSetCurrent(context[device]);
    cuStreamCreate(&stream[device], CU_STREAM_NON_BLOCKING);
    cuModuleLoadData(&module[device], kPtx);
    cuModuleGetFunction(device == 1 ? &wait_flag : &set_flag, module[device], device == 1 ? "wait_flag" : "set_flag");
  }
  alignas(8) uint32_t flag = 0, other = 0;
  void* where = &flag;
  void* elsewhere = &other;
  void* arguments[] = {&where};
  void* others[] = {&elsewhere};
  CUdeviceptr memory = 0, managed = 0;
  CUmodule loaded = nullptr;
  void *pinned = nullptr, *kept = nullptr;
  std::vector<std::byte> plain(4096), pageable(4);
  cuMemHostAlloc(&kept, 8, CU_MEMHOSTALLOC_PORTABLE);
  const auto words = reinterpret_cast<CUdeviceptr>(kept);
  CUmemAllocationProp shared = {};
  shared.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  shared.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  shared.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  CUmemGenericAllocationHandle object = 0, imported = 0;
  int file = -1;
  cuMemCreate(&object, 2 << 20, &shared, 0);
  cuMemExportToShareableHandle(&file, object, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
  const auto call = [&](int which) {
    switch (which) {
      case 0:
        return cuMemAlloc(&memory, 100);
      case 1:
        return cuMemAllocManaged(&managed, 100, CU_MEM_ATTACH_GLOBAL);
      case 2:
        return cuMemHostAlloc(&pinned, 100, 0);
      case 3:
        return cuMemHostRegister(plain.data(), plain.size(), 0);
      case 4:
        return cuMemFree(memory);
      case 5:
        return cuMemFreeHost(pinned);
      case 6:
        return cuModuleLoadData(&loaded, kPtx);
      case 7:
        return cuModuleUnload(loaded);
      case 8:
        return cuLaunchKernel(set_flag, 1, 1, 1, 32, 1, 1, 0, stream[0], others, nullptr);
      case 9:
        return cuMemcpyHtoDAsync(words, pageable.data(), 4, stream[0]);
      case 10:
        return cuMemImportFromShareableHandle(&imported, reinterpret_cast<void*>(intptr_t{file}),
                                              CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
      default:
        return cuMemcpyAsync(words, words + 4, 4, stream[1]);
    }
  };
  int waited[kCalls] = {};
  for (int which = 0; which < kCalls; ++which) {
    flag = 0;
    cuCtxSetCurrent(context[1]);
    cuLaunchKernel(wait_flag, 1, 1, 1, 32, 1, 1, 0, stream[1], arguments, nullptr);
    cuCtxSetCurrent(context[0]);
    std::atomic<bool> called{false};
    std::thread ender([&] {
      while (!called) std::this_thread::yield();
      for (int i = 0; i < 1000; ++i) std::this_thread::yield();
      if (ends == "ends") __atomic_store_n(&flag, 1, __ATOMIC_RELEASE);
    });
    called = true;
    const CUresult result = call(which);
    waited[which] = result != CUDA_SUCCESS ? -1 : cuStreamQuery(stream[1]) == CUDA_SUCCESS ? 1 : 0;
    ender.join();
    __atomic_store_n(&flag, 1, __ATOMIC_RELEASE);
    cuStreamSynchronize(stream[1]);
  }
  SendBytes(channel, waited, sizeof waited);
  return 0;
}
const RegisterChild g_call("call", CallWhileAKernelRuns);

std::vector<int> Waited(const std::string& causes) {
  Child child("call", causes.empty() ? "runs" : "ends", {{"SOFTGPU_IMPLICIT_SYNC", causes}});
  std::vector<int> waited(kCalls);
  EXPECT_TRUE(ReceiveBytes(child.channel(), waited.data(), kCalls * sizeof(int)));
  EXPECT_EQ(child.Wait(), 0);
  return waited;
}

TEST(Knobs, CallsWaitForAllDevices) {
  EXPECT_EQ(Waited(""), std::vector<int>(kCalls, 0));
  EXPECT_EQ(Waited("alloc,host,free,module,first-launch,pageable,import,host-copy"), std::vector<int>(kCalls, 1));
  const auto those = [](const std::string& causes, std::initializer_list<int> calls) {
    const std::vector<int> waited = Waited(causes);
    for (const int call : calls) EXPECT_EQ(waited[static_cast<size_t>(call)], 1) << causes << ": " << call;
  };
  those("alloc", {0, 1});
  those("host", {2, 3});
  those("free", {4, 5});
  those("module", {6, 7});
  those("first-launch", {8});
  those("pageable", {9});
  those("import", {10});
  those("host-copy", {11});
}

// Which of four streams run a kernel while one on the first waits. Those that are named must: they are waited for.
constexpr int kStreams = 4;

int RunBesideOneThatWaits(const std::string& named, int channel) {
  RegisterKernels();
  cuInit(0);
  CUcontext context = nullptr;
  CUmodule module = nullptr;
  CUfunction wait_flag = nullptr, set_flag = nullptr;
  cuDevicePrimaryCtxRetain(&context, 0);
  cuCtxSetCurrent(context);
  cuModuleLoadData(&module, kPtx);
  cuModuleGetFunction(&wait_flag, module, "wait_flag");
  cuModuleGetFunction(&set_flag, module, "set_flag");
  CUstream streams[kStreams];
  for (CUstream& stream : streams) cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
  alignas(8) uint32_t flag = 0, set[kStreams] = {};
  void* where = &flag;
  void* arguments[] = {&where};
  cuLaunchKernel(wait_flag, 1, 1, 1, 32, 1, 1, 0, streams[0], arguments, nullptr);
  int ran[kStreams] = {};
  for (int i = 1; i < kStreams; ++i) {
    void* word = &set[i];
    void* own[] = {&word};
    cuLaunchKernel(set_flag, 1, 1, 1, 32, 1, 1, 0, streams[i], own, nullptr);
  }
  for (const char stream : named) cuStreamSynchronize(streams[stream - '0']);
  for (int i = 1; i < kStreams; ++i) ran[i] = cuStreamQuery(streams[i]) == CUDA_SUCCESS;
  __atomic_store_n(&flag, 1, __ATOMIC_RELEASE);
  for (CUstream stream : streams) cuStreamSynchronize(stream);
  SendBytes(channel, ran, sizeof ran);
  return 0;
}
const RegisterChild g_beside("beside", RunBesideOneThatWaits);

TEST(Knobs, StreamsShareQueues) {
  const auto ran = [](const char* queues, const char* named) {
    Child child("beside", named, {{"SOFTGPU_QUEUES", queues}, {"SOFTGPU_WORKERS", "2"}});
    std::vector<int> found(kStreams);
    EXPECT_TRUE(ReceiveBytes(child.channel(), found.data(), kStreams * sizeof(int)));
    EXPECT_EQ(child.Wait(), 0);
    return found;
  };
  EXPECT_EQ(ran("0", "123"), (std::vector<int>{0, 1, 1, 1}));
  EXPECT_EQ(ran("1", ""), (std::vector<int>{0, 0, 0, 0}));
  EXPECT_EQ(ran("2", "13"), (std::vector<int>{0, 1, 0, 1}));
  EXPECT_EQ(ran("3", "12"), (std::vector<int>{0, 1, 1, 0}));
}

}  // namespace
}  // namespace softgpu::test
