// cuGetProcAddress: entry points by name and version.
#include <dlfcn.h>

#include <cstring>
#include <iterator>
#include <string>

#include "tools/softgpu/cuda/driver/counted.h"
#include "tools/softgpu/cuda/driver/entry.h"
#include "tools/softgpu/cuda/settings.h"

namespace softgpu::cuda {
namespace {

// Names whose meaning depends on the requested version. Others are exported under their own name.
struct Versioned {
  const char* name;
  int since;  // CUDA version since which `symbol` is meant
  const char* symbol;
};

constexpr Versioned kVersioned[] = {
    {"cuCtxCreate", 12050, "cuCtxCreate_v4"},
    {"cuCtxCreate", 3020, "cuCtxCreate_v2"},
    {"cuCtxDestroy", 4000, "cuCtxDestroy_v2"},
    {"cuCtxPopCurrent", 4000, "cuCtxPopCurrent_v2"},
    {"cuCtxPushCurrent", 4000, "cuCtxPushCurrent_v2"},
    {"cuDeviceGetUuid", 11040, "cuDeviceGetUuid_v2"},
    {"cuDevicePrimaryCtxRelease", 11000, "cuDevicePrimaryCtxRelease_v2"},
    {"cuDevicePrimaryCtxReset", 11000, "cuDevicePrimaryCtxReset_v2"},
    {"cuDevicePrimaryCtxSetFlags", 11000, "cuDevicePrimaryCtxSetFlags_v2"},
    {"cuDeviceTotalMem", 3020, "cuDeviceTotalMem_v2"},
    {"cuEventDestroy", 4000, "cuEventDestroy_v2"},
    {"cuEventElapsedTime", 12080, "cuEventElapsedTime_v2"},
    {"cuGetProcAddress", 12000, "cuGetProcAddress_v2"},
    {"cuGraphAddDependencies", 12030, "cuGraphAddDependencies_v2"},
    {"cuGraphAddKernelNode", 12000, "cuGraphAddKernelNode_v2"},
    {"cuGraphExecKernelNodeSetParams", 12000, "cuGraphExecKernelNodeSetParams_v2"},
    {"cuGraphExecUpdate", 12000, "cuGraphExecUpdate_v2"},
    {"cuGraphGetEdges", 12030, "cuGraphGetEdges_v2"},
    {"cuGraphInstantiate", 12000, "cuGraphInstantiateWithFlags"},
    {"cuGraphInstantiate", 11000, "cuGraphInstantiate_v2"},
    {"cuGraphKernelNodeGetParams", 12000, "cuGraphKernelNodeGetParams_v2"},
    {"cuGraphKernelNodeSetParams", 12000, "cuGraphKernelNodeSetParams_v2"},
    {"cuGraphNodeGetDependencies", 12030, "cuGraphNodeGetDependencies_v2"},
    {"cuGraphNodeGetDependentNodes", 12030, "cuGraphNodeGetDependentNodes_v2"},
    {"cuGraphRemoveDependencies", 12030, "cuGraphRemoveDependencies_v2"},
    {"cuIpcOpenMemHandle", 11000, "cuIpcOpenMemHandle_v2"},
    {"cuLinkAddData", 6050, "cuLinkAddData_v2"},
    {"cuLinkCreate", 6050, "cuLinkCreate_v2"},
    {"cuMemAdvise", 12020, "cuMemAdvise_v2"},
    {"cuMemAlloc", 3020, "cuMemAlloc_v2"},
    {"cuMemAllocHost", 3020, "cuMemAllocHost_v2"},
    {"cuMemAllocPitch", 3020, "cuMemAllocPitch_v2"},
    {"cuMemFree", 3020, "cuMemFree_v2"},
    {"cuMemGetAddressRange", 3020, "cuMemGetAddressRange_v2"},
    {"cuMemGetInfo", 3020, "cuMemGetInfo_v2"},
    {"cuMemHostGetDevicePointer", 3020, "cuMemHostGetDevicePointer_v2"},
    {"cuMemHostRegister", 6050, "cuMemHostRegister_v2"},
    {"cuMemPrefetchAsync", 12020, "cuMemPrefetchAsync_v2"},
    {"cuMemcpy2D", 3020, "cuMemcpy2D_v2"},
    {"cuMemcpy2DAsync", 3020, "cuMemcpy2DAsync_v2"},
    {"cuMemcpy2DUnaligned", 3020, "cuMemcpy2DUnaligned_v2"},
    {"cuMemcpy3D", 3020, "cuMemcpy3D_v2"},
    {"cuMemcpy3DAsync", 3020, "cuMemcpy3DAsync_v2"},
    {"cuMemcpyDtoD", 3020, "cuMemcpyDtoD_v2"},
    {"cuMemcpyDtoDAsync", 3020, "cuMemcpyDtoDAsync_v2"},
    {"cuMemcpyDtoH", 3020, "cuMemcpyDtoH_v2"},
    {"cuMemcpyDtoHAsync", 3020, "cuMemcpyDtoHAsync_v2"},
    {"cuMemcpyHtoD", 3020, "cuMemcpyHtoD_v2"},
    {"cuMemcpyHtoDAsync", 3020, "cuMemcpyHtoDAsync_v2"},
    {"cuMemsetD16", 3020, "cuMemsetD16_v2"},
    {"cuMemsetD2D16", 3020, "cuMemsetD2D16_v2"},
    {"cuMemsetD2D32", 3020, "cuMemsetD2D32_v2"},
    {"cuMemsetD2D8", 3020, "cuMemsetD2D8_v2"},
    {"cuMemsetD32", 3020, "cuMemsetD32_v2"},
    {"cuMemsetD8", 3020, "cuMemsetD8_v2"},
    {"cuModuleGetGlobal", 3020, "cuModuleGetGlobal_v2"},
    {"cuStreamBatchMemOp", 11070, "cuStreamBatchMemOp_v2"},
    {"cuStreamBeginCapture", 10010, "cuStreamBeginCapture_v2"},
    {"cuStreamDestroy", 4000, "cuStreamDestroy_v2"},
    {"cuStreamGetCaptureInfo", 12030, "cuStreamGetCaptureInfo_v3"},
    {"cuStreamGetCaptureInfo", 11030, "cuStreamGetCaptureInfo_v2"},
    {"cuStreamUpdateCaptureDependencies", 12030, "cuStreamUpdateCaptureDependencies_v2"},
    {"cuStreamWaitValue32", 11070, "cuStreamWaitValue32_v2"},
    {"cuStreamWaitValue64", 11070, "cuStreamWaitValue64_v2"},
    {"cuStreamWriteValue32", 11070, "cuStreamWriteValue32_v2"},
    {"cuStreamWriteValue64", 11070, "cuStreamWriteValue64_v2"},
};

// The library that contains this code, wherever it was loaded from.
void* OwnLibrary() {
  static void* const library = [] {
    Dl_info info = {};
    dladdr(reinterpret_cast<void*>(&cuInit), &info);
    return dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD);
  }();
  return library;
}

void* FindSymbol(const std::string& name) {
  void* found = dlsym(OwnLibrary(), name.c_str());
  Dl_info info = {}, own = {};
  // The function must not come from another library that this one depends on.
  if (found == nullptr || dladdr(found, &info) == 0 || dladdr(reinterpret_cast<void*>(&cuInit), &own) == 0)
    return nullptr;
  return info.dli_fbase == own.dli_fbase ? found : nullptr;
}

// Sets `known` to whether there is such a function in any version.
void* Find(const char* symbol, int version, bool per_thread, bool* known) {
  std::string name = symbol;
  for (const Versioned& entry : kVersioned) {
    if (name != entry.name) continue;
    *known = true;
    if (version < entry.since) continue;
    name = entry.symbol;
    break;
  }
  if (per_thread) {
    for (const char* suffix : {"_ptsz", "_ptds"}) {
      if (void* found = FindSymbol(name + suffix)) return found;
    }
  }
  return FindSymbol(name);
}

}  // namespace
}  // namespace softgpu::cuda

using namespace softgpu::cuda;  // NOLINT: the C entry points

CUresult cuGetProcAddress_v2(const char* symbol, void** pointer, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult* status) {
  if (symbol == nullptr || pointer == nullptr || std::strncmp(symbol, "cu", 2) != 0) return CUDA_ERROR_INVALID_VALUE;
  bool known = false;
  *pointer = nullptr;
  if (version <= Knobs().driver_version)
    *pointer = Find(symbol, version, (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0, &known);
  // A function that cannot be counted is missing rather than overlooked.
  if (Knobs().count_calls && *pointer != nullptr) *pointer = CountingForm(*pointer);
  if (status != nullptr) {
    *status = *pointer != nullptr ? CU_GET_PROC_ADDRESS_SUCCESS
              : known             ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
                                  : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  }
  if (*pointer == nullptr) Explain("cuGetProcAddress: there is no %s of version %d", symbol, version);
  return *pointer != nullptr ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
