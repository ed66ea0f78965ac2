#include "perf/common/place.h"

#include <dlfcn.h>

#include <cstdlib>
#include <cstring>

#include "axccl/axccl.h"
#include "perf/common/calls.h"

namespace axccl::perf {
namespace {

constexpr unsigned kNonBlocking = 1;  // CU_STREAM_NON_BLOCKING

// The functions of the driver that are used, with its types spelled out: CUdevice is int, handles are pointers.
struct Driver {
  int (*cuInit)(unsigned) = nullptr;
  int (*cuDeviceGetCount)(int*) = nullptr;
  int (*cuDeviceGet)(int*, int) = nullptr;
  int (*cuDevicePrimaryCtxRetain)(void**, int) = nullptr;
  int (*cuCtxSetCurrent)(void*) = nullptr;
  int (*cuStreamCreate)(void**, unsigned) = nullptr;
  int (*cuStreamSynchronize)(void*) = nullptr;
};

template <typename Function>
bool Find(void* library, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(library, name));
  return *function != nullptr;
}

// Returns null if there is no driver.
const Driver* Load() {
  static Driver driver;
  void* library = dlopen("libcuda.so.1", RTLD_NOW);
  if (library == nullptr) return nullptr;
#define AXCCL_FIND(name) Find(library, #name, &driver.name)
  const bool found = AXCCL_FIND(cuInit) && AXCCL_FIND(cuDeviceGetCount) && AXCCL_FIND(cuDeviceGet) &&
                     AXCCL_FIND(cuDevicePrimaryCtxRetain) && AXCCL_FIND(cuCtxSetCurrent) &&
                     AXCCL_FIND(cuStreamCreate) && AXCCL_FIND(cuStreamSynchronize);
#undef AXCCL_FIND
  return found && driver.cuInit(0) == 0 ? &driver : nullptr;
}

const Driver* Get() {
  static const Driver* driver = Load();
  return driver;
}

void Check(int result, const char* call) {
  if (result != 0) Fail(kExitFailed, "%s returned %d", call, result);
}

bool HostWanted() {
  const char* wanted = std::getenv("AXCCL_DEVICE");
  return wanted != nullptr && std::strcmp(wanted, "host") == 0;
}

}  // namespace

void* Place::Find(const char* name) {
  static void* const library = dlopen("libcuda.so.1", RTLD_NOW);
  void* const function = library != nullptr ? dlsym(library, name) : nullptr;
  if (function == nullptr) Fail(kExitFailed, "the CUDA driver has no %s", name);
  return function;
}

Place::Place() {
  if (!HostWanted() && Get() != nullptr && Get()->cuDeviceGetCount(&gpus_) != 0) gpus_ = 0;
  setenv("AXCCL_DEVICE", on_gpus() ? "cuda" : "host", 1);
}

void Place::Use(int device) const {
  if (!on_gpus()) {
    PERF_CALL(axcclHostSetDevice(device));
    return;
  }
  int handle = 0;
  void* context = nullptr;
  Check(Get()->cuDeviceGet(&handle, device), "cuDeviceGet");
  Check(Get()->cuDevicePrimaryCtxRetain(&context, handle), "cuDevicePrimaryCtxRetain");
  Check(Get()->cuCtxSetCurrent(context), "cuCtxSetCurrent");
}

cudaStream_t Place::NewStream() const {
  if (on_gpus()) {
    void* stream = nullptr;
    Check(Get()->cuStreamCreate(&stream, kNonBlocking), "cuStreamCreate");
    return static_cast<cudaStream_t>(stream);
  }
  axcclStream_t stream = nullptr;
  PERF_CALL(axcclStreamCreate(&stream, axcclStreamNonBlocking));
  return axcclStreamToCuda(stream);
}

void Place::Wait(cudaStream_t stream) const {
  if (on_gpus()) {
    Check(Get()->cuStreamSynchronize(stream), "cuStreamSynchronize");
  } else {
    PERF_CALL(axcclStreamSynchronize(axcclStreamFromCuda(stream)));
  }
}

}  // namespace axccl::perf
