// Which byte ranges of a heap are free: first fit by address, neighbours joined at once.
//
// Knows offsets only, touches no memory. First fit keeps the used part of the heap low and dense, so that page tables
// stay small in every process that maps it. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>

namespace axccl::shm {

class FreeList {
 public:
  // Everything in [begin, end) is free.
  FreeList(uint64_t begin, uint64_t end);

  // The lowest `bytes` > 0 bytes at a multiple of `alignment` (a power of two), or nothing.
  std::optional<uint64_t> Take(uint64_t bytes, uint64_t alignment);
  // Gives back a range that was taken; the caller vouches that it is not free.
  void Give(uint64_t offset, uint64_t bytes);

  uint64_t free_bytes() const { return free_bytes_; }
  uint64_t Largest() const;  // longest free range
  size_t ranges() const { return free_.size(); }

 private:
  std::map<uint64_t, uint64_t> free_;  // offset -> bytes; disjoint, never adjacent
  uint64_t free_bytes_;
};

}  // namespace axccl::shm
