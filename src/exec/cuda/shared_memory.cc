#include "src/exec/cuda/shared_memory.h"

#include <map>
#include <mutex>

#include "src/base/arena.h"
#include "src/base/log.h"
#include "src/base/sizes.h"
#include "src/device/cuda/driver.h"
#include "transports/shm/heap.h"

namespace axccl::exec {

using device::cuda::Check;
using device::cuda::Device;
using device::cuda::Driver;
using device::cuda::Scope;

namespace {

constexpr size_t kRankShared = 64u << 10;

Result<uintptr_t> PinOfHeap(size_t bytes) {
  AXCCL_ASSIGN_OR_RETURN(shm::Heap * heap, shm::Heap::Get());
  AXCCL_ASSIGN_OR_RETURN(void* const chunk, heap->Allocate(bytes, kPage));
  const auto pin = [&]() -> Status {
    const Driver& driver = Driver::Loaded();
    AXCCL_RETURN_IF_ERROR(Check(device::cuda::Pin(chunk, bytes), "cuMemHostRegister"));
    CUdeviceptr on_device = 0;
    const CUresult result = driver.cuMemHostGetDevicePointer(&on_device, chunk, 0);
    if (result == CUDA_SUCCESS && on_device == reinterpret_cast<CUdeviceptr>(chunk)) return Status();
    driver.cuMemHostUnregister(chunk);
    AXCCL_RETURN_IF_ERROR(Check(result, "cuMemHostGetDevicePointer"));
    return MakeStatus(Code::kUnhandledCudaError, "the device sees registered memory at other addresses");
  };
  const Status pinned = pin();
  if (pinned.ok()) return reinterpret_cast<uintptr_t>(chunk);
  (void)heap->Free(chunk).ok();
  return pinned;
}

// Memory of the heap, which devices see at the same addresses, and which stays pinned until the device is reset. To be
// used with the device's context.
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
  memory_ = reinterpret_cast<std::byte*>(taken);
  on_device_ = CUdeviceptr{taken};
  offset_ = static_cast<uint64_t>(memory_ - heap->base());
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
