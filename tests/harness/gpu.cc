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
  uint64_t memory = 0;
  if (driver == nullptr || driver->allocate_managed(&memory, bytes, kAttachGlobal) != 0) return nullptr;
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

ncclResult_t DestroyStream(axcclStream_t stream) {
  if (!OnGpu()) return axcclStreamDestroy(stream);
  const GpuDriver* const driver = EnterGpu();
  return driver != nullptr ? ResultOf(driver->destroy_stream(stream)) : ncclUnhandledCudaError;
}

}  // namespace axccl::harness
