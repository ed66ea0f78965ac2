// The heap of this process: memory that every local peer process can address (see transports/transport.h).
//
// Its fixed size is address space, not memory: AXCCL_HEAP_BYTES, else four times the physical memory rounded up to a
// power of two, from 256 GiB to 1 TiB (16 GiB under sanitizers, 1/16 of `ulimit -v` and `ulimit -f` where those are
// less). Pages cost memory only once touched; freed pages are returned to the system at once. The heap lives as long as
// the process. heap_file.h says what the heap consists of on restricted systems, and which processes can then attach to
// it.
//
// Thread-safe. After fork the child must not use it: Get, Allocate and Free fail with kInvalidUsage there. The child
// does keep the mapping, so memory it inherited stays readable and is shared with its parent, except for large memory
// of malloc, of which it has copies (malloc_heap.h).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <set>

#include "src/base/free_list.h"
#include "src/base/status.h"
#include "transports/shm/heap_file.h"
#include "transports/transport.h"

namespace axccl::shm {

class Heap {
 public:
  // Returns the process's heap; the first call creates it. kSystemError, with need and limit, when that fails.
  static Result<Heap*> Get();

  // Huge pages, where the kernel gives them to shared memory that asks: for memory of which its owner uses all, because
  // touching one byte makes 2 MiB resident. They lie within the allocation; the rest of it has small ones.
  enum class Pages : uint8_t { kSmall, kHuge };
  // Returns zeroed memory in whole pages (4 KiB); alignment is a power of two <= 2 MiB. Allocations of 2 MiB and more
  // are aligned to 2 MiB. 0 bytes give a page. kSystemError when no free range is long enough, or the file has no room.
  Result<void*> Allocate(size_t bytes, size_t alignment, Pages pages = Pages::kSmall);
  // Frees memory of Allocate. kInvalidArgument when `p` is not from Allocate, or was freed already. Needs no memory, so
  // it does not throw.
  Status Free(void* p);

  // Makes the pages that [p, p + bytes) touches private to this process and keeps their content. Writes of peers no
  // longer change them, not even those of a peer in the middle of one, and Contains returns false for them. This is
  // permanent: Free does not reuse the address space of an allocation that lost pages, because a late peer would write
  // into the memory of its next owner. Does nothing for memory outside this heap. kSystemError: some pages are still
  // shared.
  Status TakeBack(const void* p, size_t bytes);
  // Whether TakeBack was called for any page that [p, p + bytes) touches.
  bool TakenBack(const void* p, size_t bytes) const {
    return any_taken_back_.load(std::memory_order_seq_cst) && AnyTakenBack(p, bytes);
  }

  // Whether [p, p + bytes) lies inside live allocations of this heap (to page granularity), and its offset from the
  // base. Lock-free: two compares for other memory, one bit per page otherwise. An answer about memory that another
  // thread is freeing at the same time is either.
  bool Contains(const void* p, size_t bytes, uint64_t* offset) const {
    const uintptr_t distance = reinterpret_cast<uintptr_t>(p) - reinterpret_cast<uintptr_t>(base_);
    if (distance >= bytes_ || bytes > bytes_ - distance) return false;
    *offset = distance;
    return AllLive(distance, bytes);
  }

  std::byte* base() const { return base_; }
  size_t bytes() const { return bytes_; }
  uint64_t allocated_bytes() const { return allocated_.load(std::memory_order_relaxed); }  // sum of live allocations
  int fd() const { return file_.fd(); }
  const HeapFile& file() const { return file_; }
  transport::ProcessPage* page() const { return reinterpret_cast<transport::ProcessPage*>(base_); }

 private:
  Heap(HeapFile file, std::byte* base, std::atomic<uint64_t>* live);
  static Result<Heap*> Create();
  static Result<Heap*> CreateWith(size_t least, size_t wanted);
  bool AllLive(uint64_t offset, uint64_t bytes) const;
  void Mark(uint64_t offset, uint64_t bytes, bool live);
  bool AnyTakenBack(const void* p, size_t bytes) const;
  Status MapPrivately(uint64_t offset, uint64_t bytes);
  void Zero(uint64_t offset, uint64_t bytes);

  const HeapFile file_;
  std::byte* const base_;
  const size_t bytes_;
  std::atomic<uint64_t>* const live_;  // one bit for each page, set while the page belongs to an allocation
  std::atomic<uint64_t> allocated_{0};

  std::atomic<bool> any_taken_back_{false};

  mutable std::mutex mutex_;
  FreeList free_;                            // guarded by mutex_, as the next three
  FreeList::Ranges allocations_;             // what is allocated
  std::map<uint64_t, uint64_t> taken_back_;  // offset -> end, disjoint
  std::set<uint64_t> huge_;                  // offsets of allocations with huge pages
};

}  // namespace axccl::shm
