// Reductions of floats and complex numbers in group order, by definition (axccl/channels.h), with arithmetic of the
// tests' own: a table of the inputs of every rank, and their left fold, bit by bit.
//
// The inputs give other bits in other orders: one rank has a large number, another about the same with the opposite
// sign, the rest small ones; products have full mantissas. Made before ranks are started; all of them read it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/harness/element.h"

namespace axccl::harness {

enum class FoldOp : uint8_t { kSum, kProd, kAvg, kPreMulSum };
inline constexpr std::array<FoldOp, 4> kFoldOps = {FoldOp::kSum, FoldOp::kProd, FoldOp::kAvg, FoldOp::kPreMulSum};

// The float types and the complex ones.
inline constexpr std::array<ncclDataType_t, 8> kFoldTypes = {ncclFloat32,    ncclFloat64,    ncclFloat16,
                                                             ncclBfloat16,   ncclFloat8e4m3, ncclFloat8e5m2,
                                                             axcclComplex64, axcclComplex128};

bool HasFoldOp(ncclDataType_t type, FoldOp op);

class LeftFold {
 public:
  LeftFold(ncclDataType_t type, FoldOp op, int nranks, size_t elements, uint64_t seed);

  ncclDataType_t type() const { return type_; }
  FoldOp op() const { return op_; }
  size_t elements() const { return elements_; }
  size_t element_bytes() const { return TypeBytes(type_); }
  std::string Text() const;

  // For PreMulSum: the scalar of a rank, as an element.
  uint64_t Scalar(int rank) const;
  // All elements that the rank sends.
  const std::vector<unsigned char>& Input(int rank) const { return inputs_[static_cast<size_t>(rank)]; }
  // The fold of all elements of these ranks in that order, multiplied by `scale` before the last rounding.
  std::vector<unsigned char> Result(const std::vector<int>& order, double scale = 1) const;
  // The same with every intermediate result rounded to the type, as in a chain of ranks that store their partial
  // results. It shows that the data distinguishes the two.
  std::vector<unsigned char> RoundedEachStep(const std::vector<int>& order) const;
  // How many elements of two results differ.
  size_t Differences(const std::vector<unsigned char>& a, const std::vector<unsigned char>& b) const;

 private:
  template <class Number>
  std::vector<unsigned char> Fold(const std::vector<int>& order, bool each_step, double scale) const;
  template <class Number>
  Number Contribution(int rank, size_t part, size_t nranks) const;
  double InputNumber(int rank, size_t part) const;

  const ncclDataType_t type_, part_type_;  // of an element, and of its real and imaginary parts
  const FoldOp op_;
  const int nranks_;
  const size_t elements_;
  const uint64_t seed_;
  std::vector<std::vector<unsigned char>> inputs_;
};

}  // namespace axccl::harness
