#include "perf/common/place.h"

#include <cstdlib>
#include <cstring>

#include "axccl/axccl.h"
#include "perf/common/calls.h"
#include "src/base/cuda_driver.h"

namespace axccl::perf {
namespace {

// Started. Returns null if there is none.
const CudaDriver* Load() {
  const Result<const CudaDriver*> driver = CudaDriver::Load();
  return driver.ok() && driver.value()->cuInit(0) == 0 ? driver.value() : nullptr;
}

const CudaDriver* Get() {
  static const CudaDriver* const driver = Load();
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

const CudaDriver& Place::Driver() { return *Get(); }

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
    Check(Get()->cuStreamCreate(&stream, CudaDriver::kNonBlockingStream), "cuStreamCreate");
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
