// Devices and their properties.
#include <cstdio>
#include <cstring>

#include "tools/softgpu/cuda/runtime/properties.h"
#include "tools/softgpu/cuda/runtime/runtime.h"

using namespace softgpu::runtime;  // NOLINT: the C entry points

cudaError_t cudaGetDeviceCount(int* count) {
  cudaError_t error = EnsureDriver();
  *count = 0;
  if (error == cudaSuccess) error = static_cast<cudaError_t>(cuDeviceGetCount(count));
  return Finish(error);
}

cudaError_t cudaSetDevice(int device) {
  const cudaError_t error = EnsureDriver();
  return Finish(error != cudaSuccess ? error : UseDevice(device));
}

cudaError_t cudaInitDevice(int device, unsigned, unsigned) {
  const int current = CurrentDevice();
  const cudaError_t error = cudaSetDevice(device);
  return error != cudaSuccess ? error : cudaSetDevice(current);
}

cudaError_t cudaGetDevice(int* device) {
  const cudaError_t error = EnsureDriver();
  *device = CurrentDevice();
  return Finish(error);
}

cudaError_t cudaSetDeviceFlags(unsigned) { return Finish(EnsureDriver()); }

cudaError_t cudaGetDeviceFlags(unsigned* flags) {
  *flags = cudaDeviceMapHost;
  return Finish(EnsureDriver());
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  const cudaError_t error = EnsureDriver();
  if (error != cudaSuccess) return Finish(error);
  return Finish(cuDeviceGetAttribute(value, static_cast<CUdevice_attribute>(attribute), device));
}

cudaError_t cudaDeviceGetPCIBusId(char* id, int length, int device) {
  const cudaError_t error = EnsureDriver();
  return Finish(error != cudaSuccess ? error : static_cast<cudaError_t>(cuDeviceGetPCIBusId(id, length, device)));
}

cudaError_t cudaDeviceGetByPCIBusId(int* device, const char* id) {
  const cudaError_t error = EnsureDriver();
  return Finish(error != cudaSuccess ? error : static_cast<cudaError_t>(cuDeviceGetByPCIBusId(device, id)));
}

cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  const cudaError_t error = EnsureDriver();
  return Finish(error != cudaSuccess ? error : static_cast<cudaError_t>(cuDeviceCanAccessPeer(can, device, peer)));
}

cudaError_t cudaDeviceGetP2PAttribute(int* value, cudaDeviceP2PAttr attribute, int from, int to) {
  return Call([&] { return cuDeviceGetP2PAttribute(value, static_cast<CUdevice_P2PAttribute>(attribute), from, to); });
}

namespace {

template <typename Change>
cudaError_t ChangePeer(int peer, const Change& change) {
  return Call([&]() -> CUresult {
    CUcontext context = nullptr;
    // Kept for as long as the process lives, like the runtime's other contexts.
    if (const CUresult error = cuDevicePrimaryCtxRetain(&context, peer); error != CUDA_SUCCESS) return error;
    return change(context);
  });
}

}  // namespace

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags) {
  return ChangePeer(peer, [&](CUcontext context) { return cuCtxEnablePeerAccess(context, flags); });
}

cudaError_t cudaDeviceDisablePeerAccess(int peer) {
  return ChangePeer(peer, [](CUcontext context) { return cuCtxDisablePeerAccess(context); });
}

cudaError_t cudaDeviceSynchronize() { return Call(cuCtxSynchronize); }

cudaError_t cudaDeviceReset() {
  const cudaError_t error = EnsureDriver();
  if (error != cudaSuccess) return Finish(error);
  const int device = CurrentDevice();
  ForgetDevice(device);
  cuCtxSetCurrent(nullptr);
  return Finish(cuDevicePrimaryCtxReset(device));
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  return Call([&] { return cuCtxGetStreamPriorityRange(least, greatest); });
}

cudaError_t cudaDeviceSetLimit(cudaLimit limit, size_t value) {
  return Call([&] { return cuCtxSetLimit(static_cast<CUlimit>(limit), value); });
}

cudaError_t cudaDeviceGetLimit(size_t* value, cudaLimit limit) {
  return Call([&] { return cuCtxGetLimit(value, static_cast<CUlimit>(limit)); });
}

cudaError_t cudaDeviceSetCacheConfig(cudaFuncCache) { return Finish(EnsureDriver()); }

cudaError_t cudaDeviceGetCacheConfig(cudaFuncCache* config) {
  *config = cudaFuncCachePreferNone;
  return Finish(EnsureDriver());
}

cudaError_t cudaDriverGetVersion(int* version) { return Finish(cuDriverGetVersion(version)); }

cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = SOFTGPU_CUDART_MAJOR * 1000;
  return cudaSuccess;
}

cudaError_t cudaChooseDevice(int* device, const cudaDeviceProp*) {
  *device = 0;
  return Finish(EnsureDriver());
}

extern "C" {
__attribute__((visibility("default"))) cudaError_t cudaProfilerStart() { return cudaSuccess; }
__attribute__((visibility("default"))) cudaError_t cudaProfilerStop() { return cudaSuccess; }
}

#if SOFTGPU_CUDART_MAJOR >= 13
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  return Finish(GetProperties(properties, device));
}
#endif
