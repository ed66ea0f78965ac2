#include "src/exec/cuda/shared_memory.h"

#include <map>
#include <mutex>

#include "src/base/arena.h"
#include "src/base/log.h"
#include "src/base/sizes.h"
#include "src/device/cuda/driver.h"
#include "transports/shm/heap.h"

namespace axccl::exec {

using device::cuda::Device;
using device::cuda::Driver;
using device::cuda::Scope;

namespace {

constexpr size_t kRankShared = 64u << 10;

Result<uintptr_t> PinOfHeap(size_t bytes) {
  AXCCL_ASSIGN_OR_RETURN(shm::Heap * heap, shm::Heap::Get());
  AXCCL_ASSIGN_OR_RETURN(void* const chunk, heap->Allocate(bytes, kPage));
  const Status pinned = device::cuda::Check(device::cuda::Pin(chunk, bytes), "cuMemHostRegister");
  if (pinned.ok()) return reinterpret_cast<uintptr_t>(chunk);
  (void)heap->Free(chunk).ok();
  return pinned;
}

// Memory of the heap that stays pinned until the device is reset. To be used with the device's context.
Arena& PinnedHeap(const Device& device) {
  static auto* const mutex = new std::mutex;
  static auto* const of_devices = new std::map<const Device*, Arena>;
  std::lock_guard lock(*mutex);
  return of_devices->try_emplace(&device, kRankShared, PinOfHeap).first->second;
}

}  // namespace

bool SharedMemory::Reserve(const Device& device) {
  const Scope scope(device);
  return PinnedHeap(device).Reserve(kRankShared).ok();
}

void SharedMemory::Unreserve(const Device& device) { PinnedHeap(device).Unreserve(kRankShared); }

Result<std::unique_ptr<SharedMemory>> SharedMemory::Take(const Device& device, size_t bytes) {
  std::unique_ptr<SharedMemory> shared(new SharedMemory(&device));
  const Status status = shared->TakeFromHeap(device, bytes);
  if (status.ok()) return shared;
  AXCCL_INFO(kInit, "other processes do not see which chunks of a pipeline have come: %.*s",
             static_cast<int>(status.message().size()), status.message().data());
  AXCCL_ASSIGN_OR_RETURN(void* const memory, device.TakeHost(bytes));
  shared->memory_ = static_cast<std::byte*>(memory);
  shared->on_device_ = reinterpret_cast<CUdeviceptr>(memory);
  return shared;
}

Status SharedMemory::TakeFromHeap(const Device& device, size_t bytes) {
  const Scope scope(device);
  AXCCL_ASSIGN_OR_RETURN(shm::Heap * heap, shm::Heap::Get());
  AXCCL_ASSIGN_OR_RETURN(const uintptr_t taken, PinnedHeap(device).Take(bytes));
  auto* const memory = reinterpret_cast<std::byte*>(taken);
  const Status mapped = device::cuda::Check(Driver::Loaded().cuMemHostGetDevicePointer(&on_device_, memory, 0),
                                            "cuMemHostGetDevicePointer");
  if (!mapped.ok()) {
    PinnedHeap(device).Return(taken);
    return mapped;
  }
  memory_ = memory;
  offset_ = static_cast<uint64_t>(memory - heap->base());
  return Status();
}

SharedMemory::~SharedMemory() {
  if (memory_ == nullptr) return;
  if (offset_ == 0) {
    device_->ReturnHost(memory_);
  } else {
    PinnedHeap(*device_).Return(reinterpret_cast<uintptr_t>(memory_));
  }
}

}  // namespace axccl::exec
