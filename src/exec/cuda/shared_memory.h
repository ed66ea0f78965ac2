// Memory of the process's heap that devices see: what they store there, the ranks of the machine read. Where the driver
// cannot pin shared memory, it is memory of the process alone.
//
// It comes from an arena (base/arena.h) and goes back to it, because the driver may wait for kernels when it
// pins or unpins memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "src/base/status.h"
#include "src/device/cuda/device.h"

namespace axccl::exec {

class SharedMemory {
 public:
  // Keeps as much as the pipelines of one more rank usually need, until Unreserve. False: it does not, and Take may ask
  // the driver.
  static bool Reserve(const device::cuda::Device& device);
  static void Unreserve(const device::cuda::Device& device);
  // The memory has any content. It must go back before the device's context does.
  static Result<std::unique_ptr<SharedMemory>> Take(const device::cuda::Device& device, size_t bytes);
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;

  std::byte* memory() const { return memory_; }
  // The offset in the heap of something in this memory; 0: other processes do not see it.
  uint64_t OffsetOf(const void* part) const {
    return offset_ == 0 ? 0 : offset_ + static_cast<uint64_t>(static_cast<const std::byte*>(part) - memory_);
  }
  // The address for kernels and streams of the device.
  template <class T>
  T* OnDevice(T* part) const {
    return reinterpret_cast<T*>(on_device_ + static_cast<uint64_t>(reinterpret_cast<std::byte*>(part) - memory_));
  }

 private:
  explicit SharedMemory(const device::cuda::Device* device) : device_(device) {}
  Status TakeFromHeap(const device::cuda::Device& device, size_t bytes);

  const device::cuda::Device* const device_;
  uint64_t offset_ = 0;
  std::byte* memory_ = nullptr;
  CUdeviceptr on_device_ = 0;
};

}  // namespace axccl::exec
