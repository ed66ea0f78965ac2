#include "tools/axccl-program/gpus.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "src/base/cuda_driver.h"

namespace axccl::tools {
namespace {

const CudaDriver* g_driver = nullptr;  // once it is loaded

Status Checked(int result, const char* call) {
  if (result == 0) return Status();
  return MakeStatus(Code::kSystemError, "%s returned CUDA error %d", call, result);
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
  const Result<const CudaDriver*> loaded = CudaDriver::Load();
  if (!loaded.ok())
    return MakeStatus(Code::kSystemError, "AXCCL_DEVICE is cuda, and %s; unset it",
                      std::string(loaded.status().message()).c_str());
  g_driver = loaded.value();
  AXCCL_RETURN_IF_ERROR(Checked(g_driver->cuInit(0), "cuInit"));
  AXCCL_RETURN_IF_ERROR(Checked(g_driver->cuDeviceGetCount(&count_), "cuDeviceGetCount"));
  if (count_ > 0) return Status();
  return MakeStatus(Code::kSystemError, "AXCCL_DEVICE is cuda, and the driver has no GPU; unset it");
}

Status Gpus::Use(int rank) const {
  int device = 0;
  void* context = nullptr;
  AXCCL_RETURN_IF_ERROR(Checked(g_driver->cuDeviceGet(&device, rank % count_), "cuDeviceGet"));
  AXCCL_RETURN_IF_ERROR(Checked(g_driver->cuDevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain"));
  return Checked(g_driver->cuCtxSetCurrent(context), "cuCtxSetCurrent");
}

Result<cudaStream_t> Gpus::NewStream() const {
  void* stream = nullptr;
  AXCCL_RETURN_IF_ERROR(Checked(g_driver->cuStreamCreate(&stream, CudaDriver::kNonBlockingStream), "cuStreamCreate"));
  return static_cast<cudaStream_t>(stream);
}

Status Gpus::Wait(cudaStream_t stream) const {
  return Checked(g_driver->cuStreamSynchronize(stream), "cuStreamSynchronize");
}

void Gpus::Drop(cudaStream_t stream) const { (void)g_driver->cuStreamDestroy_v2(stream); }

Result<void*> Gpus::NewEvent() const {
  void* event = nullptr;
  AXCCL_RETURN_IF_ERROR(Checked(g_driver->cuEventCreate(&event, 0), "cuEventCreate"));
  return event;
}

Status Gpus::Record(void* event, cudaStream_t stream) const {
  return Checked(g_driver->cuEventRecord(event, stream), "cuEventRecord");
}

Status Gpus::WaitFor(void* event, cudaStream_t stream) const {
  return Checked(g_driver->cuStreamWaitEvent(stream, event, 0), "cuStreamWaitEvent");
}

Result<double> Gpus::SecondsBetween(void* begin, void* end) const {
  float milliseconds = 0;
  AXCCL_RETURN_IF_ERROR(Checked(g_driver->cuEventElapsedTime(&milliseconds, begin, end), "cuEventElapsedTime"));
  return static_cast<double>(milliseconds) * 1e-3;
}

void Gpus::DropEvent(void* event) const { (void)g_driver->cuEventDestroy_v2(event); }

Result<void*> Gpus::NewZeros(size_t bytes) const {
  void* memory = nullptr;
  if (ncclMemAlloc(&memory, std::max<size_t>(bytes, 1)) != ncclSuccess)
    return MakeStatus(Code::kSystemError, "ncclMemAlloc of %zu bytes: %s", bytes, ncclGetLastError(nullptr));
  AXCCL_RETURN_IF_ERROR(Checked(
      g_driver->cuMemsetD8_v2(reinterpret_cast<uint64_t>(memory), 0, std::max<size_t>(bytes, 1)), "cuMemsetD8"));
  return memory;
}

void Gpus::DropMemory(void* memory) const { (void)ncclMemFree(memory); }

}  // namespace axccl::tools
