// Products of f32 and f64 by a library for matrices, one for each index of the batching dimensions. An operand whose
// rows and terms both have one distance in memory, and one of them is 1, goes there as it is, else in a copy.
#include <algorithm>
#include <limits>
#include <optional>

#include "src/program/fast/fast.h"

namespace axccl::program {
namespace {

constexpr int kRowMajor = 101, kNotTransposed = 111, kTransposed = 112;  // of cblas.h

struct ProductDims {
  Ints batching, contracting, others;  // of one operand
};

ProductDims DimsOf(const Operation& operation, const Tensor& operand, bool left) {
  ProductDims dims;
  const auto rank = static_cast<int64_t>(operand.type.dims.size());
  if (operation.kind == OpKind::kDot) {
    dims.contracting = {left ? rank - 1 : 0};
  } else {
    dims.batching = Get<Ints>(operation, left ? Attr::kLhsBatchingDims : Attr::kRhsBatchingDims);
    dims.contracting = Get<Ints>(operation, left ? Attr::kLhsContractingDims : Attr::kRhsContractingDims);
  }
  const auto has = [](const Ints& list, int64_t d) { return std::find(list.begin(), list.end(), d) != list.end(); };
  for (int64_t d = 0; d < rank; ++d) {
    if (!has(dims.batching, d) && !has(dims.contracting, d)) dims.others.push_back(d);
  }
  return dims;
}

// Dimensions as one: how many elements, and their distance if there is one.
struct Joined {
  int64_t size = 1;
  std::optional<int64_t> stride = 1;
};

Joined Join(const Tensor& operand, const Ints& dims) {
  const Ints strides = RowMajorStrides(operand.type.dims);
  Joined joined;
  for (size_t i = dims.size(); i-- > 0;) {
    const auto d = static_cast<size_t>(dims[i]);
    const int64_t size = operand.type.dims[d];
    if (size != 1) {
      if (joined.size == 1) {
        joined.stride = strides[d];
      } else if (joined.stride && *joined.stride * joined.size != strides[d]) {
        joined.stride.reset();
      }
    }
    joined.size *= size;
  }
  return joined;
}

// A batch of matrices: a row for each element of the other dimensions, a column for each term of the sums.
struct Matrices {
  int64_t rows, terms;
  bool rows_in_order = true;     // the terms of a row are neighbours; else the rows of a term
  int64_t distance = 0;          // of those that are not neighbours
  std::vector<int64_t> batches;  // where each begins, in elements
  const uint8_t* data;
  std::vector<uint8_t> copy;  // if the operand is not in such an order
};

std::vector<int64_t> BatchOffsets(const Tensor& operand, const Ints& batching) {
  const Ints all = RowMajorStrides(operand.type.dims);
  Ints dims, strides;
  for (const int64_t d : batching) {
    dims.push_back(operand.type.dims[static_cast<size_t>(d)]);
    strides.push_back(all[static_cast<size_t>(d)]);
  }
  std::vector<int64_t> offsets;
  ForEachIndex(dims, [&](const Ints& index) { offsets.push_back(OffsetOf(index, strides)); });
  return offsets;
}

// The operand's elements by batch, row and term.
void Pack(const Tensor& operand, const ProductDims& dims, Matrices* m) {
  const Ints strides = RowMajorStrides(operand.type.dims);
  m->copy.resize(operand.bytes.size());
  StridedCopy copy{{}, operand.bytes.data(), {}, m->copy.data(), {}};
  for (const Ints* const list : {&dims.batching, &dims.others, &dims.contracting}) {
    for (const int64_t d : *list) {
      copy.dims.push_back(operand.type.dims[static_cast<size_t>(d)]);
      copy.from_strides.push_back(strides[static_cast<size_t>(d)]);
    }
  }
  copy.to_strides = RowMajorStrides(copy.dims);
  CopyStrided(std::move(copy), operand.element());
  m->data = m->copy.data();
  m->distance = m->terms;
  for (size_t i = 0; i < m->batches.size(); ++i) m->batches[i] = static_cast<int64_t>(i) * m->rows * m->terms;
}

Matrices MatricesOf(const Tensor& operand, const ProductDims& dims) {
  const Joined rows = Join(operand, dims.others), terms = Join(operand, dims.contracting);
  Matrices m{rows.size, terms.size, true, 0, BatchOffsets(operand, dims.batching), operand.bytes.data(), {}};
  const auto suits = [](const Joined& neighbours, const Joined& others) {
    return neighbours.stride && (neighbours.size == 1 || *neighbours.stride == 1) && others.stride;
  };
  if (suits(terms, rows)) {
    m.distance = rows.size == 1 ? terms.size : *rows.stride;
  } else if (suits(rows, terms)) {
    m.rows_in_order = false;
    m.distance = terms.size == 1 ? rows.size : *terms.stride;
  } else {
    Pack(operand, dims, &m);
  }
  return m;
}

template <class T>
void Multiply(const Matrices& left, const Matrices& right, MatrixProduct<T> product, Tensor* result) {
  const auto size = [](int64_t n) { return static_cast<int>(n); };
  const auto *a = reinterpret_cast<const T*>(left.data), *b = reinterpret_cast<const T*>(right.data);
  auto* c = reinterpret_cast<T*>(result->bytes.data());
  for (size_t i = 0; i < left.batches.size(); ++i, c += left.rows * right.rows) {
    product(kRowMajor, left.rows_in_order ? kNotTransposed : kTransposed,
            right.rows_in_order ? kTransposed : kNotTransposed, size(left.rows), size(right.rows), size(left.terms),
            T{1}, a + left.batches[i], size(left.distance), b + right.batches[i], size(right.distance), T{0}, c,
            size(right.rows));
  }
}

}  // namespace

Tensor FastDot(const Operation& operation, TensorSpan operands, const Products& products) {
  const TensorType& type = operation.results[0].type;
  const DataType data_type = operands[0]->type.data_type;
  const bool known = data_type == type.data_type && ((data_type == DataType::kFloat32 && products.f32 != nullptr) ||
                                                     (data_type == DataType::kFloat64 && products.f64 != nullptr));
  if (!known) return ComputeDot(operation, operands);
  Tensor result = Tensor::Zeros(type);
  if (result.bytes.empty() || operands[0]->bytes.empty()) return result;
  const Matrices left = MatricesOf(*operands[0], DimsOf(operation, *operands[0], true));
  const Matrices right = MatricesOf(*operands[1], DimsOf(operation, *operands[1], false));
  constexpr int64_t kMost = std::numeric_limits<int>::max();
  if (std::max({left.rows, left.terms, left.distance, right.rows, right.distance}) > kMost)
    return ComputeDot(operation, operands);
  if (data_type == DataType::kFloat32) {
    Multiply(left, right, products.f32, &result);
  } else {
    Multiply(left, right, products.f64, &result);
  }
  return result;
}

Tensor ComputeFast(const Operation& operation, TensorSpan operands, const Products& products) {
  switch (operation.kind) {
    case OpKind::kDot:
    case OpKind::kDotGeneral:
      return FastDot(operation, operands, products);
    case OpKind::kReduce:
      return FastReduce(operation, operands);
    case OpKind::kGather:
    case OpKind::kScatter:
      return ComputeLocal(operation, operands);
    default:
      return operation.kind <= OpKind::kXor ? FastElements(operation, operands) : FastMove(operation, operands);
  }
}

}  // namespace axccl::program
