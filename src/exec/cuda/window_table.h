// The windows of a rank, as kernels find them by an address in the rank's own buffer (ncclFindWindow of NVIDIA's
// nccl_device.h, inlined into applications): a list of pieces of 32 entries (address, size, handle), which kernels
// search to its end; an entry with a zero is free. It is in pinned memory, so that changes take no call of the driver.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "src/base/status.h"
#include "src/device/cuda/device.h"

namespace axccl::exec {

class CudaWindowTable : public std::enable_shared_from_this<CudaWindowTable> {
 public:
  static Result<std::shared_ptr<CudaWindowTable>> Create(const device::cuda::Device& device);
  // No kernel may search it any more.
  ~CudaWindowTable();

  // The first piece, where kernels begin.
  uint64_t address() const { return reinterpret_cast<uint64_t>(pieces_.front()); }
  struct Entry {
    uint64_t base, bytes, handle;
  };
  // An entry that no kernel finds before it is filled, and after the result has gone, which keeps the table.
  Result<std::shared_ptr<Entry>> Take();
  static void Fill(Entry* entry, uint64_t base, uint64_t bytes, uint64_t handle);

 private:
  struct Piece {
    Entry entries[32];
    Piece* next;
  };
  static_assert(sizeof(Piece) == 776);

  explicit CudaWindowTable(const device::cuda::Device& device) : device_(device) {}
  Status AddPiece();
  Entry* FindFree();

  const device::cuda::Device& device_;
  std::mutex mutex_;
  std::vector<Piece*> pieces_;
};

}  // namespace axccl::exec
