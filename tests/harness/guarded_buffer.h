// Memory for test buffers with sentinels on both sides of each.
//
// A GuardedArena is one allocation from which buffers are taken one after another. Every byte outside the buffers, and
// every byte of a buffer until the test writes it, holds a pattern that depends on its position. Reset makes the whole
// arena free again. On GPU ranks (gpu.h) both kinds are managed memory. Used by one thread; the library may read and
// write the buffers from any.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

namespace axccl::harness {

enum class Memory : unsigned char {
  kMemAlloc,  // ncclMemAlloc: peers map it
  kMalloc,    // anything else
};

const char* MemoryName(Memory memory);

class GuardedArena {
 public:
  // Returns null, with a GoogleTest failure, when the allocation fails.
  static std::unique_ptr<GuardedArena> Create(Memory memory, size_t bytes);
  ~GuardedArena();

  // The room that Take(bytes) needs, sentinels and alignment included.
  static size_t Need(size_t bytes);
  size_t Left() const { return bytes_ - used_; }
  // A buffer whose address is `misalignment` bytes past a multiple of 64, filled with the pattern. Must fit.
  void* Take(size_t bytes, size_t misalignment);
  // Returns an empty text when no byte around or between the buffers taken since Reset has changed.
  std::string CheckSentinels() const;
  // Whether a buffer still holds the pattern.
  bool Untouched(const void* buffer, size_t bytes) const;
  void Reset();

 private:
  GuardedArena(Memory memory, unsigned char* base, size_t bytes) : memory_(memory), base_(base), bytes_(bytes) {}

  struct Range {
    size_t begin;
    size_t end;
  };

  Memory memory_;
  unsigned char* base_;
  size_t bytes_;
  size_t used_ = 0;
  std::vector<Range> taken_;
};

}  // namespace axccl::harness
