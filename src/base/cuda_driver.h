// The CUDA driver as programs call it: loaded by its name (libcuda.so.1), so that they can be built and run without
// one, and with its types spelled out: results and devices are int, handles are pointers, addresses are 64 bits. The
// library has a table of its own (src/device/cuda/driver.h), which asks the driver for versions of its functions.
//
// In a header, so that nothing of it is in the library. Thread-safe. Lives as long as the process.
#pragma once

#include <dlfcn.h>

#include <cstddef>
#include <cstdint>

#include "src/base/status.h"

namespace axccl {

// Name and parameters.
// clang-format off
#define AXCCL_CUDA_DRIVER(X)                                                                                          \
  X(cuInit, unsigned)                                                                                                 \
  X(cuGetErrorName, int, const char**)                                                                                \
  X(cuDeviceGetCount, int*)                                                                                           \
  X(cuDeviceGet, int*, int)                                                                                           \
  X(cuDeviceGetName, char*, int, int)                                                                                 \
  X(cuDeviceGetPCIBusId, char*, int, int)                                                                             \
  X(cuDeviceTotalMem_v2, size_t*, int)                                                                                \
  X(cuDeviceGetAttribute, int*, int, int)                                                                             \
  X(cuDevicePrimaryCtxRetain, void**, int)                                                                            \
  X(cuCtxSetCurrent, void*)                                                                                           \
  X(cuCtxSynchronize)                                                                                                 \
  X(cuStreamCreate, void**, unsigned)                                                                                 \
  X(cuStreamDestroy_v2, void*)                                                                                        \
  X(cuStreamSynchronize, void*)                                                                                       \
  X(cuStreamWaitEvent, void*, void*, unsigned)                                                                        \
  X(cuEventCreate, void**, unsigned)                                                                                  \
  X(cuEventDestroy_v2, void*)                                                                                         \
  X(cuEventRecord, void*, void*)                                                                                      \
  X(cuEventElapsedTime, float*, void*, void*)                                                                         \
  X(cuMemsetD8_v2, uint64_t, unsigned char, size_t)                                                                   \
  X(cuMemcpyHtoD_v2, uint64_t, const void*, size_t)                                                                   \
  X(cuMemcpyDtoH_v2, void*, uint64_t, size_t)                                                                         \
  X(cuModuleLoadData, void**, const void*)                                                                            \
  X(cuModuleGetFunction, void**, void*, const char*)                                                                  \
  X(cuLaunchKernel, void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**, void**)
// clang-format on

struct CudaDriver {
  static constexpr unsigned kNonBlockingStream = 1;  // CU_STREAM_NON_BLOCKING

#define AXCCL_CUDA_DRIVER_MEMBER(name, ...) int (*name)(__VA_ARGS__) = nullptr;
  AXCCL_CUDA_DRIVER(AXCCL_CUDA_DRIVER_MEMBER)
#undef AXCCL_CUDA_DRIVER_MEMBER

  // The driver, which is not started yet: that is cuInit. kSystemError if there is none, or it lacks a function.
  static Result<const CudaDriver*> Load() {
    static CudaDriver driver;
    static const Status found = driver.Find();
    AXCCL_RETURN_IF_ERROR(found);
    return &driver;
  }

 private:
  Status Find() {
    void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return MakeStatus(Code::kSystemError, "there is no CUDA driver: %s", dlerror());
#define AXCCL_CUDA_DRIVER_FIND(name, ...)                               \
  name = reinterpret_cast<decltype(this->name)>(dlsym(library, #name)); \
  if (name == nullptr)                                                  \
    return MakeStatus(Code::kSystemError, "the CUDA driver has no %s; install one for CUDA 12 or newer", #name);
    AXCCL_CUDA_DRIVER(AXCCL_CUDA_DRIVER_FIND)
#undef AXCCL_CUDA_DRIVER_FIND
    return Status();
  }
};

}  // namespace axccl
