#include "tests/harness/left_fold.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "tests/harness/random.h"

namespace axccl::harness {
namespace {

ncclDataType_t PartType(ncclDataType_t type) {
  return type == axcclComplex64 ? ncclFloat32 : type == axcclComplex128 ? ncclFloat64 : type;
}

// Exponents of the large and the small numbers, too far apart for the accumulator to hold both exactly.
struct Spread {
  int large, small;
};
Spread SpreadOf(ncclDataType_t type) {
  switch (type) {
    case ncclFloat16:
      return {14, -10};
    case ncclFloat8e4m3:
      return {6, -6};
    case ncclFloat8e5m2:
      return {13, -11};
    case ncclFloat64:
      return {48, -6};
    default:
      return {20, -5};
  }
}

// Exact in all types.
double ScalarNumber(int rank) { return rank % 2 == 0 ? 1.25 : 0.875; }

}  // namespace

bool HasFoldOp(ncclDataType_t type, FoldOp op) { return !IsComplexType(type) || op != FoldOp::kPreMulSum; }

LeftFold::LeftFold(ncclDataType_t type, FoldOp op, int nranks, size_t elements, uint64_t seed)
    : type_(type), part_type_(PartType(type)), op_(op), nranks_(nranks), elements_(elements), seed_(seed) {
  const size_t parts = elements * (TypeBytes(type_) / TypeBytes(part_type_));
  for (int r = 0; r < nranks; ++r) {
    std::vector<unsigned char>& input = inputs_.emplace_back(elements * TypeBytes(type_));
    for (size_t i = 0; i < parts; ++i)
      StoreElement(input.data(), part_type_, i, EncodeFloat(part_type_, InputNumber(r, i)));
  }
}

std::string LeftFold::Text() const {
  constexpr const char* kNames[] = {"sum", "prod", "avg", "premulsum"};
  return std::string(TypeName(type_)) + " " + kNames[static_cast<int>(op_)] + " of " + std::to_string(elements_) +
         " from " + std::to_string(nranks_) + " ranks, AXCCL_TEST_SEED=" + std::to_string(seed_);
}

double LeftFold::InputNumber(int rank, size_t part) const {
  const uint64_t all = Scramble(seed_, part), own = Scramble(seed_, part, static_cast<uint64_t>(rank) + 1);
  const double mantissa = 1 + static_cast<double>(own >> 12) * 0x1p-52;
  const double sign = own & 1 ? -1 : 1;
  if (op_ == FoldOp::kProd) return sign * std::ldexp(mantissa, own & 2 ? -1 : 0);
  const Spread spread = SpreadOf(part_type_);
  const auto n = static_cast<uint64_t>(nranks_);
  const uint64_t positive = all % n, negative = (positive + 1 + all / n % std::max<uint64_t>(n - 1, 1)) % n;
  const auto self = static_cast<uint64_t>(rank);
  if (n > 2 && (self == positive || self == negative)) {
    const double large = std::ldexp(1 + static_cast<double>(all >> 12) * 0x1p-52, spread.large);
    return (self == positive ? large : -large) / (op_ == FoldOp::kPreMulSum ? ScalarNumber(rank) : 1);
  }
  return sign * std::ldexp(mantissa, spread.small + static_cast<int>(own / 4 % 5));
}

uint64_t LeftFold::Scalar(int rank) const { return EncodeFloat(part_type_, ScalarNumber(rank)); }

template <class Number>
Number LeftFold::Contribution(int rank, size_t part, size_t nranks) const {
  const auto number = static_cast<Number>(DecodeFloat(part_type_, LoadElement(Input(rank).data(), part_type_, part)));
  Number factor = 1;
  if (op_ == FoldOp::kAvg) factor = static_cast<Number>(1.0 / static_cast<double>(nranks));
  if (op_ == FoldOp::kPreMulSum) factor = static_cast<Number>(DecodeFloat(part_type_, Scalar(rank)));
  return static_cast<Number>(DecodeFloat(part_type_, EncodeFloat(part_type_, number * factor)));
}

template <class Number>
std::vector<unsigned char> LeftFold::Fold(const std::vector<int>& order, bool each_step, double scale) const {
  const auto store = [&](Number x) { return EncodeFloat(part_type_, x); };
  const auto step = [&](Number x) { return each_step ? static_cast<Number>(DecodeFloat(part_type_, store(x))) : x; };
  const bool complex = IsComplexType(type_);
  const size_t parts = complex ? 2 : 1, n = order.size();
  std::vector<unsigned char> result(elements_ * element_bytes());
  for (size_t e = 0; e < elements_ * parts; e += parts) {
    Number re = Contribution<Number>(order[0], e, n);
    Number im = complex ? Contribution<Number>(order[0], e + 1, n) : 0;
    for (size_t k = 1; k < n; ++k) {
      const Number c = Contribution<Number>(order[k], e, n);
      const Number d = complex ? Contribution<Number>(order[k], e + 1, n) : 0;
      if (op_ != FoldOp::kProd) {
        re = step(re + c), im = step(im + d);
      } else if (!complex) {
        re = step(re * c);
      } else {
        const Number ac = re * c, bd = im * d, ad = re * d, bc = im * c;
        re = step(ac - bd), im = step(ad + bc);
      }
    }
    StoreElement(result.data(), part_type_, e, store(re * static_cast<Number>(scale)));
    if (complex) StoreElement(result.data(), part_type_, e + 1, store(im * static_cast<Number>(scale)));
  }
  return result;
}

std::vector<unsigned char> LeftFold::Result(const std::vector<int>& order, double scale) const {
  return part_type_ == ncclFloat64 ? Fold<double>(order, false, scale) : Fold<float>(order, false, scale);
}

std::vector<unsigned char> LeftFold::RoundedEachStep(const std::vector<int>& order) const {
  return part_type_ == ncclFloat64 ? Fold<double>(order, true, 1) : Fold<float>(order, true, 1);
}

size_t LeftFold::Differences(const std::vector<unsigned char>& a, const std::vector<unsigned char>& b) const {
  size_t differences = 0;
  for (size_t e = 0; e < elements_; ++e)
    differences += std::memcmp(&a[e * element_bytes()], &b[e * element_bytes()], element_bytes()) != 0;
  return differences;
}

}  // namespace axccl::harness
