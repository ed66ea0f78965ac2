// Strided data movers of the host: copy and n-ary reduce over a linear range of a logical box.
//
// A box has sizes, in row-major logical order (the last dimension is the fastest). A range is a run of logical element
// indices in that order; it need not respect rows. Strides say where the elements of the box lie in an operand's
// memory. An operand may also be packed: it then holds only the range, in logical order. So a copy into or out of a
// scratch slot is a strided copy like any other.
//
// Every source is read once and every destination written once. Pointers need only the alignment of the element (of a
// byte, for copies). A destination may be identical to a source (in place: same data, same strides); destinations must
// not overlap themselves or each other, and any other overlap is undefined. Functions are pure and thread-safe. They
// use up to 48 KiB of stack and do not fail, except that a move of more than 256 operands allocates and may throw
// std::bad_alloc. The product of the sizes may exceed 2^64 as long as the range and the memory it touches do not.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/host/mover.h"
#include "src/base/types.h"

namespace axccl::kernels {

inline constexpr int kMaxBoxDims = 8;

struct BoxRange {
  int num_dims;          // 0 to kMaxBoxDims; a box without dimensions has one element
  const int64_t* sizes;  // num_dims sizes, each at least 0
  uint64_t begin;        // the range's first element; begin + count is at most the product of the sizes
  uint64_t count;
};

struct BoxOperand {
  void* data;              // element (0, ..., 0) of the box; packed: the first element of the range
  const int64_t* strides;  // in elements, one for each dimension, of any sign, 0 only on sources; null: packed
};

// Copies the range of src to every destination. Elements have 1 to 16 bytes. `non_temporal` writes around the cache
// wherever whole cache lines of a destination are written.
void CopyBox(const BoxRange& range, const BoxOperand* dst, int num_dst, const BoxOperand& src, size_t element_bytes,
             bool non_temporal);

// Copies the range of every src[i] to dst[i], alternating after a row or a few KiB: for destinations that share cache
// lines, or sources that share pages. `num` is at least 1, no operand is packed, and no source but src[i] may be a
// destination.
void CopyBoxes(const BoxRange& range, const BoxOperand* dst, const BoxOperand* src, int num, size_t element_bytes,
               bool non_temporal);

// The members, the arithmetic and the bits are those of ReduceRequest.
struct BoxReduceRequest {
  BoxRange range;
  const BoxOperand* dst;
  int num_dst;
  const BoxOperand* src;
  int num_src;
  DataType type;
  Combine combine;
  const Factor* pre = nullptr;
  bool round_factored = false;
  uint64_t post_divisor = 0;
  const Factor* post = nullptr;
  bool non_temporal = false;
};

void ReduceBox(const BoxReduceRequest& request);

// num_dst reductions of num_src sources each: dst[i] gets the reduction of src[i * num_src] and those after it. They
// alternate after each row where rows are long: for sources in the same pages. No operand is packed, and dst[i] may be
// one of its own sources only.
void ReduceBoxes(const BoxReduceRequest& requests);

// For tests, as in mover.h.
void CopyBoxWithIsa(int isa, const BoxRange& range, const BoxOperand* dst, int num_dst, const BoxOperand& src,
                    size_t element_bytes, bool non_temporal);
void CopyBoxesWithIsa(int isa, const BoxRange& range, const BoxOperand* dst, const BoxOperand* src, int num,
                      size_t element_bytes, bool non_temporal);
void ReduceBoxWithIsa(int isa, const BoxReduceRequest& request);
void ReduceBoxesWithIsa(int isa, const BoxReduceRequest& requests);

}  // namespace axccl::kernels
