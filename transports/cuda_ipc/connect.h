// The blocks through which the ranks of a communicator on GPUs communicate, one for each rank: in the memory of the
// rank's device, if every rank can access the blocks of all others and data written that way arrives; otherwise in host
// memory.
//
// All ranks must finish each step before any begins the next: Allocate, Map, Test, and the blocks are on the devices.
// If Map or Test fails on any rank: Unmap on all, and MapHost. At the end Unmap on all ranks, then the destructor. Used
// by one thread at a time.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "src/base/status.h"
#include "src/device/cuda/device.h"
#include "transports/cuda_ipc/address.h"
#include "transports/cuda_ipc/memory.h"
#include "transports/cuda_ipc/reach.h"

namespace axccl::cuda_ipc {

// The bytes of a block that Map and Test use, for a communicator of `ranks`.
uint64_t TestBytes(size_t ranks);

class Blocks {
 public:
  // `test_at`: the offset of these bytes in a block, whose content does not matter.
  Blocks(const device::cuda::Device& device, int rank, uint64_t bytes, uint64_t test_at)
      : device_(device), rank_(rank), bytes_(bytes), test_at_(test_at) {}
  ~Blocks();
  Blocks(const Blocks&) = delete;
  Blocks& operator=(const Blocks&) = delete;

  // Allocates this rank's block, zeroed except for the data that peers look for.
  Status Allocate();
  const BlockAddress& address() const { return address_; }

  // How this process reaches the ranks otherwise.
  using Hosts = std::vector<const transport::Reach*>;
  // Makes the blocks of all ranks accessible to kernels here and leaves a mark in each. The error says which block
  // cannot be accessed, and why.
  Status Map(const std::vector<BlockAddress>& addresses, const Hosts& hosts);
  // Checks that reads through the mappings return what peers have written, and that their marks have arrived.
  Status Test();
  // Moves all blocks to `memory` of the host, zeroed and in whole pages; frees the one on the device.
  Status MapHost(const std::vector<std::byte*>& memory, const Hosts& hosts);
  // Releases the peers' blocks, which no kernel may use any more. This rank's block on the device stays for peers.
  void Unmap();

  uint64_t bytes() const { return bytes_; }
  bool on_host() const { return on_host_; }
  // How kernels here reach a rank's block.
  Reach& of(size_t rank) const { return *reaches_[rank]; }

 private:
  Status AllocateExported();
  Status Open(size_t rank, const transport::Reach& host);
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
  shm::OfferedFile file_;  // of this rank's block, if it is shared as a file
  std::vector<BlockAddress> addresses_;
  std::vector<std::unique_ptr<Reach>> reaches_;  // by rank
  bool on_host_ = false;
};

}  // namespace axccl::cuda_ipc
