// The allocations of its device that a rank shares with peers, published in host memory that all ranks see.
//
// Every rank has a table that only it writes. It holds the allocations that the rank has exported, by number, and the
// peers' allocations that it has imported. Exporting does not wait: an allocation is usable once the peers have
// published that they have it. What peers write is compared and passed to the driver, but never used as an index or
// address (except for the base of an allocation of the same process).
//
// Ordering: an entry is written before its generation (release); a reader compares the generation before and after it
// reads the entry. The count of changes is increased after that. An answer is stored (release) after the peer can use
// the allocation.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "src/base/service_fd.h"
#include "src/base/sizes.h"
#include "src/base/status.h"
#include "src/device/cuda/device.h"
#include "transports/cuda_ipc/address.h"
#include "transports/cuda_ipc/handle.h"

namespace axccl::cuda_ipc {

struct ExportTable {
  static constexpr uint32_t kNumbers = 256;  // 0 is not an allocation, but the address space itself

  struct Entry {
    std::atomic<uint64_t> generation;  // 0: empty
    uint64_t base;                     // in the exporting process
    Handle handle;
  };
  alignas(kCacheLine) std::atomic<uint64_t> changes;
  std::atomic<uint32_t> declines;  // the rank will not export what all ranks would have to
  Entry entries[kNumbers];

  // This rank's answer for allocation `number` of `rank`: 0 before it has looked; otherwise twice its generation, plus
  // 1 if this rank can use it.
  std::atomic<uint64_t>* Answer(size_t rank, uint32_t number) {
    return reinterpret_cast<std::atomic<uint64_t>*>(this + 1) + rank * kNumbers + number;
  }
  static size_t Bytes(size_t ranks) { return sizeof(ExportTable) + ranks * kNumbers * sizeof(uint64_t); }
};

// A rank's exports, in its own process. Thread-safe.
class Exports {
 public:
  // `tables` of all ranks, zeroed, as mapped in this process; null: the rank is out of reach.
  Exports(const device::cuda::Device& device, size_t rank, std::vector<ExportTable*> tables);
  ~Exports();
  Exports(const Exports&) = delete;
  Exports& operator=(const Exports&) = delete;

  struct Place {
    uint32_t number = 0;  // 0: in no allocation that can be shared
    uint64_t offset = 0;
    uint64_t generation = 0;  // of the number
  };
  // Finds the allocations that contain [pointer, pointer + bytes), and exports them as one if they are new. If earlier
  // ones there were freed, publishes that to the peers. `kept`: the place will be used repeatedly, as by a graph.
  Place Find(CUdeviceptr pointer, uint64_t bytes, bool kept = false);
  // Whether Find may find all of these: not if it knows of some that they cannot be shared, or has too few numbers.
  using Bytes = std::pair<CUdeviceptr, uint64_t>;
  bool MayFind(const std::vector<Bytes>& all);
  // Like Find, and the allocations stay exported until they are freed or all that hold them have released them. An
  // error says why they cannot be shared.
  Result<Place> Hold(CUdeviceptr pointer, uint64_t bytes);
  // Ends a hold. Peers release the allocations at their next look, unless Find has found them, too.
  void Release(const Place& place);
  // Whether a peer can use the allocation.
  bool Has(size_t rank, uint32_t number) const;
  // Whether it has looked, and cannot use it.
  bool Lacks(size_t rank, uint32_t number) const;
  // Allocations that contain `pointer` will not be used soon: peers release them at their next look, and a later use
  // exports them again. No work that uses their numbers may be running. What is kept or held stays.
  void LetGo(CUdeviceptr pointer);
  // Publishes that this rank will not export what all ranks would have to, and whether one has.
  void Decline() { own().declines.store(1, std::memory_order_release); }
  bool Declines(size_t rank) const {
    return tables_[rank] != nullptr && tables_[rank]->declines.load(std::memory_order_acquire) != 0;
  }
  // For all ranks of the process: the allocation at `base` is about to be freed, kept or not.
  static void Freed(CUdeviceptr base);
  // Likewise, for new memory that is exported: peers cannot open it until they have closed what was there before, which
  // is told to them here, if it has been freed.
  static void RetireGone(const Range& range);

 private:
  struct Known {
    uint64_t id = 0;
    uint32_t number = 0;
    Status why_not;      // the reason if there is no number
    bool found = false;  // by Find, since the last LetGo
    bool kept = false;
    int holds = 0;
    Exported exported;  // until all peers have answered
  };
  using KnownMap = std::map<std::pair<CUdeviceptr, uint64_t>, Known>;  // by base and bytes; they may overlap

  ExportTable& own() const { return *tables_[rank_]; }
  // Finds or exports allocations, has them noted, and releases what was there before.
  template <typename Note>
  Result<Place> Use(CUdeviceptr pointer, uint64_t bytes, Note note);
  // `added`: what it has exported, if it was new.
  Result<KnownMap::iterator> Know(CUdeviceptr pointer, uint64_t bytes, Range* added);
  Place PlaceIn(KnownMap::const_iterator known, CUdeviceptr pointer) const;
  static bool Contains(KnownMap::const_iterator known, CUdeviceptr pointer) {
    return pointer >= known->first.first && pointer - known->first.first < known->first.second;
  }
  void Add(const Range& range);
  uint32_t FreeNumber() const;
  bool IsFree(uint32_t number) const;
  uint64_t AnswerOf(size_t rank, uint32_t number) const;
  bool AllAnswered(uint32_t number) const;
  // Of all ranks of the process, those that pass the test.
  template <typename Test>
  static void RetireAll(Test test);
  bool IsGone(KnownMap::const_iterator known) const;
  void Retire(KnownMap::iterator known);
  void LookAtNext();

  const device::cuda::Device& device_;
  const size_t rank_;
  const std::vector<ExportTable*> tables_;
  std::mutex mutex_;
  KnownMap known_;
  KnownMap::key_type next_;  // where to check next for freed allocations
  uint64_t generations_ = 0;
  bool explained_ = false;
};

}  // namespace axccl::cuda_ipc
