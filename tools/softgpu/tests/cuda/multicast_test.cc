// Multicast objects within a process and between processes.
#include <unistd.h>

#include <atomic>
#include <thread>

#include "tools/softgpu/tests/cuda/child.h"
#include "tools/softgpu/tests/cuda/fixture.h"

namespace softgpu::test {
namespace {

constexpr size_t kBlock = size_t{2} << 20;
constexpr char kKernels[] = R"(
.version 9.0
.target sm_90
.entry fold(.param .u64 at, .param .u64 to) {}
.entry spread(.param .u64 at, .param .u32 value) {}
)";

// *to = the sum of the words behind the address
fake::Step Fold(fake::Launch* launch) {
  uint64_t copies[8];
  const int found = launch->behind(*launch, Argument<uint64_t>(*launch, 0), copies, 8);
  uint32_t sum = 0;
  for (int i = 0; i < found; ++i) sum += *reinterpret_cast<const uint32_t*>(copies[i]);
  *Argument<uint32_t*>(*launch, 8) = sum;
  return found == 0 ? fake::Step::kFailed : fake::Step::kDone;
}
// Every word behind the address = value
fake::Step Spread(fake::Launch* launch) {
  uint64_t copies[8];
  const int found = launch->behind(*launch, Argument<uint64_t>(*launch, 0), copies, 8);
  for (int i = 0; i < found; ++i) *reinterpret_cast<uint32_t*>(copies[i]) = Argument<uint32_t>(*launch, 8);
  return found == 0 ? fake::Step::kFailed : fake::Step::kDone;
}

using Handle = CUmemGenericAllocationHandle;

CUmulticastObjectProp Team(unsigned devices, size_t bytes) {
  CUmulticastObjectProp team = {};
  team.numDevices = devices;
  team.size = bytes;
  team.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  return team;
}

CUmemAllocationProp On(int device, bool shareable = true) {
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
  properties.requestedHandleTypes = shareable ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR : CU_MEM_HANDLE_TYPE_NONE;
  return properties;
}

CUresult Map(Handle handle, int device, size_t bytes, CUdeviceptr* address) {
  CUresult error = cuMemAddressReserve(address, bytes, 0, 0, 0);
  if (error == CUDA_SUCCESS) error = cuMemMap(*address, bytes, 0, handle, 0);
  CUmemAccessDesc access = {};
  access.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  return error != CUDA_SUCCESS ? error : cuMemSetAccess(*address, bytes, &access, 1);
}

CUresult Unmap(CUdeviceptr address, size_t bytes) {
  const CUresult error = cuMemUnmap(address, bytes);
  return error != CUDA_SUCCESS ? error : cuMemAddressFree(address, bytes);
}

// Memory of a device with its address there.
struct Memory {
  CUresult Make(int device, size_t bytes) {
    const CUmemAllocationProp properties = On(device);
    const CUresult error = cuMemCreate(&handle, bytes, &properties, 0);
    return error != CUDA_SUCCESS ? error : Map(handle, device, bytes, &address);
  }
  Handle handle = 0;
  CUdeviceptr address = 0;
};

// Kernels run on the device of the current context.
CUresult RunKernel(const char* name, std::vector<void*> arguments) {
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  CUresult error = cuModuleLoadData(&module, kKernels);
  if (error == CUDA_SUCCESS) error = cuModuleGetFunction(&function, module, name);
  if (error == CUDA_SUCCESS) error = cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, nullptr, arguments.data(), nullptr);
  return error == CUDA_SUCCESS ? cuCtxSynchronize() : error;
}

CUresult SumAt(CUdeviceptr address, uint32_t* sum) {
  CUdeviceptr to = 0;
  CUresult error = cuMemAlloc(&to, 4);
  if (error == CUDA_SUCCESS) error = RunKernel("fold", {&address, &to});
  if (error == CUDA_SUCCESS) error = cuMemcpyDtoH(sum, to, 4);
  if (error == CUDA_SUCCESS) error = cuMemFree(to);
  return error;
}

CUresult Put(CUdeviceptr address, uint32_t word) {
  const CUresult error = cuMemsetD32(address, word, 1);
  return error == CUDA_SUCCESS ? cuCtxSynchronize() : error;
}

