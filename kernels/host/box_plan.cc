#include "kernels/host/box_plan.h"

#include <limits>

namespace axccl::kernels {
namespace {

bool Mergeable(const BoxOperands& operands, int outer, int inner, uint64_t inner_size) {
  for (int i = 0; i < operands.Num(); ++i) {
    const int64_t* strides = operands.At(i).strides;
    if (strides == nullptr) continue;
    if (static_cast<uint64_t>(strides[outer]) != inner_size * static_cast<uint64_t>(strides[inner])) return false;
  }
  return true;
}

}  // namespace

ReduceRequest ArithmeticOf(const BoxReduceRequest& request) {
  ReduceRequest arithmetic = {};
  arithmetic.type = request.type;
  arithmetic.combine = request.combine;
  arithmetic.pre = request.pre;
  arithmetic.round_factored = request.round_factored;
  arithmetic.post_divisor = request.post_divisor;
  arithmetic.post = request.post;
  return arithmetic;
}

BoxPlan PlanBox(const BoxRange& range, const BoxOperands& operands) {
  BoxPlan plan;
  int last = -1;
  for (int d = 0; d < range.num_dims; ++d) {
    const uint64_t size = static_cast<uint64_t>(range.sizes[d]);
    if (size == 1) continue;
    uint64_t merged;
    if (last >= 0 && Mergeable(operands, plan.dim[last], d, size) &&
        !__builtin_mul_overflow(plan.size[last], size, &merged)) {
      plan.size[last] = merged;
    } else {
      plan.size[++last] = size;
    }
    plan.dim[last] = d;
  }
  if (last < 0) {
    last = 0;
    plan.size[0] = 1;
    plan.dim[0] = -1;
  }
  plan.num_dims = last + 1;
  uint64_t elements = 1;
  for (int d = last; d >= 0; --d) {
    plan.packed[d] = elements;
    if (__builtin_mul_overflow(elements, plan.size[d], &elements)) elements = std::numeric_limits<uint64_t>::max();
  }
  return plan;
}

char* BoxPiece::Address(const BoxPlan& plan, const BoxOperand& operand, size_t element_bytes) const {
  uint64_t elements = 0;
  if (operand.strides == nullptr) {
    elements = offset;
  } else {
    for (int d = 0; d < plan.num_dims; ++d) {
      if (plan.dim[d] >= 0) elements += start[d] * static_cast<uint64_t>(operand.strides[plan.dim[d]]);
    }
  }
  return static_cast<char*>(operand.data) + static_cast<int64_t>(elements * element_bytes);
}

BoxPieces::BoxPieces(const BoxPlan& plan, uint64_t begin, uint64_t count) : plan_(plan), left_(count) {
  for (int d = plan.num_dims - 1; d > 0; --d) {
    index_[d] = begin % plan.size[d];
    begin /= plan.size[d];
  }
  index_[0] = begin;
}

bool BoxPieces::Next(BoxPiece* piece) {
  if (left_ == 0) return false;
  int d = plan_.num_dims - 1;
  while (d > 0 && index_[d] == 0 && left_ >= plan_.packed[d - 1]) --d;
  const uint64_t inner = plan_.packed[d];
  const uint64_t in_range = inner == 1 ? left_ : left_ / inner;
  const uint64_t in_box = plan_.size[d] - index_[d];
  piece->offset = done_;
  for (int i = 0; i < plan_.num_dims; ++i) piece->start[i] = index_[i];
  piece->first = d;
  piece->extent = in_range < in_box ? in_range : in_box;
  done_ += piece->extent * inner;
  left_ -= piece->extent * inner;
  index_[d] += piece->extent;
  for (; d > 0 && index_[d] == plan_.size[d]; --d) {
    index_[d] = 0;
    ++index_[d - 1];
  }
  return true;
}

}  // namespace axccl::kernels
