// Common parts of the tests of views: views of invented addresses, element by element.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "src/tensor/view.h"
#include "tests/harness/random.h"

namespace axccl::tensor {

// An address that is never read, `offset` bytes from the address that all share.
inline void* Address(int64_t offset) {
  return reinterpret_cast<void*>(static_cast<uintptr_t>((int64_t{1} << 46) + offset));
}

// `offset` in elements.
inline View MakeView(const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides, int64_t offset = 0,
                     uint32_t element_size = 1) {
  View view;
  view.data = Address(offset * element_size);
  view.element_size = element_size;
  view.shape.dims = static_cast<int>(sizes.size());
  std::copy(sizes.begin(), sizes.end(), view.shape.sizes);
  std::copy(strides.begin(), strides.end(), view.strides);
  return view;
}

// The byte offset of every element relative to the data, in row-major order of the indices.
inline std::vector<int64_t> Offsets(const View& view) {
  std::vector<int64_t> offsets = {0};
  const int64_t bytes = view.element_size;
  for (int d = 0; d < view.shape.dims; ++d) {
    std::vector<int64_t> next;
    for (int64_t offset : offsets) {
      for (int64_t x = 0; x < view.shape.sizes[d]; ++x) next.push_back(offset + x * view.strides[d] * bytes);
    }
    offsets = next;
  }
  return offsets;
}

// A view with random small sizes and strides.
inline View RandomView(harness::Random* random, int max_dims, int max_size, int max_stride) {
  View view;
  view.data = Address(0);
  view.element_size = 1 + static_cast<uint32_t>(random->Below(4));
  view.shape.dims = static_cast<int>(random->Below(static_cast<uint64_t>(max_dims) + 1));
  for (int d = 0; d < view.shape.dims; ++d) {
    view.shape.sizes[d] = random->OneIn(30) ? 0 : 1 + static_cast<int64_t>(random->Below(max_size));
    view.strides[d] = static_cast<int64_t>(random->Below(2 * max_stride)) - max_stride;
  }
  return view;
}

// Lays `shape` out in a dense allocation: dimensions in any order, each cut out of a longer one with a step, forwards
// or backwards. The allocation starts at Address(0).
inline View RandomLayout(harness::Random* random, uint32_t element_size, const Shape& shape) {
  View view = {Address(0), element_size, shape, {}};
  std::vector<int> order;
  for (int d = 0; d < shape.dims; ++d)
    order.insert(order.begin() + static_cast<ptrdiff_t>(random->Below(order.size() + 1)), d);
  int64_t stride = 1, offset = 0;
  for (int d : order) {
    const int64_t step = random->OneIn(3) ? 2 : 1, size = shape.sizes[d];
    const int64_t before = random->OneIn(3) ? 1 : 0, after = random->OneIn(3) ? 1 : 0;
    const bool back = random->OneIn(4);
    view.strides[d] = back ? -stride * step : stride * step;
    offset += stride * (before + (back && size > 0 ? (size - 1) * step : 0));
    stride *= before + after + std::max<int64_t>(size - 1, 0) * step + 1;
  }
  view.data = Address(offset * element_size);
  return view;
}

inline Shape RandomShape(harness::Random* random, int max_dims, int max_size) {
  Shape shape;
  shape.dims = static_cast<int>(random->Below(static_cast<uint64_t>(max_dims) + 1));
  for (int d = 0; d < shape.dims; ++d) {
    shape.sizes[d] = random->OneIn(30) ? 0 : 1 + static_cast<int64_t>(random->Below(static_cast<uint64_t>(max_size)));
  }
  return shape;
}

inline View RandomCut(harness::Random* random, int max_dims, int max_size) {
  const Shape shape = RandomShape(random, max_dims, max_size);
  return RandomLayout(random, 1 + static_cast<uint32_t>(random->Below(4)), shape);
}

}  // namespace axccl::tensor
