// Large memory of malloc from the heap, so that peers can map it: for axcclMalloc, and for libaxccl-malloc.so.
//
// Blocks are allocations of the heap. Their sizes are rounded up to eighths of powers of two, which costs address space
// but no memory, because pages behind what the program asked for are never touched. Freed blocks of up to 32 MiB are
// kept for the next allocation of their size, 64 MiB of them in all; what exceeds that, the longest unused first, and
// longer blocks go back to the system at once. (glibc's dynamic thresholds grow to the same figures: M_MMAP_THRESHOLD
// to 32 MiB, M_TRIM_THRESHOLD to twice that.) At most kMostBlocks exist, as glibc bounds its mappings (M_MMAP_MAX).
//
// A fork: the thread that forks copies the content of all blocks into memory of its own before, and the child maps the
// copies in place of the shared pages. Both sides then have memory of their own with the content as of the fork. Only
// touched pages are copied. If memory for a copy runs out, the child finds the block inaccessible: it must not write
// into its parent's memory. Processes that are made without fork handlers (vfork, posix_spawn, clone) copy nothing.
// The child allocates nothing here; what it frees is returned to the system.
//
// All functions are thread-safe, keep errno and do not throw. They take memory of their own from static tables only, as
// they run inside malloc. Lock order: mutex_ before the heap's.
#pragma once

#include <pthread.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>

#include "src/base/malloc_family.h"
#include "transports/shm/heap.h"

namespace axccl::shm {

class MallocHeap {
 public:
  static constexpr size_t kMostBlocks = 16384;

  // The table of functions for this process's heap; null before there is a heap, and if peers could not map memory from
  // it (heap_file.h: only a memfd gives memory without a limit of its own).
  static const AxcclMappedMemory* Find();
  // For the process's new heap: makes the table, and passes it to libaxccl-malloc.so if that is preloaded.
  static void Start(Heap* heap);
  // Whether libaxccl-malloc.so is preloaded.
  static bool IsPreloaded();
  // AXCCL_MALLOC_THRESHOLD
  static size_t Threshold();

  void* Allocate(size_t bytes, size_t alignment, bool zeroed) noexcept;
  // Ends the program if `memory` is not a block in use, as free does.
  void Free(void* memory) noexcept;
  size_t Usable(const void* memory) noexcept;
  // Returns the pages behind the first `bytes` to the system, if they are many.
  void Shrink(void* memory, size_t bytes) noexcept;
  // Returns all kept blocks to the system.
  void Trim() noexcept;
  void BeforeFork() noexcept;
  void AfterFork(bool in_child) noexcept;

 private:
  enum class State : uint8_t { kUnused, kReserved, kUsed, kKept };
  struct Block {
    std::byte* start;
    size_t bytes;
    std::byte* copy;         // for a child that is being forked
    Block* next;             // in its bucket, or of the unused ones, or of those that are being returned
    Block *before, *behind;  // of its size, kept
    Block *older, *newer;    // kept
    State state;
  };
  class Guard;

  static constexpr size_t kBuckets = 2 * kMostBlocks;
  static constexpr size_t kSizes = 88;

  Block** BucketOf(const void* start);
  Block* FindBlock(const void* start);
  Block* Reserve();
  void Remove(Block* block);
  void Keep(Block* block);
  void Unkeep(Block* block);
  Block* TakeOldest(size_t most_kept);
  void Return(Block* leaving) noexcept;
  void* AllocateFresh(Block* block, size_t bytes, size_t alignment) noexcept;
  std::byte* Copy(const Block& block) const;

  Heap* heap_ = nullptr;
  std::mutex mutex_;
  std::atomic<pthread_t> forking_{};  // the thread between BeforeFork and AfterFork, which holds mutex_
  bool in_child_ = false;             // guarded by mutex_, as all that follows
  size_t blocks_made_ = 0;
  size_t kept_bytes_ = 0;
  Block* unused_ = nullptr;
  Block* oldest_ = nullptr;
  Block* newest_ = nullptr;
  std::array<Block*, kSizes> kept_{};
  std::array<Block*, kBuckets> buckets_{};
  std::array<Block, kMostBlocks> blocks_{};
};

}  // namespace axccl::shm
