#include "tests/harness/gpu.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "src/base/arena.h"
#include "tests/harness/gpu_driver.h"

namespace axccl::harness {
namespace {

bool Uses(const char* memory) {
  const char* kind = std::getenv("AXCCL_TEST_GPU_MEMORY");
  return kind != nullptr && std::string_view(kind) == memory;
}

// Memory that all devices and the host see. A driver may wait for all kernels when it allocates or frees, and a rank's
// kernel may wait for what another thread of the test does next. So the first of them allocates for all.
constexpr size_t kSeenByAllBytes = 1u << 30;

Arena& MemorySeenByAll() {
  static auto* const memory = new Arena(kSeenByAllBytes, [](size_t bytes) -> Result<uintptr_t> {
    constexpr unsigned kAttachGlobal = 1, kPortableMapped = 3;
    const GpuDriver* const driver = GpuDriver::Get();
    uint64_t chunk = 0;
    void* pinned = nullptr;
    const bool is_pinned = Uses("pinned");
    const int error = is_pinned ? driver->allocate_host(&pinned, bytes, kPortableMapped)
                                : driver->allocate_managed(&chunk, bytes, kAttachGlobal);
    if (error != 0) return MakeStatus(Code::kUnhandledCudaError, "memory that the host and all GPUs see: %d", error);
    return is_pinned ? reinterpret_cast<uintptr_t>(pinned) : uintptr_t{chunk};
  });
  return *memory;
}

// Unless the run wants memory that processes can share.
bool HostSees() { return !Uses("device"); }

ncclResult_t ResultOf(int error) { return error == 0 ? ncclSuccess : ncclUnhandledCudaError; }

}  // namespace

bool OnGpu() {
  const char* device = std::getenv("AXCCL_TEST_DEVICE");
  return device != nullptr && std::string_view(device) == "cuda";
}

void* GpuAllocate(size_t bytes) {
  const GpuDriver* const driver = EnterGpu();
  if (driver == nullptr) return nullptr;
  if (HostSees()) {
    const Result<uintptr_t> memory = MemorySeenByAll().Take(bytes);
    return memory.ok() ? reinterpret_cast<void*>(memory.value()) : nullptr;
  }
  uint64_t memory = 0;
  return driver->allocate(&memory, bytes) == 0 ? reinterpret_cast<void*>(memory) : nullptr;
}

void GpuFree(void* memory) {
  const GpuDriver* const driver = EnterGpu();
  if (driver == nullptr || memory == nullptr) return;
  if (HostSees()) return MemorySeenByAll().Return(reinterpret_cast<uintptr_t>(memory));
  EXPECT_EQ(driver->free_memory(reinterpret_cast<uint64_t>(memory)), 0);
}

ncclResult_t CreateStream(axcclStream_t* stream) {
  if (!OnGpu()) return axcclStreamCreate(stream, axcclStreamNonBlocking);
  constexpr unsigned kNonBlocking = 1;
  const GpuDriver* const driver = EnterGpu();
  void* made = nullptr;
  // Before the first work.
  static const bool reserved = driver != nullptr && HostSees() && MemorySeenByAll().Reserve(kSeenByAllBytes).ok();
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
