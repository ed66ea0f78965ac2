// Memory: allocation, copies, fills, pointers.
#include <algorithm>
#include <cstring>

#include "tools/softgpu/cuda/runtime/runtime.h"

using namespace softgpu::runtime;  // NOLINT: the C entry points

cudaError_t cudaMalloc(void** pointer, size_t bytes) {
  return Call([&]() -> CUresult {
    *pointer = nullptr;
    return bytes == 0 ? CUDA_SUCCESS : cuMemAlloc(Out(pointer), bytes);
  });
}
cudaError_t cudaFree(void* pointer) {
  return Call([&] { return cuMemFree(Address(pointer)); });
}
cudaError_t cudaMallocManaged(void** pointer, size_t bytes, unsigned flags) {
  return Call([&] { return cuMemAllocManaged(Out(pointer), bytes, flags); });
}
cudaError_t cudaMallocPitch(void** pointer, size_t* pitch, size_t width, size_t height) {
  return Call([&] { return cuMemAllocPitch(Out(pointer), pitch, width, height, 4); });
}
cudaError_t cudaMalloc3D(cudaPitchedPtr* pointer, cudaExtent extent) {
  pointer->xsize = extent.width;
  pointer->ysize = extent.height;
  return cudaMallocPitch(&pointer->ptr, &pointer->pitch, extent.width, extent.height * extent.depth);
}
cudaError_t cudaHostAlloc(void** pointer, size_t bytes, unsigned flags) {
  return Call([&]() -> CUresult {
    *pointer = nullptr;
    return bytes == 0 ? CUDA_SUCCESS : cuMemHostAlloc(pointer, bytes, flags);
  });
}
cudaError_t cudaMallocHost(void** pointer, size_t bytes) { return cudaHostAlloc(pointer, bytes, 0); }
cudaError_t cudaFreeHost(void* pointer) {
  return Call([&] { return cuMemFreeHost(pointer); });
}
cudaError_t cudaHostRegister(void* pointer, size_t bytes, unsigned flags) {
  return Call([&] { return cuMemHostRegister(pointer, bytes, flags); });
}
cudaError_t cudaHostUnregister(void* pointer) {
  return Call([&] { return cuMemHostUnregister(pointer); });
}
cudaError_t cudaHostGetDevicePointer(void** device_pointer, void* pointer, unsigned flags) {
  return Call([&] { return cuMemHostGetDevicePointer(Out(device_pointer), pointer, flags); });
}
cudaError_t cudaHostGetFlags(unsigned* flags, void* pointer) {
  return Call([&] { return cuMemHostGetFlags(flags, pointer); });
}
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  return Call([&] { return cuMemGetInfo(free, total); });
}

// ---- pools ----

