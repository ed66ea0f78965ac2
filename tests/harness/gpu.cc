#include "tests/harness/gpu.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <mutex>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "src/base/free_list.h"
#include "tests/harness/gpu_driver.h"

namespace axccl::harness {
namespace {

// Managed memory, which all devices see. A driver may wait for all kernels when it allocates or frees, and a rank's
// kernel may wait for what another thread of the test does next. So tests take it from a chunk that the first of them
// has allocated.
class ManagedPool {
 public:
  static ManagedPool& Process() {
    static auto* const pool = new ManagedPool;
    return *pool;
  }
  void Prepare(const GpuDriver& driver) {
    const std::lock_guard lock(mutex_);
    if (chunks_.empty()) (void)Grow(driver, 0);
  }
  void* Take(const GpuDriver& driver, size_t bytes) {
    const std::lock_guard lock(mutex_);
    for (bool grown = false;; grown = true) {
      for (FreeList& chunk : chunks_) {
        FreeList::Range range = chunk.Take(std::max<size_t>(bytes, 1), kAlignment);
        if (range.empty()) continue;
        const uint64_t memory = range.key();
        taken_.emplace(memory, Taken{&chunk, std::move(range)});
        return reinterpret_cast<void*>(memory);
      }
      if (grown || !Grow(driver, bytes)) return nullptr;
    }
  }
  // False if it is not from here.
  bool Give(void* memory) {
    const std::lock_guard lock(mutex_);
    const auto taken = taken_.find(reinterpret_cast<uint64_t>(memory));
    if (taken == taken_.end()) return false;
    taken->second.chunk->Give(std::move(taken->second.range));
    taken_.erase(taken);
    return true;
  }

 private:
  static constexpr size_t kChunkBytes = 1u << 30, kAlignment = 512;

  bool Grow(const GpuDriver& driver, size_t bytes) {
    constexpr unsigned kAttachGlobal = 1;
    uint64_t memory = 0;
    const size_t chunk = std::max(kChunkBytes, bytes);
    if (driver.allocate_managed(&memory, chunk, kAttachGlobal) != 0) return false;
    chunks_.emplace_back(memory, memory + chunk);
    return true;
  }

  struct Taken {
    FreeList* chunk;
    FreeList::Range range;
  };
  std::mutex mutex_;
  std::deque<FreeList> chunks_;                // of addresses
  std::unordered_map<uint64_t, Taken> taken_;  // by address
};

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
  if (UsesManaged()) return ManagedPool::Process().Take(*driver, bytes);
  uint64_t memory = 0;
  return driver->allocate(&memory, bytes) == 0 ? reinterpret_cast<void*>(memory) : nullptr;
}

void GpuFree(void* memory) {
  const GpuDriver* const driver = EnterGpu();
  if (driver == nullptr || ManagedPool::Process().Give(memory)) return;
  EXPECT_EQ(driver->free_memory(reinterpret_cast<uint64_t>(memory)), 0);
}

ncclResult_t CreateStream(axcclStream_t* stream) {
  if (!OnGpu()) return axcclStreamCreate(stream, axcclStreamNonBlocking);
  constexpr unsigned kNonBlocking = 1;
  const GpuDriver* const driver = EnterGpu();
  void* made = nullptr;
  // Before the first work.
  if (driver != nullptr && UsesManaged()) ManagedPool::Process().Prepare(*driver);
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
