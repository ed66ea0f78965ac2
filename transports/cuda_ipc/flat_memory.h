// Addresses, and objects of virtual memory management that are mapped there for kernels of one device. Used by one
// thread at a time.
#pragma once

#include <cstdint>
#include <vector>

#include "src/base/status.h"
#include "src/device/cuda/device.h"

namespace axccl::cuda_ipc {

class FlatMemory {
 public:
  explicit FlatMemory(const device::cuda::Device& device) : device_(device) {}
  ~FlatMemory() { Unmap(); }
  FlatMemory(const FlatMemory&) = delete;
  FlatMemory& operator=(const FlatMemory&) = delete;

  Status Reserve(uint64_t bytes);
  // Maps an object of so many bytes at address() + `at`, where it must fit in, and releases this handle of it.
  Status Map(uint64_t at, CUmemGenericAllocationHandle object, uint64_t bytes);
  // No kernel may use it any more.
  void Unmap();

  CUdeviceptr address() const { return address_; }
  // Whether there are so many bytes behind `at`.
  bool Has(uint64_t at, uint64_t bytes) const { return at <= bytes_ && bytes <= bytes_ - at; }

 private:
  struct Mapped {
    CUdeviceptr address;
    uint64_t bytes;
  };
  const device::cuda::Device& device_;
  CUdeviceptr address_ = 0;
  uint64_t bytes_ = 0;
  std::vector<Mapped> mapped_;
};

}  // namespace axccl::cuda_ipc
