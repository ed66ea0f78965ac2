#include "src/base/arena.h"

#include <algorithm>
#include <bit>

#include "src/base/sizes.h"

namespace axccl {

Result<uintptr_t> Arena::Take(size_t bytes) {
  const size_t size = RoundUp(std::max<size_t>(bytes, 1), kUnit);
  std::lock_guard lock(mutex_);
  const auto take = [&]() -> uintptr_t {
    for (FreeList& chunk : chunks_) {
      if (FreeList::Range range = chunk.Take(size, kUnit)) {
        const uintptr_t memory = range.key();
        taken_.emplace(memory, Taken{&chunk, std::move(range)});
        return memory;
      }
    }
    return 0;
  };
  if (const uintptr_t memory = take(); memory != 0) return memory;
  AXCCL_RETURN_IF_ERROR(Grow(size));
  return take();
}

void Arena::Return(uintptr_t memory) {
  std::lock_guard lock(mutex_);
  const auto taken = taken_.find(memory);
  taken->second.chunk->Give(std::move(taken->second.range));
  taken_.erase(taken);
}

Status Arena::Reserve(size_t bytes) {
  std::lock_guard lock(mutex_);
  while (all_ < reserved_ + bytes) AXCCL_RETURN_IF_ERROR(Grow(chunk_bytes_));
  reserved_ += bytes;
  return Status();
}

void Arena::Unreserve(size_t bytes) {
  std::lock_guard lock(mutex_);
  reserved_ -= bytes;
}

// With the mutex.
Status Arena::Grow(size_t bytes) {
  const size_t size = std::bit_ceil(std::max(bytes, chunk_bytes_));
  AXCCL_ASSIGN_OR_RETURN(const uintptr_t chunk, more_(size));
  chunks_.emplace_back(chunk, chunk + size);
  all_ += size;
  return Status();
}

}  // namespace axccl
