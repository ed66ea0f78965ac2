// Operations that give elements other places, and those that make elements of none.
#include <algorithm>
#include <cstring>

#include "src/program/reference/arithmetic.h"
#include "src/program/reference/compute.h"
#include "src/program/reference/scalar.h"

namespace axccl::program {
namespace {

// A result whose element at every index is that of the operand at from(index).
template <class From>
Tensor Fetch(const TensorType& type, const Tensor& operand, From&& from) {
  Tensor result = Tensor::Zeros(type);
  const Ints strides = RowMajorStrides(operand.type.dims);
  int64_t at = 0;
  ForEachIndex(type.dims,
               [&](const Ints& index) { CopyElement(operand, OffsetOf(from(index), strides), &result, at++); });
  return result;
}

// Copies all elements of `from` to to(index) of *result.
template <class To>
void Store(const Tensor& from, Tensor* result, To&& to) {
  const Ints strides = RowMajorStrides(result->type.dims);
  int64_t at = 0;
  ForEachIndex(from.type.dims,
               [&](const Ints& index) { CopyElement(from, at++, result, OffsetOf(to(index), strides)); });
}

Tensor Constant(const Operation& operation) {
  Tensor result = Tensor::Zeros(operation.results[0].type);
  const std::vector<uint8_t>& bytes = Get<Literal>(operation, Attr::kValue).bytes;
  for (size_t i = 0; i < result.bytes.size(); i += bytes.size())
    std::copy(bytes.begin(), bytes.end(), &result.bytes[i]);
  return result;
}

Tensor Iota(const TensorType& type, size_t dim) {
  Tensor result = Tensor::Zeros(type);
  VisitScalar(type.data_type, [&](auto scalar) {
    int64_t at = 0;
    ForEachIndex(type.dims, [&](const Ints& index) {
      scalar.Store(static_cast<typename decltype(scalar)::Number>(index[dim]), result.at(at++));
    });
  });
  return result;
}

Tensor BroadcastInDim(const Operation& operation, const Tensor& operand) {
  const Ints& dims = Get<Ints>(operation, Attr::kDims);
  Ints from(dims.size());
  return Fetch(operation.results[0].type, operand, [&](const Ints& index) -> const Ints& {
    for (size_t d = 0; d < dims.size(); ++d)
      from[d] = operand.type.dims[d] == 1 ? 0 : index[static_cast<size_t>(dims[d])];
    return from;
  });
}

Tensor Concatenate(const Operation& operation, TensorSpan operands) {
  const auto dim = static_cast<size_t>(Get<int64_t>(operation, Attr::kDim));
  Tensor result = Tensor::Zeros(operation.results[0].type);
  int64_t begin = 0;
  for (const Tensor* const operand : operands) {
    Ints to;
    Store(*operand, &result, [&](const Ints& index) -> const Ints& {
      to = index;
      to[dim] += begin;
      return to;
    });
    begin += operand->type.dims[dim];
  }
  return result;
}

Tensor Transpose(const Operation& operation, const Tensor& operand) {
  const Ints& dims = Get<Ints>(operation, Attr::kDims);
  Ints from(dims.size());
  return Fetch(operation.results[0].type, operand, [&](const Ints& index) -> const Ints& {
    for (size_t d = 0; d < dims.size(); ++d) from[static_cast<size_t>(dims[d])] = index[d];
    return from;
  });
}

Tensor Reverse(const Operation& operation, const Tensor& operand) {
  Ints from;
  return Fetch(operation.results[0].type, operand, [&](const Ints& index) -> const Ints& {
    from = index;
    for (const int64_t d : Get<Ints>(operation, Attr::kDims)) {
      const auto at = static_cast<size_t>(d);
      from[at] = operand.type.dims[at] - 1 - index[at];
    }
    return from;
  });
}

Tensor Slice(const Operation& operation, const Tensor& operand) {
  const Ints &starts = Get<Ints>(operation, Attr::kStarts), &strides = Get<Ints>(operation, Attr::kStrides);
  Ints from(starts.size());
  return Fetch(operation.results[0].type, operand, [&](const Ints& index) -> const Ints& {
    for (size_t d = 0; d < index.size(); ++d) from[d] = starts[d] + index[d] * strides[d];
    return from;
  });
}

Tensor Pad(const Operation& operation, const Tensor& operand, const Tensor& padding) {
  const Ints &low = Get<Ints>(operation, Attr::kLow), &interior = Get<Ints>(operation, Attr::kInterior);
  Tensor result = Tensor::Zeros(operation.results[0].type);
  const Ints& dims = result.type.dims;
  for (int64_t i = 0; i < Elements(result.type); ++i) CopyElement(padding, 0, &result, i);
  const Ints strides = RowMajorStrides(dims);
  Ints to(dims.size());
  int64_t at = 0;
  ForEachIndex(operand.type.dims, [&](const Ints& index) {
    bool within = true;
    for (size_t d = 0; d < dims.size(); ++d) {
      to[d] = low[d] + index[d] * (interior[d] + 1);
      within &= to[d] >= 0 && to[d] < dims[d];
    }
    if (within) CopyElement(operand, at, &result, OffsetOf(to, strides));
    ++at;
  });
  return result;
}

// Starts of a slice of that shape, which are moved until it is within the operand.
Ints ClampedStarts(TensorSpan starts, const Ints& operand, const Ints& slice) {
  Ints clamped;
  for (size_t d = 0; d < starts.size(); ++d) {
    VisitScalar(starts[d]->type.data_type, [&](auto scalar) {
      const auto start = IndexOf(scalar.Load(starts[d]->at(0)));
      clamped.push_back(std::clamp<int64_t>(start, 0, operand[d] - slice[d]));
    });
  }
  return clamped;
}

Ints Sum(const Ints& a, const Ints& b) {
  Ints sum = a;
  for (size_t d = 0; d < a.size(); ++d) sum[d] += b[d];
  return sum;
}

Tensor DynamicSlice(const Operation& operation, TensorSpan operands) {
  const TensorType& type = operation.results[0].type;
  const Ints starts = ClampedStarts(operands.subspan(1), operands[0]->type.dims, type.dims);
  return Fetch(type, *operands[0], [&](const Ints& index) { return Sum(index, starts); });
}

Tensor DynamicUpdateSlice(TensorSpan operands) {
  Tensor result = *operands[0];
  const Ints starts = ClampedStarts(operands.subspan(2), result.type.dims, operands[1]->type.dims);
  Store(*operands[1], &result, [&](const Ints& index) { return Sum(index, starts); });
  return result;
}

}  // namespace

Tensor ComputeMove(const Operation& operation, TensorSpan operands) {
  const TensorType& type = operation.results[0].type;
  switch (operation.kind) {
    case OpKind::kBroadcastInDim:
      return BroadcastInDim(operation, *operands[0]);
    case OpKind::kConcatenate:
      return Concatenate(operation, operands);
    case OpKind::kConstant:
      return Constant(operation);
    case OpKind::kDynamicSlice:
      return DynamicSlice(operation, operands);
    case OpKind::kDynamicUpdateSlice:
      return DynamicUpdateSlice(operands);
    case OpKind::kIota:
      return Iota(type, static_cast<size_t>(Get<int64_t>(operation, Attr::kDim)));
    case OpKind::kPad:
      return Pad(operation, *operands[0], *operands[1]);
    case OpKind::kReverse:
      return Reverse(operation, *operands[0]);
    case OpKind::kSlice:
      return Slice(operation, *operands[0]);
    case OpKind::kTranspose:
      return Transpose(operation, *operands[0]);
    default:
      return {type, operands[0]->bytes};  // reshape
  }
}

}  // namespace axccl::program
