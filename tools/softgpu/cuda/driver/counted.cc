#include "tools/softgpu/cuda/driver/counted.h"

#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>

// Under this, the names of the header are those of the exported functions.
#define __CUDA_API_VERSION_INTERNAL
#include "tools/softgpu/cuda/cuda_api.h"

namespace softgpu::cuda {
namespace {

struct Counts {
  uint64_t all = 0;
  std::map<const char*, uint64_t> of;  // by name
  std::string text;
};

Counts& OfThisThread() {
  thread_local Counts counts;
  return counts;
}

template <auto kFunction, auto kName>
struct Counting;
template <typename... Arguments, CUresult (*kFunction)(Arguments...), auto kName>
struct Counting<kFunction, kName> {
  static CUresult Call(Arguments... arguments) {
    Counts& counts = OfThisThread();
    ++counts.all;
    ++counts.of[kName()];
    return kFunction(arguments...);
  }
};

// What the library calls (src/device/cuda/driver.h).
// clang-format off
#define SOFTGPU_COUNTED(X)                                                                                          \
  X(cuInit) X(cuGetErrorName) X(cuGetErrorString)                                                                   \
  X(cuDeviceGet) X(cuDeviceGetCount) X(cuDeviceGetName) X(cuDeviceGetAttribute)                                     \
  X(cuDeviceCanAccessPeer) X(cuDeviceGetP2PAttribute) X(cuDeviceGetUuid_v2)                                         \
  X(cuDevicePrimaryCtxGetState) X(cuCtxGetId) X(cuStreamGetCtx)                                                     \
  X(cuDevicePrimaryCtxRetain) X(cuCtxGetCurrent) X(cuCtxPushCurrent_v2) X(cuCtxPopCurrent_v2) X(cuCtxGetDevice)     \
  X(cuCtxEnablePeerAccess) X(cuCtxSynchronize)                                                                      \
  X(cuMemAlloc_v2) X(cuMemFree_v2) X(cuMemFreeAsync) X(cuMemGetInfo_v2) X(cuMemGetAddressRange_v2)                  \
  X(cuFlushGPUDirectRDMAWrites) X(cuDeviceGetPCIBusId)                                                              \
  X(cuMemHostAlloc) X(cuMemHostRegister_v2) X(cuMemHostUnregister) X(cuMemHostGetDevicePointer_v2)                  \
  X(cuMemcpyHtoDAsync_v2) X(cuMemcpyDtoHAsync_v2) X(cuMemcpyAsync) X(cuMemcpy2DAsync_v2)                            \
  X(cuMemsetD8Async) X(cuMemsetD2D8Async) X(cuMemsetD32Async)                                                       \
  X(cuMemGetAllocationGranularity) X(cuMemCreate) X(cuMemRelease) X(cuMemRetainAllocationHandle)                    \
  X(cuMemAddressReserve) X(cuMemAddressFree) X(cuMemMap) X(cuMemUnmap) X(cuMemSetAccess) X(cuMemGetAccess)          \
  X(cuMemPoolGetAccess)                                                                                             \
  X(cuMemExportToShareableHandle) X(cuMemImportFromShareableHandle)                                                 \
  X(cuPointerGetAttributes) X(cuPointerGetAttribute) X(cuIpcGetMemHandle) X(cuIpcOpenMemHandle_v2)                  \
  X(cuIpcCloseMemHandle)                                                                                            \
  X(cuStreamCreate) X(cuStreamCreateWithPriority) X(cuCtxGetStreamPriorityRange) X(cuStreamDestroy_v2)              \
  X(cuStreamSynchronize) X(cuStreamQuery) X(cuStreamWaitEvent) X(cuStreamWaitValue32_v2)                            \
  X(cuStreamWriteValue32_v2) X(cuStreamGetId) X(cuStreamGetCaptureInfo_v2) X(cuThreadExchangeStreamCaptureMode)     \
  X(cuEventCreate) X(cuEventDestroy_v2) X(cuEventRecord) X(cuEventQuery) X(cuEventSynchronize)                      \
  X(cuGraphAddEventRecordNode) X(cuUserObjectCreate) X(cuUserObjectRelease) X(cuGraphRetainUserObject)              \
  X(cuModuleLoadData) X(cuModuleGetFunction) X(cuFuncGetAttribute) X(cuFuncSetAttribute)                            \
  X(cuOccupancyMaxActiveBlocksPerMultiprocessor) X(cuLaunchKernelEx)
// clang-format on

}  // namespace

void* CountingForm(void* function) {
#define SOFTGPU_FORM(name) \
  {reinterpret_cast<void*>(&name), reinterpret_cast<void*>(&Counting<&name, [] { return #name; }>::Call)},
  static const auto* const forms = new std::unordered_map<void*, void*>{SOFTGPU_COUNTED(SOFTGPU_FORM)};
#undef SOFTGPU_FORM
  const auto form = forms->find(function);
  return form == forms->end() ? nullptr : form->second;
}

}  // namespace softgpu::cuda

#define SOFTGPU_EXPORT extern "C" __attribute__((visibility("default")))

// The calls of this thread since it has last forgotten them.
SOFTGPU_EXPORT uint64_t softgpu_calls() { return softgpu::cuda::OfThisThread().all; }
SOFTGPU_EXPORT void softgpu_forget_calls() { softgpu::cuda::OfThisThread() = {}; }
// The same by name: "cuEventRecord 1, cuLaunchKernel 1". Valid until the thread asks again.
SOFTGPU_EXPORT const char* softgpu_list_calls() {
  softgpu::cuda::Counts& counts = softgpu::cuda::OfThisThread();
  counts.text.clear();
  for (const auto& [name, number] : counts.of)
    counts.text += (counts.text.empty() ? "" : ", ") + std::string(name) + " " + std::to_string(number);
  return counts.text.c_str();
}
