// Memory that launches borrow for what they send to the device.
//
// Used by one thread at a time.
#pragma once

#include <cstddef>
#include <vector>

#include "src/base/status.h"
#include "src/device/cuda/device.h"

namespace axccl::exec {

// Memory of the host and the same amount on the device: kernels read there what the host has written and enqueued a
// copy of.
struct Lent {
  std::byte* memory = nullptr;
  CUdeviceptr on_device = 0;

  Lent At(size_t offset) const { return {memory + offset, on_device + offset}; }
};

class CudaLoans {
 public:
  explicit CudaLoans(const device::cuda::Device* device) : device_(device) {}
  ~CudaLoans();
  CudaLoans(const CudaLoans&) = delete;
  CudaLoans& operator=(const CudaLoans&) = delete;

  // Lends memory until it is returned and everything on `stream` at that time is done. `captured`: as long as this
  // object lives.
  Result<Lent> Lend(size_t bytes, bool captured);
  Status Return(const Lent& lent, CUstream stream);

 private:
  struct Loan {
    Lent what;
    size_t bytes;
    CUevent done;      // null: lent forever
    bool lent = true;  // not returned
  };

  const device::cuda::Device* const device_;
  std::vector<Loan> loans_;
};

}  // namespace axccl::exec
