// Reductions go through the operand once, in the order of memory. So the elements that meet in one of the result come
// in row-major order, as the reference adds them.
#include <algorithm>
#include <memory>

#include "src/program/fast/fast.h"
#include "src/program/reference/arithmetic.h"
#include "src/program/reference/scalar.h"

namespace axccl::program {
namespace {

// The operand's dimensions, neighbours of the same sort joined, and the strides of the result in them: 0 if reduced.
struct Reduction {
  Ints dims, strides;
};

Reduction ReductionOf(const Ints& operand, const Ints& reduced) {
  std::vector<bool> is_reduced(operand.size());
  for (const int64_t dim : reduced) is_reduced[static_cast<size_t>(dim)] = true;
  Reduction r;
  bool previous = false;
  for (size_t d = 0; d < operand.size(); ++d) {
    if (operand[d] == 1) continue;
    if (!r.dims.empty() && previous == is_reduced[d]) {
      r.dims.back() *= operand[d];
    } else {
      r.dims.push_back(operand[d]);
      r.strides.push_back(is_reduced[d] ? 0 : 1);
    }
    previous = is_reduced[d];
  }
  int64_t stride = 1;
  for (size_t d = r.dims.size(); d-- > 0;) {
    if (r.strides[d] == 0) continue;
    r.strides[d] = stride;
    stride *= r.dims[d];
  }
  return r;
}

// Each of the rows into one element. Several at a time, because each addition of a row waits for the one before.
template <Combine kFold, class S, class Number>
void FoldRows(S scalar, const uint8_t* from, size_t element, int64_t rows, int64_t size, Number* to) {
  constexpr int64_t kTogether = 8;
  const auto at = [&](int64_t row, int64_t i) {
    return scalar.Load(from + static_cast<size_t>(row * size + i) * element);
  };
  int64_t row = 0;
  for (; row + kTogether <= rows; row += kTogether) {
    Number sums[kTogether];
    std::copy_n(to + row, kTogether, sums);
    for (int64_t i = 0; i < size; ++i) {
      for (int64_t r = 0; r < kTogether; ++r) sums[r] = Fold(kFold, sums[r], at(row + r, i));
    }
    std::copy_n(sums, kTogether, to + row);
  }
  for (; row < rows; ++row) {
    Number sum = to[row];
    for (int64_t i = 0; i < size; ++i) sum = Fold(kFold, sum, at(row, i));
    to[row] = sum;
  }
}

template <Combine kFold, class S, class Number>
void FoldAll(S scalar, const Reduction& r, const Tensor& operand, Number* to) {
  const size_t element = operand.element(), rank = r.dims.size();
  if (rank == 0) {
    *to = Fold(kFold, *to, scalar.Load(operand.at(0)));
    return;
  }
  const int64_t size = r.dims[rank - 1];
  const bool rows_end = r.strides[rank - 1] == 0;  // the innermost dimension is reduced
  const size_t inner = rows_end && rank > 1 ? 2 : 1;
  const int64_t rows = inner == 2 ? r.dims[rank - 2] : 1;
  const uint8_t* from = operand.bytes.data();
  ForEachIndex({r.dims.begin(), r.dims.end() - static_cast<Ints::difference_type>(inner)}, [&](const Ints& index) {
    Number* const first = to + OffsetOf(index, r.strides);
    if (rows_end) {
      FoldRows<kFold>(scalar, from, element, rows, size, first);
    } else {
      for (int64_t i = 0; i < size; ++i)
        first[i] = Fold(kFold, first[i], scalar.Load(from + static_cast<size_t>(i) * element));
    }
    from += static_cast<size_t>(rows * size) * element;
  });
}

template <class S, class Number>
void FoldAll(Combine fold, S scalar, const Reduction& r, const Tensor& operand, Number* to) {
  switch (fold) {
    case Combine::kSum:
      return FoldAll<Combine::kSum>(scalar, r, operand, to);
    case Combine::kProd:
      return FoldAll<Combine::kProd>(scalar, r, operand, to);
    case Combine::kMax:
      return FoldAll<Combine::kMax>(scalar, r, operand, to);
    case Combine::kMin:
      return FoldAll<Combine::kMin>(scalar, r, operand, to);
    case Combine::kAnd:
      return FoldAll<Combine::kAnd>(scalar, r, operand, to);
    case Combine::kOr:
      return FoldAll<Combine::kOr>(scalar, r, operand, to);
    default:
      return FoldAll<Combine::kXor>(scalar, r, operand, to);
  }
}

}  // namespace

Tensor FastReduce(const Operation& operation, TensorSpan operands) {
  const Tensor& operand = *operands[0];
  Tensor result = Tensor::Zeros(operation.results[0].type);
  const auto elements = static_cast<size_t>(Elements(result.type));
  VisitScalar(operand.type.data_type, [&](auto scalar) {
    using Number = typename decltype(scalar)::Number;
    const auto values = std::make_unique<Number[]>(elements);
    std::fill_n(values.get(), elements, scalar.Load(operands[1]->at(0)));
    if (!operand.bytes.empty()) {
      FoldAll(Get<Combine>(operation, Attr::kFold), scalar,
              ReductionOf(operand.type.dims, Get<Ints>(operation, Attr::kDims)), operand, values.get());
    }
    for (size_t i = 0; i < elements; ++i) scalar.Store(values[i], result.bytes.data() + i * result.element());
  });
  return result;
}

}  // namespace axccl::program
