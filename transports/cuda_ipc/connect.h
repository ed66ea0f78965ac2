// The blocks through which the ranks of a communicator on GPUs communicate.
//
// Each rank has one in the memory of its device, if every rank can access those of all others on its machine and data
// written that way arrives. Ranks of several machines also have one in host memory, for what travels between machines;
// of the ranks of other machines, there are mirrors of these. If the devices do not do, all is in host memory.
//
// All ranks must finish each step before any begins the next: Allocate, Map, Test, and the blocks are on the devices.
// If Map or Test fails on any rank: Unmap on all, then AllocateAsFile, Map and Test; if that fails, too, Unmap. Then
// MapHost, if the ranks are on several machines or there are no blocks on the devices. At the end Unmap on all ranks,
// then the destructor. Used by one thread at a time.
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
  // Allocates another one that processes share as a file, if it can: in containers that have process numbers of their
  // own, legacy handles can be made and not opened. The former one is freed when Map begins.
  Status AllocateAsFile();
  const BlockAddress& address() const { return address_; }

  // How this process reaches the ranks otherwise.
  using Hosts = std::vector<const transport::Reach*>;
  // Makes the blocks of all ranks of this machine accessible to kernels here and leaves a mark in each. The error says
  // which block cannot be accessed, and why.
  Status Map(const std::vector<BlockAddress>& addresses, const Hosts& hosts);
  // Checks that reads through the mappings return what peers have written, and that their marks have arrived.
  Status Test();
  // Pins the blocks in `memory` of the host, zeroed and in whole pages. Frees the one on the device, if that is not
  // mapped.
  Status MapHost(const std::vector<std::byte*>& memory, const Hosts& hosts);
  // Releases the peers' blocks, which no kernel may use any more. This rank's block on the device stays for peers.
  void Unmap();

  uint64_t bytes() const { return bytes_; }
  // Whether there are blocks in host memory, and on the devices.
  bool on_host() const { return !in_host_.empty(); }
  bool on_devices() const { return !on_device_.empty(); }
  // How kernels here reach a rank's block: on its device if it is there, otherwise in host memory.
  Reach& of(size_t rank) const {
    return on_devices() && on_device_[rank] != nullptr ? *on_device_[rank] : InHost(rank);
  }
  // The ordinal of the device of a rank of this process.
  int DeviceOf(size_t rank) const { return addresses_[rank].device; }
  // The one in host memory.
  Reach& InHost(size_t rank) const { return *in_host_[rank]; }

 private:
  Status Present(Result<Exported>* exported);
  void Release(Memory* memory);
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
  Memory own_, former_;
  shm::OfferedFile file_;  // of this rank's block, if it is shared as a file
  std::vector<BlockAddress> addresses_;
  // By rank; both are empty until they are mapped. Ranks of other machines have none on devices.
  std::vector<std::unique_ptr<Reach>> on_device_, in_host_;
};

}  // namespace axccl::cuda_ipc
