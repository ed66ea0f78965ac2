// The free byte ranges of a memory: first fit by address, neighbours joined at once.
//
// Works on offsets only, touches no memory. First fit keeps the used part low and dense, so that page tables stay small
// in every process that maps it. A search does not begin below the first range of at least half the size, so the gaps
// that alignment leaves in front of large ranges do not make the next ones slower. Not thread-safe.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>

namespace axccl {

class FreeList {
 public:
  // offset -> bytes. A taken range keeps the node that will record it as free, so giving it back needs no memory.
  using Ranges = std::map<uint64_t, uint64_t>;
  using Range = Ranges::node_type;

  // Starts with [begin, end) free.
  FreeList(uint64_t begin, uint64_t end);

  // Takes the lowest `bytes` > 0 bytes at a multiple of `alignment` (a power of two); empty if there are none. If it
  // throws because memory ran out, nothing has been taken.
  Range Take(uint64_t bytes, uint64_t alignment);
  // Gives back a range that was taken; the caller guarantees that it is not free.
  void Give(Range range) noexcept;

  uint64_t free_bytes() const { return free_bytes_; }
  uint64_t Largest() const;  // longest free range
  size_t ranges() const { return free_.size(); }

 private:
  Ranges free_;  // disjoint, never adjacent
  // [k]: no free range that begins below has 2^k bytes or more.
  std::array<uint64_t, 64> search_from_{};
  uint64_t free_bytes_;
};

}  // namespace axccl
