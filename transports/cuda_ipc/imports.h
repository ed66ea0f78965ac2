// The allocations of peers that a rank uses, and the tables in device memory (kernels::cuda::Member::maps) in which
// kernels find them by number. Used by one thread at a time.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "src/base/status.h"
#include "src/device/cuda/device.h"
#include "transports/cuda_ipc/exports.h"

namespace axccl::cuda_ipc {

class Imports {
 public:
  struct Peer {
    ExportTable* table = nullptr;  // as mapped in this process
    uint32_t pid = 0;
    bool here = false;                             // in this process: its addresses need no translation
    const std::atomic<uint32_t>* error = nullptr;  // not 0 once the rank has failed
  };
  // `peers`: all ranks, including this one.
  static Result<std::unique_ptr<Imports>> Create(const device::cuda::Device& device, size_t rank,
                                                 std::vector<Peer> peers);
  // No kernel may use any of it any more.
  ~Imports();

  // Imports what peers have exported since, and releases what they have freed, unless they have failed. Waits for no
  // kernel. If an import fails, the published answer says so.
  Status Look();
  // Puts an export of this rank into its own map, for kernels that use the place that they announce.
  Status MapOwn(uint32_t number, CUdeviceptr base) { return PutAddress(rank_, number, base); }
  // One word for each number of the rank: the address of the allocation in this process.
  CUdeviceptr maps_of(size_t rank) const { return maps_ + rank * kMapBytes; }

 private:
  static constexpr uint64_t kMapBytes = ExportTable::kNumbers * sizeof(uint64_t);

  struct Taken {
    uint64_t generation = 0;
    Imported imported;
    bool mapped = false;
    // The generation that cannot be opened yet, since when, when to try again, and whether the answer says so.
    uint64_t refused = 0;
    std::chrono::steady_clock::time_point since{}, again{};
    bool told = false;
  };
  struct Seen {
    uint64_t changes = 0;
    std::vector<Taken> taken;  // by number
  };

  Imports(const device::cuda::Device& device, size_t rank, std::vector<Peer> peers)
      : device_(device), rank_(rank), peers_(std::move(peers)), seen_(peers_.size()) {}
  Status LookAt(size_t rank);
  Status Take(size_t rank, uint32_t number, uint64_t generation);
  void Tell(size_t rank, uint32_t number, uint64_t generation, const Status& status);
  Status PutAddress(size_t rank, uint32_t number, CUdeviceptr address) const;
  Result<CUdeviceptr> Map(const Peer& peer, uint64_t base, const Handle& handle, Taken* taken) const;

  const device::cuda::Device& device_;
  const size_t rank_;
  const std::vector<Peer> peers_;
  std::vector<Seen> seen_;
  CUdeviceptr maps_ = 0;
  bool explained_ = false;
};

}  // namespace axccl::cuda_ipc
