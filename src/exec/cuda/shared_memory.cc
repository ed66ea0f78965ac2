#include "src/exec/cuda/shared_memory.h"

#include <algorithm>
#include <bit>
#include <map>
#include <mutex>
#include <vector>

#include "src/base/log.h"
#include "src/base/sizes.h"
#include "transports/cuda_ipc/pinned.h"
#include "transports/shm/heap.h"

namespace axccl::exec {

using device::cuda::Device;

namespace {

// Memory of the heap that is pinned and stays so.
struct Pool {
  std::mutex mutex;
  std::map<size_t, std::vector<std::byte*>> free;  // by size, powers of two
};
Pool& PoolOfProcess() {
  static auto* const pool = new Pool;
  return *pool;
}

Result<std::byte*> Grow(const Device& device, shm::Heap* heap, size_t bytes) {
  AXCCL_ASSIGN_OR_RETURN(void* const memory, heap->Allocate(bytes, kPage));
  const Status pinned = cuda_ipc::Pin(device, static_cast<std::byte*>(memory), bytes).status();
  if (pinned.ok()) return static_cast<std::byte*>(memory);
  (void)heap->Free(memory).ok();
  return pinned;
}

}  // namespace

Result<std::unique_ptr<SharedMemory>> SharedMemory::Take(const Device& device, size_t bytes) {
  std::unique_ptr<SharedMemory> shared(new SharedMemory(device));
  const Status status = shared->TakeFromHeap(std::bit_ceil(std::max<size_t>(bytes, kPage)));
  if (status.ok()) return shared;
  AXCCL_INFO(kInit, "other processes do not see which chunks of a pipeline have come: %.*s",
             static_cast<int>(status.message().size()), status.message().data());
  AXCCL_ASSIGN_OR_RETURN(void* const memory, device.TakeHost(bytes));
  shared->memory_ = static_cast<std::byte*>(memory);
  shared->on_device_ = reinterpret_cast<CUdeviceptr>(memory);
  return shared;
}

Status SharedMemory::TakeFromHeap(size_t bytes) {
  AXCCL_ASSIGN_OR_RETURN(shm::Heap * heap, shm::Heap::Get());
  Pool& pool = PoolOfProcess();
  const std::lock_guard lock(pool.mutex);
  std::vector<std::byte*>& free = pool.free[bytes];
  if (free.empty()) {
    AXCCL_ASSIGN_OR_RETURN(std::byte* const memory, Grow(device_, heap, bytes));
    free.push_back(memory);
  }
  std::byte* const memory = free.back();
  AXCCL_ASSIGN_OR_RETURN(on_device_, cuda_ipc::Pin(device_, memory, bytes));
  free.pop_back();
  memory_ = memory;
  bytes_ = bytes;
  offset_ = static_cast<uint64_t>(memory - heap->base());
  return Status();
}

SharedMemory::~SharedMemory() {
  if (memory_ == nullptr) return;
  if (offset_ == 0) {
    Device::ReturnHost(memory_);
    return;
  }
  cuda_ipc::Unpin(device_, memory_);
  Pool& pool = PoolOfProcess();
  const std::lock_guard lock(pool.mutex);
  pool.free[bytes_].push_back(memory_);
}

}  // namespace axccl::exec
