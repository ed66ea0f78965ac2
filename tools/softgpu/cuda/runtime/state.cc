// Devices of threads, and errors.
#include <array>
#include <mutex>
#include <string>

#include "tools/softgpu/cuda/runtime/runtime.h"

namespace softgpu::runtime {
namespace {

thread_local int t_device = 0;
thread_local cudaError_t t_last_error = cudaSuccess;

// Primary contexts that the runtime has retained.
struct Contexts {
  std::mutex mutex;
  std::array<CUcontext, 64> of_device{};
};

Contexts& TheContexts() {
  static auto* const contexts = new Contexts;
  return *contexts;
}

cudaError_t PrimaryContext(int device, CUcontext* context) {
  if (device < 0 || device >= 64) return cudaErrorInvalidDevice;
  std::lock_guard lock(TheContexts().mutex);
  CUcontext& known = TheContexts().of_device[static_cast<size_t>(device)];
  if (known == nullptr) {
    const CUresult error = cuDevicePrimaryCtxRetain(&known, device);
    if (error != CUDA_SUCCESS) return static_cast<cudaError_t>(error);
  }
  *context = known;
  return cudaSuccess;
}

}  // namespace

cudaError_t EnsureDriver() {
  int version = 0;
  cuDriverGetVersion(&version);
  if (version < SOFTGPU_CUDART_MAJOR * 1000) return cudaErrorInsufficientDriver;
  return static_cast<cudaError_t>(cuInit(0));
}

cudaError_t Ensure() {
  if (const cudaError_t error = EnsureDriver(); error != cudaSuccess) return error;
  CUcontext current = nullptr;
  cuCtxGetCurrent(&current);
  return current != nullptr ? cudaSuccess : UseDevice(t_device);
}

cudaError_t Finish(cudaError_t error) {
  if (error != cudaSuccess) t_last_error = error;
  return error;
}

// A lasting error is returned again by the next call.
cudaError_t TakeLastError() {
  const cudaError_t error = t_last_error;
  t_last_error = cudaSuccess;
  return error;
}

cudaError_t PeekLastError() { return t_last_error; }

int CurrentDevice() {
  CUdevice device = t_device;
  return cuCtxGetDevice(&device) == CUDA_SUCCESS ? device : t_device;
}

cudaError_t UseDevice(int device) {
  CUcontext context = nullptr;
  if (const cudaError_t error = PrimaryContext(device, &context); error != cudaSuccess) return error;
  CUresult error = cuCtxSetCurrent(context);
  if (error == CUDA_ERROR_INVALID_CONTEXT) {
    // The program has reset the device through the driver.
    ForgetDevice(device);
    if (const cudaError_t again = PrimaryContext(device, &context); again != cudaSuccess) return again;
    error = cuCtxSetCurrent(context);
  }
  if (error == CUDA_SUCCESS) t_device = device;
  return static_cast<cudaError_t>(error);
}

void ForgetDevice(int device) {
  std::lock_guard lock(TheContexts().mutex);
  TheContexts().of_device[static_cast<size_t>(device)] = nullptr;
}

}  // namespace softgpu::runtime

using namespace softgpu::runtime;  // NOLINT: the C entry points

cudaError_t cudaGetLastError() { return TakeLastError(); }
cudaError_t cudaPeekAtLastError() { return PeekLastError(); }

const char* cudaGetErrorString(cudaError_t error) {
  const char* text = nullptr;
  switch (error) {
    case cudaErrorInvalidConfiguration:
      return "invalid configuration argument";
    case cudaErrorInvalidMemcpyDirection:
      return "invalid copy direction for memcpy";
    case cudaErrorInvalidDeviceFunction:
      return "invalid device function";
    case cudaErrorInvalidSymbol:
      return "invalid device symbol";
    case cudaErrorInsufficientDriver:
      return "CUDA driver version is insufficient for CUDA runtime version";
    case cudaErrorMissingConfiguration:
      return "__global__ function call is not configured";
    default:
      return cuGetErrorString(static_cast<CUresult>(error), &text) == CUDA_SUCCESS ? text : "unrecognized error code";
  }
}

namespace {

// CUDA_ERROR_NOT_FOUND -> cudaErrorNotFound, for errors whose names differ only in style.
std::string NameFromDriver(const char* driver_name) {
  std::string name = "cudaError";
  bool upper = true;
  for (const char* at = driver_name + sizeof "CUDA_ERROR_" - 1; *at != '\0'; ++at) {
    if (*at == '_') {
      upper = true;
      continue;
    }
    name.push_back(upper ? *at : static_cast<char>(*at - 'A' + 'a'));
    upper = false;
  }
  return name;
}

struct RuntimeName {
  cudaError_t error;
  const char* name;
};

// Errors that have another name in the runtime, or none in the driver.
constexpr RuntimeName kNames[] = {
    {cudaSuccess, "cudaSuccess"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation"},
    {cudaErrorInitializationError, "cudaErrorInitializationError"},
    {cudaErrorCudartUnloading, "cudaErrorCudartUnloading"},
    {cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration"},
    {cudaErrorInvalidMemcpyDirection, "cudaErrorInvalidMemcpyDirection"},
    {cudaErrorInvalidSymbol, "cudaErrorInvalidSymbol"},
    {cudaErrorInsufficientDriver, "cudaErrorInsufficientDriver"},
    {cudaErrorMissingConfiguration, "cudaErrorMissingConfiguration"},
    {cudaErrorInvalidDeviceFunction, "cudaErrorInvalidDeviceFunction"},
    {cudaErrorInvalidKernelImage, "cudaErrorInvalidKernelImage"},
    {cudaErrorDeviceUninitialized, "cudaErrorDeviceUninitialized"},
    {cudaErrorNoKernelImageForDevice, "cudaErrorNoKernelImageForDevice"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle"},
    {cudaErrorSymbolNotFound, "cudaErrorSymbolNotFound"},
    {cudaErrorLaunchFailure, "cudaErrorLaunchFailure"},
    {cudaErrorInvalidPtx, "cudaErrorInvalidPtx"},
};

}  // namespace

const char* cudaGetErrorName(cudaError_t error) {
  for (const RuntimeName& entry : kNames) {
    if (entry.error == error) return entry.name;
  }
  const char* driver_name = nullptr;
  if (cuGetErrorName(static_cast<CUresult>(error), &driver_name) != CUDA_SUCCESS) return "unrecognized error code";
  static thread_local std::string name;
  name = NameFromDriver(driver_name);
  return name.c_str();
}
