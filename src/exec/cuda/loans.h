// Memory that launches borrow for what they send to the device.
//
// Used by one thread at a time.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
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

  // Lends memory until it is returned and everything on `stream` at that time is done. `captured`: the stream is; then
  // until the graph and all that was made of it is gone.
  Result<Lent> Lend(size_t bytes);
  Status Return(const Lent& lent, CUstream stream, bool captured);

 private:
  struct Loan {
    Lent what;
    size_t bytes = 0;
    bool lent = true;                                       // not returned
    CUevent done = nullptr;                                 // of the last use outside of graphs; null: there was none
    std::shared_ptr<std::atomic<bool>> in_graph = nullptr;  // the last use; null: it is outside of graphs
  };
  static bool IsFree(const Loan& loan);

  const device::cuda::Device* const device_;
  std::vector<Loan> loans_;
};

}  // namespace axccl::exec
