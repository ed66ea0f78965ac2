#include "tests/harness/gpu.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "tests/harness/gpu_driver.h"

namespace axccl::harness {
namespace {

ncclResult_t ResultOf(int error) { return error == 0 ? ncclSuccess : ncclUnhandledCudaError; }

}  // namespace

bool OnGpu() {
  const char* device = std::getenv("AXCCL_TEST_DEVICE");
  return device != nullptr && std::string_view(device) == "cuda";
}

void* GpuAllocate(size_t bytes) {
  constexpr unsigned kAttachGlobal = 1;
  const GpuDriver* const driver = EnterGpu();
  const char* kind = std::getenv("AXCCL_TEST_GPU_MEMORY");
  const bool managed = kind == nullptr || std::string_view(kind) != "device";
  uint64_t memory = 0;
  if (driver == nullptr) return nullptr;
  const int error =
      managed ? driver->allocate_managed(&memory, bytes, kAttachGlobal) : driver->allocate(&memory, bytes);
  if (error != 0) return nullptr;
  return reinterpret_cast<void*>(memory);
}

void GpuFree(void* memory) {
  const GpuDriver* const driver = EnterGpu();
  if (driver == nullptr) return;
  EXPECT_EQ(driver->free_memory(reinterpret_cast<uint64_t>(memory)), 0);
}

ncclResult_t CreateStream(axcclStream_t* stream) {
  if (!OnGpu()) return axcclStreamCreate(stream, axcclStreamNonBlocking);
  constexpr unsigned kNonBlocking = 1;
  const GpuDriver* const driver = EnterGpu();
  void* made = nullptr;
  if (driver == nullptr || driver->create_stream(&made, kNonBlocking) != 0) return ncclUnhandledCudaError;
  *stream = static_cast<axcclStream_t>(made);
  return ncclSuccess;
}

ncclResult_t SynchronizeStream(axcclStream_t stream) {
  if (!OnGpu()) return axcclStreamSynchronize(stream);
  const GpuDriver* const driver = EnterGpu();
  return driver != nullptr ? ResultOf(driver->synchronize(stream)) : ncclUnhandledCudaError;
}

ncclResult_t QueryStream(axcclStream_t stream) {
  constexpr int kNotReady = 600;
  if (!OnGpu()) return axcclStreamQuery(stream);
  const GpuDriver* const driver = EnterGpu();
  if (driver == nullptr) return ncclUnhandledCudaError;
  const int state = driver->query_stream(stream);
  return state == kNotReady ? ncclInProgress : ResultOf(state);
}

ncclResult_t EndOf(axcclStream_t stream, ncclComm_t comm) {
  const ncclResult_t synchronized = SynchronizeStream(stream);
  if (!OnGpu() || synchronized != ncclSuccess) return synchronized;
  ncclResult_t state = ncclSuccess;
  const ncclResult_t asked = ncclCommGetAsyncError(comm, &state);
  return asked != ncclSuccess ? asked : state;
}

ncclResult_t DestroyStream(axcclStream_t stream) {
  if (!OnGpu()) return axcclStreamDestroy(stream);
  const GpuDriver* const driver = EnterGpu();
  return driver != nullptr ? ResultOf(driver->destroy_stream(stream)) : ncclUnhandledCudaError;
}

}  // namespace axccl::harness