cudaError_t cudaMallocAsync(void** pointer, size_t bytes, cudaStream_t stream) {
  return Call([&] { return cuMemAllocAsync(Out(pointer), bytes, stream); });
}
cudaError_t cudaMallocFromPoolAsync(void** pointer, size_t bytes, cudaMemPool_t pool, cudaStream_t stream) {
  return Call([&] { return cuMemAllocFromPoolAsync(Out(pointer), bytes, pool, stream); });
}
cudaError_t cudaFreeAsync(void* pointer, cudaStream_t stream) {
  return Call([&] { return cuMemFreeAsync(Address(pointer), stream); });
}
cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int device) {
  return Call([&] { return cuDeviceGetDefaultMemPool(pool, device); });
}
cudaError_t cudaDeviceGetMemPool(cudaMemPool_t* pool, int device) {
  return Call([&] { return cuDeviceGetMemPool(pool, device); });
}
cudaError_t cudaDeviceSetMemPool(int device, cudaMemPool_t pool) {
  return Call([&] { return cuDeviceSetMemPool(device, pool); });
}
cudaError_t cudaDeviceGetGraphMemAttribute(int device, cudaGraphMemAttributeType attribute, void* value) {
  return Call(
      [&] { return cuDeviceGetGraphMemAttribute(device, static_cast<CUgraphMem_attribute>(attribute), value); });
}
cudaError_t cudaDeviceSetGraphMemAttribute(int device, cudaGraphMemAttributeType attribute, void* value) {
  return Call(
      [&] { return cuDeviceSetGraphMemAttribute(device, static_cast<CUgraphMem_attribute>(attribute), value); });
}
cudaError_t cudaMemPoolCreate(cudaMemPool_t* pool, const cudaMemPoolProps* properties) {
  static_assert(sizeof(cudaMemPoolProps) == sizeof(CUmemPoolProps));
  return Call([&] { return cuMemPoolCreate(pool, reinterpret_cast<const CUmemPoolProps*>(properties)); });
}
cudaError_t cudaMemPoolDestroy(cudaMemPool_t pool) {
  return Call([&] { return cuMemPoolDestroy(pool); });
}
cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, size_t bytes) {
  return Call([&] { return cuMemPoolTrimTo(pool, bytes); });
}
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value) {
  return Call([&] { return cuMemPoolSetAttribute(pool, static_cast<CUmemPool_attribute>(attribute), value); });
}
cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value) {
  return Call([&] { return cuMemPoolGetAttribute(pool, static_cast<CUmemPool_attribute>(attribute), value); });
}
cudaError_t cudaMemPoolSetAccess(cudaMemPool_t pool, const cudaMemAccessDesc* accesses, size_t count) {
  return Call([&] { return cuMemPoolSetAccess(pool, reinterpret_cast<const CUmemAccessDesc*>(accesses), count); });
}

// ---- copies ----

namespace {

cudaError_t CopyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  switch (kind) {
    case cudaMemcpyHostToHost:
    case cudaMemcpyDefault:
      return static_cast<cudaError_t>(cuMemcpyAsync(Address(to), Address(from), bytes, stream));
    case cudaMemcpyHostToDevice:
      return static_cast<cudaError_t>(cuMemcpyHtoDAsync(Address(to), from, bytes, stream));
    case cudaMemcpyDeviceToHost:
      return static_cast<cudaError_t>(cuMemcpyDtoHAsync(to, Address(from), bytes, stream));
    case cudaMemcpyDeviceToDevice:
      return static_cast<cudaError_t>(cuMemcpyDtoDAsync(Address(to), Address(from), bytes, stream));
    default:
      return cudaErrorInvalidMemcpyDirection;
  }
}

cudaError_t Copy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  switch (kind) {
    case cudaMemcpyHostToHost:
    case cudaMemcpyDefault:
      return static_cast<cudaError_t>(cuMemcpy(Address(to), Address(from), bytes));
    case cudaMemcpyHostToDevice:
      return static_cast<cudaError_t>(cuMemcpyHtoD(Address(to), from, bytes));
    case cudaMemcpyDeviceToHost:
      return static_cast<cudaError_t>(cuMemcpyDtoH(to, Address(from), bytes));
    case cudaMemcpyDeviceToDevice:
      return static_cast<cudaError_t>(cuMemcpyDtoD(Address(to), Address(from), bytes));
    default:
      return cudaErrorInvalidMemcpyDirection;
  }
}

CUDA_MEMCPY3D Plane(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width, size_t height) {
  CUDA_MEMCPY3D parameters = {};
  parameters.srcMemoryType = parameters.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
  parameters.srcDevice = Address(from);
  parameters.srcPitch = from_pitch;
  parameters.dstDevice = Address(to);
  parameters.dstPitch = to_pitch;
  parameters.WidthInBytes = width;
  parameters.Height = height;
  parameters.Depth = 1;
  return parameters;
}

