#include "src/base/free_list.h"

#include <algorithm>
#include <bit>
#include <iterator>
#include <utility>

namespace axccl {
namespace {

FreeList::Range NewRange(uint64_t offset, uint64_t bytes) {
  FreeList::Ranges one;
  return one.extract(one.emplace(offset, bytes).first);
}

}  // namespace

FreeList::FreeList(uint64_t begin, uint64_t end) : free_bytes_(end - begin) {
  if (end > begin) free_.emplace(begin, end - begin);
}

FreeList::Range FreeList::Take(uint64_t bytes, uint64_t alignment) {
  const auto size = static_cast<size_t>(std::bit_width(bytes)) - 1;
  uint64_t& from = search_from_[size];
  bool smaller = true;  // all ranges so far
  for (auto it = free_.lower_bound(from); it != free_.end(); ++it) {
    const uint64_t begin = it->first, end = begin + it->second;
    smaller = smaller && it->second >> size == 0;
    if (smaller) from = end;
    const uint64_t start = (begin + alignment - 1) & ~(alignment - 1);
    if (start < begin || start > end || end - start < bytes) continue;
    Range taken = start == begin ? Range() : NewRange(start, bytes);
    if (start + bytes < end) free_.emplace_hint(std::next(it), start + bytes, end - start - bytes);
    // Nothing throws from here on. A remainder at the front keeps the node.
    if (start == begin) {
      it->second = bytes;
      taken = free_.extract(it);
    } else {
      it->second = start - begin;
    }
    free_bytes_ -= bytes;
    return taken;
  }
  return Range();
}

void FreeList::Give(Range range) noexcept {
  free_bytes_ += range.mapped();
  const auto begins_at = [this](uint64_t begin, uint64_t bytes) {
    for (size_t k = 0; k < static_cast<size_t>(std::bit_width(bytes)); ++k)
      search_from_[k] = std::min(search_from_[k], begin);
  };
  auto next = free_.upper_bound(range.key());
  if (next != free_.end() && range.key() + range.mapped() == next->first) {
    range.mapped() += next->second;
    next = free_.erase(next);
  }
  if (next != free_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == range.key()) {
      before->second += range.mapped();
      return begins_at(before->first, before->second);
    }
  }
  begins_at(range.key(), range.mapped());
  free_.insert(next, std::move(range));
}

uint64_t FreeList::Largest() const {
  uint64_t largest = 0;
  for (const auto& [offset, bytes] : free_) largest = std::max(largest, bytes);
  return largest;
}

}  // namespace axccl
