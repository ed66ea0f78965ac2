#include "src/device/cuda/arena.h"

#include <algorithm>
#include <bit>

namespace axccl::device::cuda {

unsigned Arena::ClassOf(size_t bytes) {
  return std::max(kLeast, static_cast<unsigned>(std::bit_width(std::max<size_t>(bytes, 1) - 1)));
}

Result<uintptr_t> Arena::Take(size_t bytes) {
  const unsigned wanted = ClassOf(bytes);
  std::lock_guard lock(mutex_);
  const auto fits = [&] {
    unsigned found = wanted;
    while (found < free_.size() && free_[found].empty()) ++found;
    return found;
  };
  if (fits() == free_.size()) AXCCL_RETURN_IF_ERROR(Grow(size_t{1} << wanted));
  unsigned found = fits();
  const uintptr_t memory = free_[found].back();
  free_[found].pop_back();
  // The second half of what is larger than needed, and so on.
  while (found > wanted) {
    --found;
    free_[found].push_back(memory + (uintptr_t{1} << found));
  }
  class_of_[memory] = wanted;
  return memory;
}

void Arena::Return(uintptr_t memory) {
  std::lock_guard lock(mutex_);
  const auto taken = class_of_.find(memory);
  free_[taken->second].push_back(memory);
  class_of_.erase(taken);
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
  const unsigned size = ClassOf(std::max(bytes, chunk_bytes_));
  AXCCL_ASSIGN_OR_RETURN(const uintptr_t chunk, more_(size_t{1} << size));
  free_[size].push_back(chunk);
  all_ += size_t{1} << size;
  return Status();
}

}  // namespace axccl::device::cuda
