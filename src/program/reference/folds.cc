// Operations that combine many elements into one.
#include <algorithm>

#include "src/program/reference/arithmetic.h"
#include "src/program/reference/compute.h"
#include "src/program/reference/scalar.h"

namespace axccl::program {
namespace {

struct Contraction {
  Ints left_batching, right_batching, left, right;
};

Contraction ContractionOf(const Operation& operation, const Tensor& left) {
  if (operation.kind == OpKind::kDot)  // the last dimension with the first one
    return {{}, {}, {static_cast<int64_t>(left.type.dims.size()) - 1}, {0}};
  return {Get<Ints>(operation, Attr::kLhsBatchingDims), Get<Ints>(operation, Attr::kRhsBatchingDims),
          Get<Ints>(operation, Attr::kLhsContractingDims), Get<Ints>(operation, Attr::kRhsContractingDims)};
}

Ints Pick(const Ints& from, const Ints& dims) {
  Ints picked;
  for (const int64_t d : dims) picked.push_back(from[static_cast<size_t>(d)]);
  return picked;
}

// The dimensions that are in neither list, in order.
Ints Others(size_t dims, const Ints& a, const Ints& b) {
  Ints others;
  for (int64_t d = 0; d < static_cast<int64_t>(dims); ++d) {
    const bool listed = std::find(a.begin(), a.end(), d) != a.end() || std::find(b.begin(), b.end(), d) != b.end();
    if (!listed) others.push_back(d);
  }
  return others;
}

// Steps through some dimensions of a tensor: calls visit(offset) for each index of them, in row-major order.
template <class Visit>
void ForEachOffset(const Tensor& tensor, const Ints& dims, Visit&& visit) {
  const Ints strides = Pick(RowMajorStrides(tensor.type.dims), dims);
  ForEachIndex(Pick(tensor.type.dims, dims), [&](const Ints& index) { visit(OffsetOf(index, strides)); });
}

std::vector<int64_t> OffsetsOf(const Tensor& tensor, const Ints& dims) {
  std::vector<int64_t> offsets;
  ForEachOffset(tensor, dims, [&](int64_t offset) { offsets.push_back(offset); });
  return offsets;
}

}  // namespace

// The result has the batching dimensions, the others of the left operand, and the others of the right one.
Tensor ComputeDot(const Operation& operation, TensorSpan operands) {
  const Tensor &left = *operands[0], &right = *operands[1];
  const Contraction c = ContractionOf(operation, left);
  const auto left_rows = OffsetsOf(left, Others(left.type.dims.size(), c.left_batching, c.left));
  const auto right_rows = OffsetsOf(right, Others(right.type.dims.size(), c.right_batching, c.right));
  const auto left_batches = OffsetsOf(left, c.left_batching), right_batches = OffsetsOf(right, c.right_batching);
  const auto left_terms = OffsetsOf(left, c.left), right_terms = OffsetsOf(right, c.right);
  Tensor result = Tensor::Zeros(operation.results[0].type);
  VisitScalar(left.type.data_type, [&](auto scalar) {
    VisitScalar(result.type.data_type, [&](auto target) {
      using Number = typename decltype(target)::Number;
      int64_t at = 0;
      for (size_t batch = 0; batch < left_batches.size(); ++batch) {
        for (const int64_t row : left_rows) {
          for (const int64_t column : right_rows) {
            const int64_t l = left_batches[batch] + row, r = right_batches[batch] + column;
            Number sum{};
            for (size_t k = 0; k < left_terms.size(); ++k) {
              const auto a = static_cast<Number>(scalar.Load(left.at(l + left_terms[k])));
              const auto b = static_cast<Number>(scalar.Load(right.at(r + right_terms[k])));
              sum = Binary(OpKind::kAdd, sum, Binary(OpKind::kMultiply, a, b));
            }
            target.Store(sum, result.at(at++));
          }
        }
      }
    });
  });
  return result;
}

Tensor ComputeReduce(const Operation& operation, TensorSpan operands) {
  const Tensor& operand = *operands[0];
  const Ints& dims = Get<Ints>(operation, Attr::kDims);
  const auto fold = Get<Combine>(operation, Attr::kFold);
  const auto terms = OffsetsOf(operand, dims);
  Tensor result = Tensor::Zeros(operation.results[0].type);
  VisitScalar(operand.type.data_type, [&](auto scalar) {
    int64_t at = 0;
    ForEachOffset(operand, Others(operand.type.dims.size(), dims, {}), [&](int64_t first) {
      auto value = scalar.Load(operands[1]->at(0));
      for (const int64_t term : terms) value = Fold(fold, value, scalar.Load(operand.at(first + term)));
      scalar.Store(value, result.at(at++));
    });
  });
  return result;
}

Tensor ComputeLocal(const Operation& operation, TensorSpan operands) {
  switch (operation.kind) {
    case OpKind::kDot:
    case OpKind::kDotGeneral:
      return ComputeDot(operation, operands);
    case OpKind::kReduce:
      return ComputeReduce(operation, operands);
    case OpKind::kGather:
      return ComputeGather(operation, operands);
    case OpKind::kScatter:
      return ComputeScatter(operation, operands);
    default:
      return operation.kind <= OpKind::kXor ? ComputeElements(operation, operands) : ComputeMove(operation, operands);
  }
}

}  // namespace axccl::program
