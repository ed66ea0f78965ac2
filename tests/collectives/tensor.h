// A tensor anywhere in an arena, and the final value of every byte of its memory.
#pragma once

#include <algorithm>
#include <cstring>
#include <vector>

#include "tests/collectives/view_cases.h"
#include "tests/harness/guarded_buffer.h"

namespace axccl::tests {

struct Tensor {
  Placement placement;
  size_t size = 1;  // bytes of an element
  char* begin = nullptr;
  char* data = nullptr;  // the first element
  std::vector<char> expected;
  axcclView_t view = AXCCL_VIEW_INITIALIZER;

  Tensor(const Sizes& sizes, ncclDataType_t type, harness::GuardedArena* arena, harness::Random* random)
      : Tensor(AnyPlacement(sizes, false, harness::Random(random->Next())), type, arena, random) {}
  Tensor(const Placement& where, ncclDataType_t type, harness::GuardedArena* arena, harness::Random* random)
      : placement(where), size(harness::TypeBytes(type)) {
    const auto bytes = static_cast<size_t>(placement.before + placement.after) * size;
    begin = static_cast<char*>(arena->Take(bytes, random->Below(8) * size));
    data = begin + placement.before * static_cast<int64_t>(size);
    expected.assign(begin, begin + bytes);
    view.data = data;
    view.datatype = type;
    view.num_dims = static_cast<int>(placement.sizes.size());
  }
  // Valid while the tensor stays where it is.
  const axcclView_t& View() {
    view.sizes = placement.sizes.data();
    view.strides = placement.dense ? nullptr : placement.strides.data();
    return view;
  }
  void Expect(const Sizes& index, const Element& element) {
    const int64_t at = (placement.before + OffsetOf(placement, index)) * static_cast<int64_t>(size);
    std::memcpy(expected.data() + at, element.data(), size);
  }
  // Writes an element of an input, which must keep its value.
  void Write(const Sizes& index, const Element& element) {
    std::memcpy(data + OffsetOf(placement, index) * static_cast<int64_t>(size), element.data(), size);
    Expect(index, element);
  }
  // The first wrong byte; -1 if there is none.
  int64_t FirstWrong() const {
    const auto wrong = std::mismatch(expected.begin(), expected.end(), begin).first;
    return wrong == expected.end() ? -1 : wrong - expected.begin();
  }
};

}  // namespace axccl::tests
