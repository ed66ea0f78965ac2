#include "tools/axccl-program/gpus.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace axccl::tools {
namespace {

constexpr unsigned kNonBlocking = 1;  // CU_STREAM_NON_BLOCKING

// The functions of the driver that are used, with its types spelled out: CUdevice is int, handles are pointers.
struct GpuDriver {
  int (*cuInit)(unsigned) = nullptr;
  int (*cuDeviceGetCount)(int*) = nullptr;
  int (*cuDeviceGet)(int*, int) = nullptr;
  int (*cuDevicePrimaryCtxRetain)(void**, int) = nullptr;
  int (*cuCtxSetCurrent)(void*) = nullptr;
  int (*cuStreamCreate)(void**, unsigned) = nullptr;
  int (*cuStreamSynchronize)(void*) = nullptr;
  int (*cuStreamWaitEvent)(void*, void*, unsigned) = nullptr;
  int (*cuStreamDestroy_v2)(void*) = nullptr;
  int (*cuEventCreate)(void**, unsigned) = nullptr;
  int (*cuEventRecord)(void*, void*) = nullptr;
  int (*cuEventElapsedTime)(float*, void*, void*) = nullptr;
  int (*cuEventDestroy_v2)(void*) = nullptr;
  int (*cuMemsetD8_v2)(unsigned long long, unsigned char, size_t) = nullptr;
};
GpuDriver driver;

Status Checked(int result, const char* call) {
  if (result == 0) return Status();
  return MakeStatus(Code::kSystemError, "%s returned CUDA error %d", call, result);
}

template <class Function>
Status Find(void* library, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(library, name));
  if (*function != nullptr) return Status();
  return MakeStatus(Code::kSystemError, "the CUDA driver has no %s; install one for CUDA 12 or newer", name);
}

}  // namespace

bool GpusWanted() {
  const char* const wanted = std::getenv("AXCCL_DEVICE");
  return wanted != nullptr && std::strcmp(wanted, "cuda") == 0;
}

Result<const Gpus*> Gpus::Get() {
  static Gpus gpus;
  static const Status loaded = gpus.Load();
  AXCCL_RETURN_IF_ERROR(loaded);
  return &gpus;
}

Status Gpus::Load() {
  void* const library = dlopen("libcuda.so.1", RTLD_NOW);
  if (library == nullptr)
    return MakeStatus(Code::kSystemError, "AXCCL_DEVICE is cuda, and there is no CUDA driver: %s; unset it", dlerror());
#define AXCCL_FIND(name) AXCCL_RETURN_IF_ERROR(Find(library, #name, &driver.name))
  AXCCL_FIND(cuInit);
  AXCCL_FIND(cuDeviceGetCount);
  AXCCL_FIND(cuDeviceGet);
  AXCCL_FIND(cuDevicePrimaryCtxRetain);
  AXCCL_FIND(cuCtxSetCurrent);
  AXCCL_FIND(cuStreamCreate);
  AXCCL_FIND(cuStreamSynchronize);
  AXCCL_FIND(cuStreamWaitEvent);
  AXCCL_FIND(cuStreamDestroy_v2);
  AXCCL_FIND(cuEventCreate);
  AXCCL_FIND(cuEventRecord);
  AXCCL_FIND(cuEventElapsedTime);
  AXCCL_FIND(cuEventDestroy_v2);
  AXCCL_FIND(cuMemsetD8_v2);
#undef AXCCL_FIND
  AXCCL_RETURN_IF_ERROR(Checked(driver.cuInit(0), "cuInit"));
  AXCCL_RETURN_IF_ERROR(Checked(driver.cuDeviceGetCount(&count_), "cuDeviceGetCount"));
  if (count_ > 0) return Status();
  return MakeStatus(Code::kSystemError, "AXCCL_DEVICE is cuda, and the driver has no GPU; unset it");
}

Status Gpus::Use(int rank) const {
  int device = 0;
  void* context = nullptr;
  AXCCL_RETURN_IF_ERROR(Checked(driver.cuDeviceGet(&device, rank % count_), "cuDeviceGet"));
  AXCCL_RETURN_IF_ERROR(Checked(driver.cuDevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain"));
  return Checked(driver.cuCtxSetCurrent(context), "cuCtxSetCurrent");
}

Result<cudaStream_t> Gpus::NewStream() const {
  void* stream = nullptr;
  AXCCL_RETURN_IF_ERROR(Checked(driver.cuStreamCreate(&stream, kNonBlocking), "cuStreamCreate"));
  return static_cast<cudaStream_t>(stream);
}

Status Gpus::Wait(cudaStream_t stream) const {
  return Checked(driver.cuStreamSynchronize(stream), "cuStreamSynchronize");
}

void Gpus::Drop(cudaStream_t stream) const { (void)driver.cuStreamDestroy_v2(stream); }

Result<void*> Gpus::NewEvent() const {
  void* event = nullptr;
  AXCCL_RETURN_IF_ERROR(Checked(driver.cuEventCreate(&event, 0), "cuEventCreate"));
  return event;
}

Status Gpus::Record(void* event, cudaStream_t stream) const {
  return Checked(driver.cuEventRecord(event, stream), "cuEventRecord");
}

Status Gpus::WaitFor(void* event, cudaStream_t stream) const {
  return Checked(driver.cuStreamWaitEvent(stream, event, 0), "cuStreamWaitEvent");
}

Result<double> Gpus::SecondsBetween(void* begin, void* end) const {
  float milliseconds = 0;
  AXCCL_RETURN_IF_ERROR(Checked(driver.cuEventElapsedTime(&milliseconds, begin, end), "cuEventElapsedTime"));
  return static_cast<double>(milliseconds) * 1e-3;
}

void Gpus::DropEvent(void* event) const { (void)driver.cuEventDestroy_v2(event); }

Result<void*> Gpus::NewZeros(size_t bytes) const {
  void* memory = nullptr;
  if (ncclMemAlloc(&memory, std::max<size_t>(bytes, 1)) != ncclSuccess)
    return MakeStatus(Code::kSystemError, "ncclMemAlloc of %zu bytes: %s", bytes, ncclGetLastError(nullptr));
  AXCCL_RETURN_IF_ERROR(Checked(
      driver.cuMemsetD8_v2(reinterpret_cast<unsigned long long>(memory), 0, std::max<size_t>(bytes, 1)), "cuMemsetD8"));
  return memory;
}

void Gpus::DropMemory(void* memory) const { (void)ncclMemFree(memory); }

}  // namespace axccl::tools