bool Box(const cudaMemcpy3DParms& p, CUDA_MEMCPY3D* box) {
  if (p.srcArray != nullptr || p.dstArray != nullptr) return false;
  *box = Plane(p.dstPtr.ptr, p.dstPtr.pitch, p.srcPtr.ptr, p.srcPtr.pitch, p.extent.width, p.extent.height);
  box->Depth = p.extent.depth;
  box->srcHeight = p.srcPtr.ysize;
  box->srcXInBytes = p.srcPos.x;
  box->srcY = p.srcPos.y;
  box->srcZ = p.srcPos.z;
  box->dstHeight = p.dstPtr.ysize;
  box->dstXInBytes = p.dstPos.x;
  box->dstY = p.dstPos.y;
  box->dstZ = p.dstPos.z;
  return true;
}

// The place in a variable, if it has that many bytes there.
cudaError_t InVariable(const void* symbol, size_t offset, size_t bytes, void** at) {
  CUdeviceptr address = 0;
  size_t size = 0;
  if (const cudaError_t error = FindVariable(symbol, &address, &size); error != cudaSuccess) return error;
  if (offset > size || bytes > size - offset) return cudaErrorInvalidValue;
  *at = reinterpret_cast<void*>(address + offset);
  return cudaSuccess;
}

}  // namespace

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  return Call([&] { return bytes == 0 ? cudaSuccess : Copy(to, from, bytes, kind); });
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  return Call([&] { return bytes == 0 ? cudaSuccess : CopyAsync(to, from, bytes, kind, stream); });
}
cudaError_t cudaMemcpyPeer(void* to, int, const void* from, int, size_t bytes) {
  return cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToDevice);
}
cudaError_t cudaMemcpyPeerAsync(void* to, int, const void* from, int, size_t bytes, cudaStream_t stream) {
  return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream);
}
cudaError_t cudaMemcpy2D(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width, size_t height,
                         cudaMemcpyKind) {
  const CUDA_MEMCPY3D plane = Plane(to, to_pitch, from, from_pitch, width, height);
  return Call([&] { return cuMemcpy3D(&plane); });
}
cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width,
                              size_t height, cudaMemcpyKind, cudaStream_t stream) {
  const CUDA_MEMCPY3D plane = Plane(to, to_pitch, from, from_pitch, width, height);
  return Call([&] { return cuMemcpy3DAsync(&plane, stream); });
}
cudaError_t cudaMemcpy3D(const cudaMemcpy3DParms* parameters) {
  return Call([&] {
    CUDA_MEMCPY3D box;
    return Box(*parameters, &box) ? cuMemcpy3D(&box) : CUDA_ERROR_NOT_SUPPORTED;
  });
}
cudaError_t cudaMemcpy3DAsync(const cudaMemcpy3DParms* parameters, cudaStream_t stream) {
  return Call([&] {
    CUDA_MEMCPY3D box;
    return Box(*parameters, &box) ? cuMemcpy3DAsync(&box, stream) : CUDA_ERROR_NOT_SUPPORTED;
  });
}

cudaError_t cudaMemcpyToSymbol(const void* symbol, const void* from, size_t bytes, size_t offset, cudaMemcpyKind kind) {
  return Call([&] {
    void* to = nullptr;
    const cudaError_t error = InVariable(symbol, offset, bytes, &to);
    return error != cudaSuccess ? error : Copy(to, from, bytes, kind);
  });
}
cudaError_t cudaMemcpyFromSymbol(void* to, const void* symbol, size_t bytes, size_t offset, cudaMemcpyKind kind) {
  return Call([&] {
    void* from = nullptr;
    const cudaError_t error = InVariable(symbol, offset, bytes, &from);
    return error != cudaSuccess ? error : Copy(to, from, bytes, kind);
  });
}
cudaError_t cudaMemcpyToSymbolAsync(const void* symbol, const void* from, size_t bytes, size_t offset,
                                    cudaMemcpyKind kind, cudaStream_t stream) {
  return Call([&] {
    void* to = nullptr;
    const cudaError_t error = InVariable(symbol, offset, bytes, &to);
    return error != cudaSuccess ? error : CopyAsync(to, from, bytes, kind, stream);
  });
}
cudaError_t cudaMemcpyFromSymbolAsync(void* to, const void* symbol, size_t bytes, size_t offset, cudaMemcpyKind kind,
                                      cudaStream_t stream) {
  return Call([&] {
    void* from = nullptr;
    const cudaError_t error = InVariable(symbol, offset, bytes, &from);
    return error != cudaSuccess ? error : CopyAsync(to, from, bytes, kind, stream);
  });
}

