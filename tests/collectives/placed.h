// A tensor in the memory of a test: where its elements are, as a call takes it, and what every byte around and between
// them must be in the end.
#pragma once

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "tests/collectives/view_cases.h"
#include "tests/harness/guarded_buffer.h"

namespace axccl::tests {

class Placed {
 public:
  // Takes memory for it; the view is valid as long as this object stays where it is.
  void Place(harness::Arena* arena, const Placement& placement, ncclDataType_t type, size_t misalignment) {
    size_ = harness::TypeBytes(type);
    placement_ = placement;
    const auto bytes = static_cast<size_t>(placement.before + placement.after) * size_;
    begin_ = static_cast<char*>(arena->Take(bytes, misalignment));
    expected_.assign(begin_, begin_ + bytes);
    view_.data = begin_ + placement.before * static_cast<int64_t>(size_);
    view_.datatype = type;
    view_.num_dims = static_cast<int>(placement.sizes.size());
    view_.sizes = placement_.sizes.data();
    view_.strides = placement_.dense ? nullptr : placement_.strides.data();
  }

  const axcclView_t& view() const { return view_; }
  const Sizes& sizes() const { return placement_.sizes; }

  void Set(const Sizes& index, const Element& element) {
    std::memcpy(begin_ + At(index), element.data(), size_);
    Expect(index, element);
  }
  void Expect(const Sizes& index, const Element& element) {
    std::memcpy(expected_.data() + At(index), element.data(), size_);
  }
  // Empty, or the first byte that is not as expected.
  std::string Wrong() const {
    const auto wrong = std::mismatch(expected_.begin(), expected_.end(), begin_);
    if (wrong.first == expected_.end()) return "";
    return "byte " + std::to_string(wrong.first - expected_.begin()) + " of " + std::to_string(expected_.size()) +
           " is " + std::to_string(static_cast<int>(*wrong.second)) + ", expected " +
           std::to_string(static_cast<int>(*wrong.first));
  }

 private:
  int64_t At(const Sizes& index) const {
    return (placement_.before + OffsetOf(placement_, index)) * static_cast<int64_t>(size_);
  }

  Placement placement_;
  size_t size_ = 0;
  char* begin_ = nullptr;
  std::vector<char> expected_;
  axcclView_t view_ = AXCCL_VIEW_INITIALIZER;
};

}  // namespace axccl::tests