bool UseDevice(int device) {
  softgpu_fake_kernel("fold", Fold);
  softgpu_fake_kernel("spread", Spread);
  CUcontext context = nullptr;
  return cuInit(0) == CUDA_SUCCESS && cuDevicePrimaryCtxRetain(&context, device) == CUDA_SUCCESS &&
         cuCtxSetCurrent(context) == CUDA_SUCCESS;
}

class MulticastObjects : public DriverTest {
 protected:
  void SetUp() override {
    DriverTest::SetUp();
    ASSERT_TRUE(UseDevice(0));
  }
  static size_t FreeMemory() {
    size_t free = 0, total = 0;
    EXPECT_EQ(cuMemGetInfo(&free, &total), CUDA_SUCCESS);
    return free;
  }
};

TEST_F(MulticastObjects, HaveProperties) {
  int supported = 0;
  OK(cuDeviceGetAttribute(&supported, CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED, 1));
  EXPECT_EQ(supported, 1);
  size_t granularity = 0;
  CUmulticastObjectProp team = Team(2, kBlock);
  OK(cuMulticastGetGranularity(&granularity, &team, CU_MULTICAST_GRANULARITY_MINIMUM));
  EXPECT_EQ(granularity, kBlock);
  Handle handle = 0;
  OK(cuMulticastCreate(&handle, &team));
  OK(cuMemRelease(handle));
  EXPECT_EQ(cuMemRelease(handle), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMulticastAddDevice(handle, 0), CUDA_ERROR_INVALID_VALUE);
  team = Team(2, kBlock + 1);
  EXPECT_EQ(cuMulticastCreate(&handle, &team), CUDA_ERROR_INVALID_VALUE);
  team = Team(5, kBlock);
  EXPECT_EQ(cuMulticastCreate(&handle, &team), CUDA_ERROR_INVALID_VALUE) << "there are four devices";
  team = Team(2, kBlock);
  team.handleTypes = CU_MEM_HANDLE_TYPE_FABRIC;
  EXPECT_EQ(cuMulticastCreate(&handle, &team), CUDA_ERROR_NOT_SUPPORTED);
}

