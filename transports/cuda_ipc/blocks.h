// The blocks of memory through which the ranks of a communicator on GPUs meet, one a rank: in the memory of the rank's
// device, where every rank reaches the blocks of all others and the data that go that way arrive; else in memory of the
// host.
//
// The order of things, with all ranks in each step before the next: Allocate, Map, Test, and the blocks are on the
// devices. If Map or Test fails on any rank: Unmap on all, and MapHost. At the end Unmap, and when all have done that
// the destructor. Used by one thread at a time.
#pragma once

#include <cstddef>
#include <vector>

#include "src/base/status.h"
#include "src/device/cuda/device.h"
#include "transports/cuda_ipc/address.h"
#include "transports/cuda_ipc/handle.h"
#include "transports/cuda_ipc/memory.h"

namespace axccl::cuda_ipc {

// Bytes of a block that Map and Test use, for a communicator of `ranks`.
uint64_t TestBytes(size_t ranks);

class Blocks {
 public:
  // `test_at`: where in a block those bytes are, whatever is in them.
  Blocks(const device::cuda::Device& device, int rank, uint64_t bytes, uint64_t test_at)
      : device_(device), rank_(rank), bytes_(bytes), test_at_(test_at) {}
  ~Blocks();
  Blocks(const Blocks&) = delete;
  Blocks& operator=(const Blocks&) = delete;

  // The own block, zeroed but for what peers are to find there.
  Status Allocate();
  const BlockAddress& address() const { return address_; }

  // Makes the blocks of all ranks accessible to kernels here and leaves a mark in each. `here`: which are of this
  // process. The error says which one is out of reach, and why.
  Status Map(const std::vector<BlockAddress>& addresses, const std::vector<bool>& here);
  // Whether reads through the mappings give what peers have written, and their marks have come.
  Status Test();
  // Puts all blocks into `memory` of the host instead, zeroed and of whole pages; frees the one on the device.
  Status MapHost(const std::vector<std::byte*>& memory);
  // Lets go of the peers' blocks; no kernel uses any block any more. The own one on the device stays for peers.
  void Unmap();

  uint64_t bytes() const { return bytes_; }
  bool on_host() const { return !pinned_.empty(); }
  // As kernels here see that of a rank.
  CUdeviceptr of(size_t rank) const { return blocks_[rank]; }

 private:
  Status AllocateExported();
  Result<CUdeviceptr> Open(size_t rank, const BlockAddress& address, bool here);
  Status Mark(size_t rank) const;
  Status CheckRead(size_t rank) const;
  Status CheckMarks() const;
  Status Fetch(CUdeviceptr from, std::vector<uint64_t>* words) const;
  CUdeviceptr MarkIn(CUdeviceptr block, size_t rank) const;

  const device::cuda::Device& device_;
  const int rank_;
  const uint64_t bytes_, test_at_;
  BlockAddress address_;
  Status not_exported_;
  Memory own_;
  service::Fd file_;  // of the own block, where it is handed over so
  std::vector<BlockAddress> addresses_;
  std::vector<CUdeviceptr> blocks_;  // by rank
  std::vector<Imported> opened_;     // of other processes
  std::vector<std::byte*> pinned_;   // of the host
};

}  // namespace axccl::cuda_ipc
