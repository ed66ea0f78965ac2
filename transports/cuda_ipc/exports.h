// Which allocations of its device a rank lets peers use, told through memory of the host that all ranks see.
//
// Every rank has a table, which it alone writes: the allocations that it has exported, by number, and which of the
// peers' allocations it has taken in. Whoever exports asks nobody: an allocation is of use once the peers have said
// that they have it. What peers write is compared, and handed to the driver, but never used as an index or address (but
// for the base of an allocation of the same process).
//
// Ordering: an entry is written before its generation (release), which is looked at before and after it is read; a
// change is counted after that. An answer is stored (release) after the peer can use the allocation.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

#include "src/base/service_fd.h"
#include "src/base/sizes.h"
#include "src/base/status.h"
#include "src/device/cuda/device.h"
#include "transports/cuda_ipc/address.h"
#include "transports/cuda_ipc/handle.h"

namespace axccl::cuda_ipc {

struct ExportTable {
  static constexpr uint32_t kNumbers = 256;  // 0 is no allocation, but the address space itself

  struct Entry {
    std::atomic<uint64_t> generation;  // 0: none
    uint64_t base;                     // in its process
    Handle handle;
  };
  alignas(kCacheLine) std::atomic<uint64_t> changes;
  Entry entries[kNumbers];

  // What this rank says of allocation `number` of `rank`: 0 before it has looked, else twice its generation, and 1 if
  // it can use it.
  std::atomic<uint64_t>* Answer(size_t rank, uint32_t number) {
    return reinterpret_cast<std::atomic<uint64_t>*>(this + 1) + rank * kNumbers + number;
  }
  static size_t Bytes(size_t ranks) { return sizeof(ExportTable) + ranks * kNumbers * sizeof(uint64_t); }
};

// A rank on its process's side. Thread-safe.
class Exports {
 public:
  // `tables` of all ranks, zeroed, as mapped here.
  Exports(const device::cuda::Device& device, size_t rank, std::vector<ExportTable*> tables);
  ~Exports();
  Exports(const Exports&) = delete;
  Exports& operator=(const Exports&) = delete;

  struct Place {
    uint32_t number = 0;  // 0: of no allocation that can be shared
    uint64_t offset = 0;
  };
  // Where [pointer, pointer + bytes) is. An allocation not seen before is exported; of one that was freed meanwhile the
  // peers are told. `kept`: the place is used again and again, as by a graph.
  Place Find(CUdeviceptr pointer, uint64_t bytes, bool kept = false);
  // Whether a peer can use the allocation.
  bool Has(size_t rank, uint32_t number) const;
  // The allocation that `pointer` is in will not be used soon: peers let go of it at their next look, and when it is
  // used all the same, it is exported anew. Nothing that uses its number may be under way; one that is kept stays.
  void LetGo(CUdeviceptr pointer);
  // Likewise, of all ranks of the process, what begins at `base` and is freed next, kept or not.
  static void Freed(CUdeviceptr base);

 private:
  struct Known {
    uint64_t id = 0;
    uint64_t bytes = 0;
    uint32_t number = 0;
    bool kept = false;
    service::Fd file;  // for peers to take
  };
  using KnownMap = std::map<CUdeviceptr, Known>;  // by base

  ExportTable& own() const { return *tables_[rank_]; }
  void Add(const Range& range);
  uint32_t FreeNumber() const;
  bool AllAnswered(uint32_t number) const;
  void Retire(KnownMap::iterator known);
  void LookAtNext();

  const device::cuda::Device& device_;
  const size_t rank_;
  const std::vector<ExportTable*> tables_;
  std::mutex mutex_;
  KnownMap known_;
  CUdeviceptr next_ = 0;  // to be looked at, whether it was freed
  uint64_t generations_ = 0;
  bool explained_ = false;
};

}  // namespace axccl::cuda_ipc