TEST_F(MulticastObjects, AreForTheirTeam) {
  Handle handle = 0;
  const CUmulticastObjectProp team = Team(2, 2 * kBlock);
  OK(cuMulticastCreate(&handle, &team));
  OK(cuMulticastAddDevice(handle, 0));
  EXPECT_EQ(cuMulticastAddDevice(handle, 0), CUDA_ERROR_INVALID_VALUE) << "twice";
  EXPECT_EQ(cuMulticastAddDevice(handle, 4), CUDA_ERROR_INVALID_DEVICE);
  Memory own, other, foreign;
  OK(own.Make(0, 2 * kBlock));
  OK(other.Make(1, 2 * kBlock));
  OK(foreign.Make(2, kBlock));
  EXPECT_EQ(cuMulticastAddDevice(own.handle, 1), CUDA_ERROR_INVALID_VALUE) << "memory is no multicast object";
  std::atomic<bool> bound{false};
  std::thread early([&] {
    EXPECT_EQ(cuMulticastBindMem(handle, 0, own.handle, 0, kBlock, 0), CUDA_SUCCESS);
    bound = true;
  });
  usleep(20000);
  EXPECT_FALSE(bound) << "a device is missing";
  OK(cuMulticastAddDevice(handle, 1));
  early.join();
  EXPECT_EQ(cuMulticastAddDevice(handle, 2), CUDA_ERROR_INVALID_VALUE) << "the team is complete";
  EXPECT_EQ(cuMulticastBindMem(handle, 0, foreign.handle, 0, kBlock, 0), CUDA_ERROR_INVALID_VALUE) << "not of the team";
  EXPECT_EQ(cuMulticastBindMem(handle, 0, own.handle, 0, kBlock, 0), CUDA_ERROR_INVALID_VALUE) << "bound already";
  EXPECT_EQ(cuMulticastBindMem(handle, 0, other.handle, kBlock, 2 * kBlock, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMulticastBindMem(handle, kBlock, other.handle, 0, 2 * kBlock, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMulticastBindMem(handle, 4096, other.handle, 0, kBlock, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMulticastBindMem(handle, 0, handle, 0, kBlock, 0), CUDA_ERROR_INVALID_VALUE);
  Handle unshared = 0;
  const CUmemAllocationProp properties = On(1, false);
  OK(cuMemCreate(&unshared, kBlock, &properties, 0));
  EXPECT_EQ(cuMulticastBindMem(handle, 0, unshared, 0, kBlock, 0), CUDA_ERROR_INVALID_VALUE);
  CUdeviceptr address = 0;
  EXPECT_EQ(Map(handle, 2, 2 * kBlock, &address), CUDA_ERROR_INVALID_DEVICE);
  EXPECT_EQ(cuMulticastUnbind(handle, 0, 0, 2 * kBlock), CUDA_ERROR_INVALID_VALUE);
  OK(cuMulticastUnbind(handle, 0, 0, kBlock));
  EXPECT_EQ(cuMulticastUnbind(handle, 0, 0, kBlock), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(MulticastObjects, ReachTheMemoryOfAllDevices) {
  Handle handle = 0;
  const CUmulticastObjectProp team = Team(3, 2 * kBlock);
  OK(cuMulticastCreate(&handle, &team));
  Memory memory[3];
  for (int device = 0; device < 3; ++device) OK(cuMulticastAddDevice(handle, device));
  for (int device = 0; device < 3; ++device) OK(memory[device].Make(device, 3 * kBlock));
  // Each device has its memory at another offset, and one of them in two pieces that have changed places.
  OK(cuMulticastBindMem(handle, 0, memory[0].handle, kBlock, 2 * kBlock, 0));
  OK(cuMulticastBindAddr(handle, 0, memory[1].address, 2 * kBlock, 0));
  OK(cuMulticastBindMem(handle, kBlock, memory[2].handle, 0, kBlock, 0));
  CUdeviceptr address = 0;
  OK(Map(handle, 0, 2 * kBlock, &address));
  const CUdeviceptr second = address + kBlock + 16, before = address + kBlock - 4;
  OK(Put(memory[0].address + 2 * kBlock + 16, 1));
  OK(Put(memory[1].address + kBlock + 16, 20));
  OK(Put(memory[2].address + 16, 300));
  uint32_t sum = 0;
  OK(SumAt(second, &sum));
  EXPECT_EQ(sum, 321u);
  OK(cuMulticastBindMem(handle, 0, memory[2].handle, 2 * kBlock, kBlock, 0));
  uint32_t value = 77;
  CUdeviceptr to = before;
  OK(RunKernel("spread", {&to, &value}));
  EXPECT_EQ(Word(memory[0].address + 2 * kBlock - 4), 77u);
  EXPECT_EQ(Word(memory[1].address + kBlock - 4), 77u);
  EXPECT_EQ(Word(memory[2].address + 3 * kBlock - 4), 77u);
  EXPECT_EQ(Word(memory[2].address + kBlock - 4), 0u);
  // Only for multimem instructions.
  EXPECT_EQ(cuMemcpyDtoH(&sum, address, 4), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemsetD32(address, 1, 1), CUDA_ERROR_INVALID_VALUE);
  OK(cuMulticastUnbind(handle, 2, 0, kBlock));
  EXPECT_EQ(SumAt(before, &sum), CUDA_ERROR_ILLEGAL_ADDRESS) << "device 2 has no memory there";
}

TEST_F(MulticastObjects, KernelsNeedAccess) {
  Handle handle = 0;
  const CUmulticastObjectProp team = Team(2, kBlock);
  OK(cuMulticastCreate(&handle, &team));
  Memory memory[2];
  for (int device = 0; device < 2; ++device) OK(cuMulticastAddDevice(handle, device));
  for (int device = 0; device < 2; ++device) {
    OK(memory[device].Make(device, kBlock));
    OK(cuMulticastBindMem(handle, 0, memory[device].handle, 0, kBlock, 0));
  }
  CUdeviceptr address = 0;
  OK(Map(handle, 1, kBlock, &address));
  uint32_t sum = 0;
  EXPECT_EQ(SumAt(address, &sum), CUDA_ERROR_ILLEGAL_ADDRESS) << "only device 1 has access";
}

TEST_F(MulticastObjects, KeepMemoryUntilTheyEnd) {
  const size_t before = FreeMemory();
  Handle handle = 0;
  const CUmulticastObjectProp team = Team(1, kBlock);
  OK(cuMulticastCreate(&handle, &team));
  OK(cuMulticastAddDevice(handle, 0));
  Memory memory;
  OK(memory.Make(0, kBlock));
  OK(cuMulticastBindMem(handle, 0, memory.handle, 0, kBlock, 0));
  CUdeviceptr address = 0;
  OK(Map(handle, 0, kBlock, &address));
  OK(Put(memory.address, 5));
  OK(Unmap(memory.address, kBlock));
  OK(cuMemRelease(memory.handle));
  EXPECT_EQ(FreeMemory(), before - kBlock);
  Handle again = 0;
  OK(cuMemRetainAllocationHandle(&again, reinterpret_cast<void*>(address)));
  EXPECT_EQ(again, handle);
  OK(cuMemRelease(again));
  OK(cuMemRelease(handle));
  uint32_t sum = 0;
  OK(SumAt(address, &sum)) << "the mapping keeps the object";
  EXPECT_EQ(sum, 5u);
  OK(Unmap(address, kBlock));
  EXPECT_EQ(FreeMemory(), before);
}

// A member of a team of other processes: device `argument` contributes its number plus one.
int Join(const std::string& argument, int channel) {
  const int device = std::stoi(argument), descriptor = ReceiveDescriptor(channel);
  MUST(descriptor >= 0 && UseDevice(device));
  void* const shared = reinterpret_cast<void*>(static_cast<intptr_t>(descriptor));
  Handle handle = 0, twice = 0;
  MUST(cuMemImportFromShareableHandle(&handle, shared, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) == CUDA_SUCCESS);
  MUST(cuMemImportFromShareableHandle(&twice, shared, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) == CUDA_SUCCESS);
  MUST(handle == twice && cuMemRelease(twice) == CUDA_SUCCESS);
  close(descriptor);
  Memory memory;
  MUST(cuMulticastAddDevice(handle, device) == CUDA_SUCCESS);
  MUST(memory.Make(device, kBlock) == CUDA_SUCCESS);
  MUST(Put(memory.address, static_cast<uint32_t>(device) + 1) == CUDA_SUCCESS);
  MUST(cuMulticastBindMem(handle, 0, memory.handle, 0, kBlock, 0) == CUDA_SUCCESS);
  SendSignal(channel);
  MUST(AwaitSignal(channel));
  CUdeviceptr address = 0;
  uint32_t sum = 0;
  MUST(Map(handle, device, kBlock, &address) == CUDA_SUCCESS && SumAt(address, &sum) == CUDA_SUCCESS);
  MUST(sum == 6);
  uint32_t value = 40u + static_cast<uint32_t>(device);
  CUdeviceptr to = address + 8 * static_cast<CUdeviceptr>(device);
  MUST(RunKernel("spread", {&to, &value}) == CUDA_SUCCESS);
  SendSignal(channel);
  MUST(AwaitSignal(channel));
  uint32_t words[4] = {};
  MUST(cuMemcpyDtoH(words, memory.address + 8, 16) == CUDA_SUCCESS && words[0] == 41 && words[2] == 42);
  MUST(Unmap(address, kBlock) == CUDA_SUCCESS && cuMemRelease(handle) == CUDA_SUCCESS);
  return 0;
}
const RegisterChild g_join("join a multicast team", Join);

TEST_F(MulticastObjects, AreSharedByProcesses) {
  Handle handle = 0;
  const CUmulticastObjectProp team = Team(3, kBlock);
  OK(cuMulticastCreate(&handle, &team));
  OK(cuMulticastAddDevice(handle, 0));
  int descriptor = -1;
  OK(cuMemExportToShareableHandle(&descriptor, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  Child one("join a multicast team", "1"), two("join a multicast team", "2");
  SendDescriptor(one.channel(), descriptor);
  SendDescriptor(two.channel(), descriptor);
  close(descriptor);
  Memory memory;
  OK(memory.Make(0, kBlock));
  OK(Put(memory.address, 1));
  OK(cuMulticastBindMem(handle, 0, memory.handle, 0, kBlock, 0));
  for (Child* child : {&one, &two}) ASSERT_TRUE(AwaitSignal(child->channel()));
  CUdeviceptr address = 0;
  uint32_t sum = 0;
  OK(Map(handle, 0, kBlock, &address));
  OK(SumAt(address, &sum));
  EXPECT_EQ(sum, 6u);
  for (Child* child : {&one, &two}) SendSignal(child->channel());
  for (Child* child : {&one, &two}) ASSERT_TRUE(AwaitSignal(child->channel()));
  EXPECT_EQ(Word(memory.address + 8), 41u);
  EXPECT_EQ(Word(memory.address + 16), 42u);
  SendSignal(one.channel());
  EXPECT_EQ(one.Wait(), 0);
  EXPECT_EQ(SumAt(address, &sum), CUDA_ERROR_ILLEGAL_ADDRESS) << "the memory of device 1 is no longer bound";
}

TEST_F(MulticastObjects, OutliveAMemberThatIsKilled) {
  Handle handle = 0;
  const CUmulticastObjectProp team = Team(2, kBlock);
  OK(cuMulticastCreate(&handle, &team));
  OK(cuMulticastAddDevice(handle, 0));
  int descriptor = -1;
  OK(cuMemExportToShareableHandle(&descriptor, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  Child one("join a multicast team", "1");
  SendDescriptor(one.channel(), descriptor);
  close(descriptor);
  Memory memory;
  OK(memory.Make(0, kBlock));
  OK(Put(memory.address, 7));
  OK(cuMulticastBindMem(handle, 0, memory.handle, 0, kBlock, 0));
  ASSERT_TRUE(AwaitSignal(one.channel()));
  CUdeviceptr address = 0;
  OK(Map(handle, 0, kBlock, &address));
  one.Kill();
  one.Wait();
  uint32_t sum = 0;
  OK(SumAt(address, &sum));
  EXPECT_EQ(sum, 9u);
}

// What a process finds: the attribute, the result of cuMulticastCreate, and the sum of 1 and 2 on two devices.
struct Findings {
  int supported, created;
  uint32_t sum;
};

int Look(const std::string&, int channel) {
  Findings found = {};
  MUST(UseDevice(0));
  MUST(cuDeviceGetAttribute(&found.supported, CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED, 0) == CUDA_SUCCESS);
  Handle handle = 0;
  const CUmulticastObjectProp team = Team(2, kBlock);
  found.created = cuMulticastCreate(&handle, &team);
  for (int device = 0; found.created == CUDA_SUCCESS && device < 2; ++device)
    MUST(cuMulticastAddDevice(handle, device) == CUDA_SUCCESS);
  for (int device = 0; found.created == CUDA_SUCCESS && device < 2; ++device) {
    Memory memory;
    MUST(memory.Make(device, kBlock) == CUDA_SUCCESS);
    MUST(UseDevice(device) && Put(memory.address, static_cast<uint32_t>(device) + 1) == CUDA_SUCCESS);
    MUST(cuMulticastBindMem(handle, 0, memory.handle, 0, kBlock, 0) == CUDA_SUCCESS);
  }
  CUdeviceptr address = 0;
  if (found.created == CUDA_SUCCESS) {
    MUST(UseDevice(0) && Map(handle, 0, kBlock, &address) == CUDA_SUCCESS);
    MUST(SumAt(address, &found.sum) == CUDA_SUCCESS);
  }
  SendBytes(channel, &found, sizeof found);
  return 0;
}
const RegisterChild g_look("look at multicast", Look);

Findings With(const std::vector<std::pair<std::string, std::string>>& knobs) {
  Child child("look at multicast", "", knobs);
  Findings found = {};
  EXPECT_TRUE(ReceiveBytes(child.channel(), &found, sizeof found));
  EXPECT_EQ(child.Wait(), 0);
  return found;
}

TEST_F(MulticastObjects, HaveKnobs) {
  const Findings usual = With({});
  EXPECT_EQ(usual.supported, 1);
  EXPECT_EQ(usual.created, CUDA_SUCCESS);
  EXPECT_EQ(usual.sum, 3u);
  for (const auto& knob :
       {std::pair<std::string, std::string>{"SOFTGPU_MULTICAST", "0"}, {"SOFTGPU_VMM", "0"}, {"SOFTGPU_ARCH", "80"}}) {
    const Findings none = With({knob});
    EXPECT_EQ(none.supported, 0) << knob.first;
    EXPECT_EQ(none.created, CUDA_ERROR_NOT_SUPPORTED) << knob.first;
  }
  EXPECT_EQ(With({{"SOFTGPU_CORRUPT_PEER", "1"}}).sum, 1u) << "the other device's data is lost";
}

}  // namespace
}  // namespace softgpu::test
