#include "transports/shm/free_list.h"

#include <algorithm>
#include <iterator>

namespace axccl::shm {

FreeList::FreeList(uint64_t begin, uint64_t end) : free_bytes_(end - begin) {
  if (end > begin) free_.emplace(begin, end - begin);
}

std::optional<uint64_t> FreeList::Take(uint64_t bytes, uint64_t alignment) {
  for (auto it = free_.begin(); it != free_.end(); ++it) {
    const uint64_t begin = it->first, end = begin + it->second;
    const uint64_t start = (begin + alignment - 1) & ~(alignment - 1);
    if (start < begin || start > end || end - start < bytes) continue;
    // Cut the range in place: what is left before keeps the node, what is left behind gets a new one.
    if (start + bytes < end) free_.emplace_hint(std::next(it), start + bytes, end - start - bytes);
    if (start == begin) {
      free_.erase(it);
    } else {
      it->second = start - begin;
    }
    free_bytes_ -= bytes;
    return start;
  }
  return std::nullopt;
}

void FreeList::Give(uint64_t offset, uint64_t bytes) {
  const auto next = free_.upper_bound(offset);
  const bool joins_next = next != free_.end() && offset + bytes == next->first;
  const auto before = next == free_.begin() ? free_.end() : std::prev(next);
  if (before != free_.end() && before->first + before->second == offset) {
    before->second += bytes;
    if (joins_next) {
      before->second += next->second;
      free_.erase(next);
    }
  } else if (joins_next) {
    auto node = free_.extract(next);
    node.key() = offset;
    node.mapped() += bytes;
    free_.insert(std::move(node));
  } else {
    free_.emplace_hint(next, offset, bytes);
  }
  free_bytes_ += bytes;
}

uint64_t FreeList::Largest() const {
  uint64_t largest = 0;
  for (const auto& [offset, bytes] : free_) largest = std::max(largest, bytes);
  return largest;
}

}  // namespace axccl::shm
