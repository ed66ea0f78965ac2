#include "tests/harness/gpu.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "src/base/arena.h"
#include "tests/harness/gpu_driver.h"

namespace axccl::harness {
namespace {

// Managed memory, which all devices see. A driver may wait for all kernels when it allocates or frees, and a rank's
// kernel may wait for what another thread of the test does next. So the first of them allocates for all.
constexpr size_t kManagedBytes = 1u << 30;

Arena& ManagedMemory() {
  static auto* const memory = new Arena(kManagedBytes, [](size_t bytes) -> Result<uintptr_t> {
    constexpr unsigned kAttachGlobal = 1;
    uint64_t chunk = 0;
    const int error = GpuDriver::Get()->allocate_managed(&chunk, bytes, kAttachGlobal);
    if (error != 0) return MakeStatus(Code::kUnhandledCudaError, "cuMemAllocManaged: %d", error);
    return uintptr_t{chunk};
  });
  return *memory;
}

// Unless the run wants memory that processes can share.
bool UsesManaged() {
  const char* kind = std::getenv("AXCCL_TEST_GPU_MEMORY");
  return kind == nullptr || std::string_view(kind) != "device";
}

ncclResult_t ResultOf(int error) { return error == 0 ? ncclSuccess : ncclUnhandledCudaError; }

}  // namespace

bool OnGpu() {
  const char* device = std::getenv("AXCCL_TEST_DEVICE");
  return device != nullptr && std::string_view(device) == "cuda";
}

void* GpuAllocate(size_t bytes) {
  const GpuDriver* const driver = EnterGpu();
  if (driver == nullptr) return nullptr;
  if (UsesManaged()) {
    const Result<uintptr_t> managed = ManagedMemory().Take(bytes);
    return managed.ok() ? reinterpret_cast<void*>(managed.value()) : nullptr;
  }
  uint64_t memory = 0;
  return driver->allocate(&memory, bytes) == 0 ? reinterpret_cast<void*>(memory) : nullptr;
}

void GpuFree(void* memory) {
  const GpuDriver* const driver = EnterGpu();
  if (driver == nullptr || memory == nullptr) return;
  if (UsesManaged()) return ManagedMemory().Return(reinterpret_cast<uintptr_t>(memory));
  EXPECT_EQ(driver->free_memory(reinterpret_cast<uint64_t>(memory)), 0);
}

ncclResult_t CreateStream(axcclStream_t* stream) {
  if (!OnGpu()) return axcclStreamCreate(stream, axcclStreamNonBlocking);
  constexpr unsigned kNonBlocking = 1;
  const GpuDriver* const driver = EnterGpu();
  void* made = nullptr;
  // Before the first work.
  static const bool reserved = driver != nullptr && UsesManaged() && ManagedMemory().Reserve(kManagedBytes).ok();
  (void)reserved;  // if it fails, so does the first allocation
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
