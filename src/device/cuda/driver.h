// The CUDA driver, loaded at its first use: the same library runs where there is none, and beside any CUDA runtime of
// the application. Documented functions only, each found by cuGetProcAddress in the version of the header that the
// library was compiled with.
#pragma once

#include <cuda.h>

#include <string>

#include "src/base/status.h"

namespace axccl::device::cuda {

// All functions that every driver must have. Code that uses an optional function looks it up itself.
// clang-format off
#define AXCCL_CUDA_FUNCTIONS(X)                                                                                     \
  X(cuInit) X(cuGetErrorName) X(cuGetErrorString)                                                                   \
  X(cuDeviceGet) X(cuDeviceGetCount) X(cuDeviceGetName) X(cuDeviceGetAttribute)                                     \
  X(cuDeviceCanAccessPeer) X(cuDeviceGetP2PAttribute) X(cuDeviceGetUuid) X(cuDeviceGetPCIBusId)                     \
  X(cuDevicePrimaryCtxRetain) X(cuDevicePrimaryCtxGetState)                                                         \
  X(cuCtxGetCurrent) X(cuCtxPushCurrent) X(cuCtxPopCurrent) X(cuCtxGetDevice) X(cuCtxGetId) X(cuCtxEnablePeerAccess) \
  X(cuMemAlloc) X(cuMemFree) X(cuMemFreeAsync) X(cuMemGetInfo) X(cuMemGetAddressRange) X(cuMemHostAlloc)            \
  X(cuMemHostRegister) X(cuMemHostUnregister) X(cuMemHostGetDevicePointer) X(cuFlushGPUDirectRDMAWrites)             \
  X(cuMemcpyHtoDAsync) X(cuMemcpyDtoHAsync) X(cuMemcpyAsync) X(cuMemcpy2DAsync)                                     \
  X(cuMemsetD8Async) X(cuMemsetD2D8Async) X(cuMemsetD32Async)                                                       \
  X(cuMemGetAllocationGranularity) X(cuMemCreate) X(cuMemRelease) X(cuMemRetainAllocationHandle)                    \
  X(cuMemAddressReserve) X(cuMemAddressFree) X(cuMemMap) X(cuMemUnmap) X(cuMemSetAccess) X(cuMemGetAccess)          \
  X(cuMemPoolGetAccess)                                                                                             \
  X(cuMemExportToShareableHandle) X(cuMemImportFromShareableHandle)                                                 \
  X(cuPointerGetAttribute) X(cuPointerGetAttributes)                                                                \
  X(cuIpcGetMemHandle) X(cuIpcOpenMemHandle) X(cuIpcCloseMemHandle)                                                 \
  X(cuStreamCreate) X(cuStreamCreateWithPriority) X(cuCtxGetStreamPriorityRange) X(cuStreamDestroy)                 \
  X(cuStreamSynchronize) X(cuStreamQuery) X(cuStreamWaitEvent) X(cuStreamWaitValue32) X(cuStreamWriteValue32)       \
  X(cuStreamGetId) X(cuThreadExchangeStreamCaptureMode)                                      \
  X(cuEventCreate) X(cuEventDestroy) X(cuEventRecord) X(cuEventQuery) X(cuEventSynchronize)                         \
  X(cuGraphAddEventRecordNode) X(cuUserObjectCreate) X(cuUserObjectRelease) X(cuGraphRetainUserObject)              \
  X(cuModuleLoadData) X(cuModuleGetFunction) X(cuFuncGetAttribute) X(cuFuncSetAttribute)                            \
  X(cuOccupancyMaxActiveBlocksPerMultiprocessor) X(cuLaunchKernelEx)
// clang-format on

struct Driver {
#define AXCCL_CUDA_MEMBER(name) decltype(&::name) name = nullptr;
  AXCCL_CUDA_FUNCTIONS(AXCCL_CUDA_MEMBER)
#undef AXCCL_CUDA_MEMBER
  CUresult (*cuStreamGetCtx)(CUstream, CUcontext*) = nullptr;  // CUDA 12.5's has a green context, too
  // As in CUDA 12.0; the header's declaration has one parameter more since 13.0.
  CUresult (*cuStreamGetCaptureInfo)(CUstream, CUstreamCaptureStatus*, cuuint64_t* id, CUgraph*, const CUgraphNode**,
                                     size_t* dependencies) = nullptr;
  int version = 0;  // 12080: of CUDA 12.8

  // Returns the driver of this process, initialised. An error says why there is none, and stays for the life of the
  // process.
  static Result<const Driver*> Get();
  // Must follow a successful Get().
  static const Driver& Loaded();
};

// Functions for multicast objects, which drivers have from CUDA 12.1 on; in the versions of that driver.
struct MulticastDriver {
  CUresult (*cuMulticastCreate)(CUmemGenericAllocationHandle*, const CUmulticastObjectProp*) = nullptr;
  CUresult (*cuMulticastAddDevice)(CUmemGenericAllocationHandle, CUdevice) = nullptr;
  CUresult (*cuMulticastBindMem)(CUmemGenericAllocationHandle, size_t offset, CUmemGenericAllocationHandle memory,
                                 size_t memory_offset, size_t bytes, unsigned long long flags) = nullptr;
  CUresult (*cuMulticastUnbind)(CUmemGenericAllocationHandle, CUdevice, size_t offset, size_t bytes) = nullptr;
  CUresult (*cuMulticastGetGranularity)(size_t*, const CUmulticastObjectProp*, CUmulticastGranularity_flags) = nullptr;

  // Null if the driver lacks any of them. Must follow a successful Driver::Get().
  static const MulticastDriver* Get();
};

// Ok for CUDA_SUCCESS; otherwise kUnhandledCudaError, with `call` (without its arguments) and the driver's description.
Status Check(CUresult result, const char* call);

#define AXCCL_RETURN_IF_CUDA_ERROR(expression) \
  AXCCL_RETURN_IF_ERROR(::axccl::device::cuda::Check((expression), #expression))

// The version of the driver's interface that is used: CUDA 12.0.
inline constexpr int kInterface = 12000;
// The oldest driver that runs the device code: of the generation of the toolkit that has made it (NVIDIA's "CUDA
// Compatibility": minor versions are compatible, and generations are not).
inline constexpr int kOldestDriver = CUDA_VERSION < 13000 ? kInterface : CUDA_VERSION / 1000 * 1000;

}  // namespace axccl::device::cuda
