// Turns a linear range of a box into loops: dimensions that are contiguous in all operands are merged, and the range is
// cut into at most 2 * kMaxBoxDims - 1 pieces that are boxes themselves, each contiguous in logical order. Internal to
// the box movers. Plain values, no allocation, only one division for each dimension and piece. Offsets wrap modulo
// 2^64, so only those of elements in the range matter.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/host/box.h"

namespace axccl::kernels {

struct BoxOperands {
  const BoxOperand* dst;
  int num_dst;
  const BoxOperand* src;
  int num_src;
  size_t element_bytes;

  int Num() const { return num_dst + num_src; }
  const BoxOperand& At(int i) const { return i < num_dst ? dst[i] : src[i - num_dst]; }
};

// The merged dimensions, all of more than one element unless there is only one dimension.
struct BoxPlan {
  int num_dims;  // at least 1
  uint64_t size[kMaxBoxDims];
  uint64_t packed[kMaxBoxDims];  // elements between two steps in logical order; 2^64 - 1 if it is more
  int dim[kMaxBoxDims];          // the caller's dimension that has the strides, -1: none, for a single element

  // Bytes between two steps along dimension d.
  int64_t Stride(const BoxOperand& operand, int d, size_t element_bytes) const {
    if (operand.strides == nullptr) return static_cast<int64_t>(packed[d] * element_bytes);
    if (dim[d] < 0) return 0;
    return static_cast<int64_t>(static_cast<uint64_t>(operand.strides[dim[d]]) * element_bytes);
  }
};

// A request with the arithmetic of the other request, and no operands.
ReduceRequest ArithmeticOf(const BoxReduceRequest& request);

BoxPlan PlanBox(const BoxRange& range, const BoxOperands& operands);

// All of the dimensions after `first`, `extent` steps of dimension `first`, one step of those before it.
struct BoxPiece {
  uint64_t offset;              // elements from the begin of the range
  uint64_t start[kMaxBoxDims];  // index of the first element
  int first;
  uint64_t extent;

  char* Address(const BoxPlan& plan, const BoxOperand& operand, size_t element_bytes) const;
};

// The pieces of a range, in logical order.
class BoxPieces {
 public:
  BoxPieces(const BoxPlan& plan, uint64_t begin, uint64_t count);
  // Returns false after the last one.
  bool Next(BoxPiece* piece);

 private:
  const BoxPlan& plan_;
  uint64_t index_[kMaxBoxDims];
  uint64_t done_ = 0;
  uint64_t left_;
};

}  // namespace axccl::kernels
