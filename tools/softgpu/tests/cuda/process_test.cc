// Memory and events of one process used by another.
#include <sys/wait.h>
#include <unistd.h>

#include "tools/softgpu/tests/cuda/child.h"
#include "tools/softgpu/tests/cuda/fixture.h"

namespace softgpu::test {
namespace {

bool UseDevice(int device) {
  CUcontext context = nullptr;
  return cuInit(0) == CUDA_SUCCESS && cuDevicePrimaryCtxRetain(&context, device) == CUDA_SUCCESS &&
         cuCtxSetCurrent(context) == CUDA_SUCCESS;
}

class Processes : public DriverTest {};

// Opens a handle, checks and changes the memory, signals the parent, and reads the memory again after its signal.
int OpenMemory(const std::string& argument, int channel) {
  CUipcMemHandle handle;
  MUST(ReceiveBytes(channel, &handle, sizeof handle));
  MUST(UseDevice(1));
  CUdeviceptr address = 0, again = 0;
  MUST(cuIpcOpenMemHandle(&address, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) == CUDA_SUCCESS);
  MUST(cuIpcOpenMemHandle(&again, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) == CUDA_SUCCESS);
  MUST(address == again);
  uint32_t words[2] = {};
  MUST(cuMemcpyDtoH(words, address, 8) == CUDA_SUCCESS);
  MUST(words[0] == 42 && words[1] == 43);
  MUST(cuMemsetD32(address, 77, 1) == CUDA_SUCCESS && cuCtxSynchronize() == CUDA_SUCCESS);
  SendSignal(channel);
  MUST(AwaitSignal(channel));
  MUST(cuMemcpyDtoH(words, address, 8) == CUDA_SUCCESS);
  MUST(argument != "exporter dies" || words[0] == 77);
  MUST(cuIpcCloseMemHandle(address) == CUDA_SUCCESS);
  MUST(cuMemcpyDtoH(words, address, 8) == CUDA_SUCCESS);
  MUST(cuIpcCloseMemHandle(address) == CUDA_SUCCESS);
  MUST(cuIpcCloseMemHandle(address) == CUDA_ERROR_INVALID_VALUE);
  return 0;
}
const RegisterChild g_open_memory("open memory", OpenMemory);

TEST_F(Processes, OpenEachOthersMemory) {
  const CUdeviceptr before = Zeroed(100), address = Zeroed(8);
  (void)before;
  OK(cuMemsetD32(address, 42, 1));
  OK(cuMemsetD32(address + 4, 43, 1));
  OK(cuCtxSynchronize());
  CUipcMemHandle handle;
  OK(cuIpcGetMemHandle(&handle, address + 4));
  CUdeviceptr own = 0;
  EXPECT_EQ(cuIpcOpenMemHandle(&own, handle, 1), CUDA_ERROR_INVALID_CONTEXT);
  Child child("open memory", "");
  SendBytes(child.channel(), &handle, sizeof handle);
  ASSERT_TRUE(AwaitSignal(child.channel()));
  EXPECT_EQ(Word(address), 77u);
  SendSignal(child.channel());
  EXPECT_EQ(child.Wait(), 0);
}

TEST_F(Processes, HandlesOfFreedMemoryAreErrors) {
  const CUdeviceptr address = Zeroed(8);
  CUipcMemHandle handle;
  OK(cuIpcGetMemHandle(&handle, address));
  OK(cuMemFree(address));
  Child child("open memory", "");
  SendBytes(child.channel(), &handle, sizeof handle);
  EXPECT_EQ(child.Wait(), 1);
  void* host = nullptr;
  OK(cuMemHostAlloc(&host, 8, 0));
  EXPECT_EQ(cuIpcGetMemHandle(&handle, reinterpret_cast<CUdeviceptr>(host)), CUDA_ERROR_INVALID_VALUE);
}

// Exports memory, and then only waits for the end of the process.
int ExportMemory(const std::string&, int channel) {
  MUST(UseDevice(0));
  CUdeviceptr address = 0;
  CUipcMemHandle handle;
  MUST(cuMemAlloc(&address, 8) == CUDA_SUCCESS);
  MUST(cuMemsetD32(address, 5, 2) == CUDA_SUCCESS && cuCtxSynchronize() == CUDA_SUCCESS);
  MUST(cuIpcGetMemHandle(&handle, address) == CUDA_SUCCESS);
  SendBytes(channel, &handle, sizeof handle);
  AwaitSignal(channel);
  return 0;
}
const RegisterChild g_export_memory("export memory", ExportMemory);

TEST_F(Processes, OutliveAKilledExporter) {
  Child child("export memory", "");
  CUipcMemHandle handle;
  ASSERT_TRUE(ReceiveBytes(child.channel(), &handle, sizeof handle));
  CUdeviceptr address = 0;
  OK(cuIpcOpenMemHandle(&address, handle, 1));
  child.Kill();
  EXPECT_EQ(child.Wait(), 128 + 9);
  EXPECT_EQ(Word(address), 5u);
  OK(cuIpcCloseMemHandle(address));
  EXPECT_EQ(cuIpcOpenMemHandle(&address, handle, 1), CUDA_ERROR_MAP_FAILED);
}

constexpr size_t kBlock = size_t{2} << 20;

CUmemAllocationProp ShareableOn(int device) {
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  return properties;
}

CUresult MapForDevice(CUmemGenericAllocationHandle handle, int device, CUdeviceptr* address) {
  CUresult error = cuMemAddressReserve(address, kBlock, 0, 0, 0);
  if (error == CUDA_SUCCESS) error = cuMemMap(*address, kBlock, 0, handle, 0);
  CUmemAccessDesc access = {};
  access.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  return error != CUDA_SUCCESS ? error : cuMemSetAccess(*address, kBlock, &access, 1);
}

int ImportMemory(const std::string&, int channel) {
  MUST(UseDevice(2));
  const int descriptor = ReceiveDescriptor(channel);
  MUST(descriptor >= 0);
  CUmemGenericAllocationHandle handle = 0;
  MUST(cuMemImportFromShareableHandle(&handle, reinterpret_cast<void*>(static_cast<intptr_t>(descriptor)),
                                      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) == CUDA_SUCCESS);
  close(descriptor);
  CUmemAllocationProp properties = {};
  MUST(cuMemGetAllocationPropertiesFromHandle(&properties, handle) == CUDA_SUCCESS);
  MUST(properties.location.id == 1);
  CUdeviceptr address = 0;
  MUST(MapForDevice(handle, 2, &address) == CUDA_SUCCESS);
  uint32_t word = 0;
  MUST(cuMemcpyDtoH(&word, address, 4) == CUDA_SUCCESS && word == 42);
  MUST(cuMemsetD32(address, 43, 1) == CUDA_SUCCESS && cuCtxSynchronize() == CUDA_SUCCESS);
  MUST(cuMemUnmap(address, kBlock) == CUDA_SUCCESS);
  MUST(cuMemAddressFree(address, kBlock) == CUDA_SUCCESS);
  MUST(cuMemRelease(handle) == CUDA_SUCCESS);
  return 0;
}
const RegisterChild g_import_memory("import memory", ImportMemory);

TEST_F(Processes, ShareMemoryObjects) {
  size_t granularity = 0;
  const CUmemAllocationProp properties = ShareableOn(1);
  OK(cuMemGetAllocationGranularity(&granularity, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  ASSERT_EQ(granularity, kBlock);
  CUmemGenericAllocationHandle handle = 0, retained = 0;
  OK(cuMemCreate(&handle, kBlock, &properties, 0));
  CUdeviceptr address = 0;
  OK(MapForDevice(handle, 0, &address));
  OK(cuMemsetD32(address, 42, 1));
  OK(cuCtxSynchronize());
  uint64_t at = address;
  OK(Launch("touch", nullptr, {&at}));
  OK(cuCtxSynchronize());
  OK(cuMemRetainAllocationHandle(&retained, reinterpret_cast<void*>(address)));
  EXPECT_EQ(retained, handle);
  OK(cuMemRelease(retained));
  int descriptor = -1;
  OK(cuMemExportToShareableHandle(&descriptor, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  Child child("import memory", "");
  SendDescriptor(child.channel(), descriptor);
  close(descriptor);
  EXPECT_EQ(child.Wait(), 0);
  EXPECT_EQ(Word(address), 43u);
  OK(cuMemRelease(handle)) << "the mapping keeps the memory";
  EXPECT_EQ(Word(address), 43u);
  EXPECT_EQ(cuMemAddressFree(address, kBlock), CUDA_ERROR_INVALID_VALUE) << "still mapped";
  OK(cuMemUnmap(address, kBlock));
  OK(cuMemAddressFree(address, kBlock));
}

TEST_F(Processes, MappedMemoryIsForDevicesWithAccess) {
  const CUmemAllocationProp properties = ShareableOn(0);
  CUmemGenericAllocationHandle handle = 0;
  OK(cuMemCreate(&handle, kBlock, &properties, 0));
  CUdeviceptr address = 0;
  OK(MapForDevice(handle, 1, &address));
  uint64_t at = address;
  OK(Launch("touch", nullptr, {&at}));
  EXPECT_EQ(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
}

// Waits on the parent's event in a stream.
int WaitForEvent(const std::string&, int channel) {
  CUipcEventHandle handle;
  MUST(ReceiveBytes(channel, &handle, sizeof handle));
  MUST(UseDevice(0));
  CUevent event = nullptr;
  CUstream stream = nullptr;
  MUST(cuIpcOpenEventHandle(&event, handle) == CUDA_SUCCESS);
  MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
  MUST(cuEventQuery(event) == CUDA_ERROR_NOT_READY);
  MUST(cuStreamWaitEvent(stream, event, 0) == CUDA_SUCCESS);
  MUST(cuStreamQuery(stream) == CUDA_ERROR_NOT_READY);
  SendSignal(channel);
  MUST(cuStreamSynchronize(stream) == CUDA_SUCCESS);
  MUST(cuEventSynchronize(event) == CUDA_SUCCESS);
  return 0;
}
const RegisterChild g_wait_for_event("wait for event", WaitForEvent);

TEST_F(Processes, WaitForEachOthersEvents) {
  CUevent event = nullptr;
  OK(cuEventCreate(&event, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
  const CUstream stream = NewStream();
  CUdeviceptr flag = Zeroed(4);
  OK(Launch("wait_flag", stream, {&flag}));
  OK(cuEventRecord(event, stream));
  CUipcEventHandle handle;
  OK(cuIpcGetEventHandle(&handle, event));
  Child child("wait for event", "");
  SendBytes(child.channel(), &handle, sizeof handle);
  ASSERT_TRUE(AwaitSignal(child.channel()));
  OK(Launch("set_flag", NewStream(), {&flag}));
  EXPECT_EQ(child.Wait(), 0);
}

TEST_F(Processes, AForkedChildGetsErrorsFromTheDriver) {
  const pid_t child = fork();
  if (child == 0) {
    CUdeviceptr address = 0;
    _exit(cuMemAlloc(&address, 4) == CUDA_ERROR_NOT_INITIALIZED ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace softgpu::test
