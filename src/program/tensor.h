// Tensors in memory, and indices into them. Elements are in row-major order, in the machine's byte order; those of
// kBool are 0 or 1. Plain data and pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "src/program/program.h"

namespace axccl::program {

struct Tensor {
  TensorType type;
  std::vector<uint8_t> bytes;

  // All elements 0. The memory is that of the thread's pool, if it uses one (buffer_pool.h).
  static Tensor Zeros(const TensorType& type);
  // One element of kUint32.
  static Tensor Of(uint32_t value);
  size_t element() const { return ElementSize(type.data_type); }
  uint8_t* at(int64_t offset) { return bytes.data() + static_cast<size_t>(offset) * element(); }
  const uint8_t* at(int64_t offset) const { return bytes.data() + static_cast<size_t>(offset) * element(); }

  friend bool operator==(const Tensor&, const Tensor&) = default;
};

// Offsets of elements: the distance between neighbours along each dimension.
Ints RowMajorStrides(const Ints& dims);
int64_t OffsetOf(const Ints& index, const Ints& strides);
// Copies one element.
void CopyElement(const Tensor& from, int64_t from_offset, Tensor* to, int64_t to_offset);

// Calls visit(index) for every index of that shape, in row-major order.
template <class Visit>
void ForEachIndex(const Ints& dims, Visit&& visit) {
  for (const int64_t size : dims) {
    if (size == 0) return;
  }
  Ints index(dims.size());
  for (;;) {
    visit(static_cast<const Ints&>(index));
    size_t d = dims.size();
    while (d > 0 && ++index[d - 1] == dims[d - 1]) index[--d] = 0;
    if (d == 0) return;
  }
}

}  // namespace axccl::program