cudaError_t cudaMemset(void* to, int value, size_t bytes) {
  return Call([&] { return cuMemsetD8(Address(to), static_cast<unsigned char>(value), bytes); });
}
cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
  return Call([&] { return cuMemsetD8Async(Address(to), static_cast<unsigned char>(value), bytes, stream); });
}
cudaError_t cudaMemset2D(void* to, size_t pitch, int value, size_t width, size_t height) {
  return Call([&] { return cuMemsetD2D8(Address(to), pitch, static_cast<unsigned char>(value), width, height); });
}
cudaError_t cudaMemset2DAsync(void* to, size_t pitch, int value, size_t width, size_t height, cudaStream_t stream) {
  return Call(
      [&] { return cuMemsetD2D8Async(Address(to), pitch, static_cast<unsigned char>(value), width, height, stream); });
}

// ---- pointers ----

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
  return Call([&] {
    // Member by member, because the structure was shorter in older versions.
    attributes->type = cudaMemoryTypeUnregistered;
    attributes->device = -2;
    attributes->devicePointer = attributes->hostPointer = nullptr;
    unsigned type = 0, managed = 0;
    const CUdeviceptr address = Address(pointer);
    // Memory that CUDA does not know is not an error here.
    if (cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address) != CUDA_SUCCESS) {
      attributes->hostPointer = const_cast<void*>(pointer);
      return CUDA_SUCCESS;
    }
    cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, address);
    cuPointerGetAttribute(&attributes->device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address);
    cuPointerGetAttribute(&attributes->devicePointer, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, address);
    cuPointerGetAttribute(&attributes->hostPointer, CU_POINTER_ATTRIBUTE_HOST_POINTER, address);
    attributes->type = managed != 0                 ? cudaMemoryTypeManaged
                       : type == CU_MEMORYTYPE_HOST ? cudaMemoryTypeHost
                                                    : cudaMemoryTypeDevice;
    return CUDA_SUCCESS;
  });
}

// ---- sharing between processes ----

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t* handle, void* pointer) {
  return Call([&] { return cuIpcGetMemHandle(reinterpret_cast<CUipcMemHandle*>(handle), Address(pointer)); });
}
cudaError_t cudaIpcOpenMemHandle(void** pointer, cudaIpcMemHandle_t handle, unsigned flags) {
  CUipcMemHandle copy;
  static_assert(sizeof copy == sizeof handle);
  std::memcpy(&copy, &handle, sizeof copy);
  return Call([&] { return cuIpcOpenMemHandle(Out(pointer), copy, flags); });
}
cudaError_t cudaIpcCloseMemHandle(void* pointer) {
  return Call([&] { return cuIpcCloseMemHandle(Address(pointer)); });
}
cudaError_t cudaIpcGetEventHandle(cudaIpcEventHandle_t* handle, cudaEvent_t event) {
  return Call([&] { return cuIpcGetEventHandle(reinterpret_cast<CUipcEventHandle*>(handle), event); });
}
cudaError_t cudaIpcOpenEventHandle(cudaEvent_t* event, cudaIpcEventHandle_t handle) {
  CUipcEventHandle copy;
  std::memcpy(&copy, &handle, sizeof copy);
  return Call([&] { return cuIpcOpenEventHandle(event, copy); });
}
