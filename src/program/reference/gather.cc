// Gather and scatter, step by step as StableHLO defines them.
#include <algorithm>

#include "src/program/reference/arithmetic.h"
#include "src/program/reference/compute.h"
#include "src/program/reference/scalar.h"

namespace axccl::program {
namespace {

bool Has(const Ints& list, int64_t value) { return std::find(list.begin(), list.end(), value) != list.end(); }

// How indices of one side, a gather's result or a scatter's updates, become indices of the operand.
class Indices {
 public:
  // `windowed`: the dimensions of that side that are within a window. `inserted`: those of the operand that a window
  // lacks because it has size 1 there.
  struct Attributes {
    const Ints &windowed, &inserted, &operand_batching, &indices_batching, &index_map;
    int64_t vector_dim;
  };

  Indices(const Attributes& attributes, const Tensor& indices, size_t operand_dims)
      : a_(attributes), indices_(indices), strides_(RowMajorStrides(indices.type.dims)), operand_dims_(operand_dims) {}

  // Where the window begins that the index is in.
  Ints Start(const Ints& index) const {
    const Ints batch = Batch(index);
    Ints start(operand_dims_);
    for (size_t i = 0; i < a_.index_map.size(); ++i)
      start[static_cast<size_t>(a_.index_map[i])] = StartAlong(batch, static_cast<int64_t>(i));
    return start;
  }

  // The place in the batch, and in the window.
  Ints Offset(const Ints& index) const {
    const Ints batch = Batch(index);
    Ints offset(operand_dims_);
    for (size_t i = 0; i < a_.operand_batching.size(); ++i) {
      const int64_t d = a_.indices_batching[i];
      offset[static_cast<size_t>(a_.operand_batching[i])] = batch[static_cast<size_t>(d < a_.vector_dim ? d : d - 1)];
    }
    size_t next = 0;
    for (size_t d = 0; d < operand_dims_; ++d) {
      const auto dim = static_cast<int64_t>(d);
      if (Has(a_.inserted, dim) || Has(a_.operand_batching, dim)) continue;
      offset[d] = index[static_cast<size_t>(a_.windowed[next++])];
    }
    return offset;
  }

 private:
  Ints Batch(const Ints& index) const {
    Ints batch;
    for (size_t d = 0; d < index.size(); ++d) {
      if (!Has(a_.windowed, static_cast<int64_t>(d))) batch.push_back(index[d]);
    }
    return batch;
  }

  // The i-th number of an index vector, which is a scalar if indices have no dimension for it.
  int64_t StartAlong(Ints batch, int64_t i) const {
    const auto vector_dim = static_cast<size_t>(a_.vector_dim);
    if (vector_dim < indices_.type.dims.size()) batch.insert(batch.begin() + static_cast<ptrdiff_t>(vector_dim), i);
    const uint8_t* const at = indices_.at(OffsetOf(batch, strides_));
    return VisitScalar(indices_.type.data_type, [&](auto scalar) { return IndexOf(scalar.Load(at)); });
  }

  const Attributes a_;
  const Tensor& indices_;
  const Ints strides_;
  const size_t operand_dims_;
};

}  // namespace

Tensor ComputeGather(const Operation& operation, TensorSpan operands) {
  const Tensor& operand = *operands[0];
  const Ints& sizes = Get<Ints>(operation, Attr::kSizes);
  const Indices indices(
      {Get<Ints>(operation, Attr::kOffsetDims), Get<Ints>(operation, Attr::kCollapsedSliceDims),
       Get<Ints>(operation, Attr::kOperandBatchingDims), Get<Ints>(operation, Attr::kStartIndicesBatchingDims),
       Get<Ints>(operation, Attr::kStartIndexMap), Get<int64_t>(operation, Attr::kIndexVectorDim)},
      *operands[1], operand.type.dims.size());
  Tensor result = Tensor::Zeros(operation.results[0].type);
  const Ints strides = RowMajorStrides(operand.type.dims);
  int64_t at = 0;
  ForEachIndex(result.type.dims, [&](const Ints& index) {
    Ints from = indices.Offset(index);
    const Ints start = indices.Start(index);
    for (size_t d = 0; d < from.size(); ++d)
      from[d] += std::clamp<int64_t>(start[d], 0, operand.type.dims[d] - sizes[d]);
    CopyElement(operand, OffsetOf(from, strides), &result, at++);
  });
  return result;
}

// Updates that would be outside are left out.
Tensor ComputeScatter(const Operation& operation, TensorSpan operands) {
  Tensor result = *operands[0];
  const Tensor& updates = *operands[2];
  const Ints& dims = result.type.dims;
  const auto fold = Get<Combine>(operation, Attr::kFold);
  const Indices indices(
      {Get<Ints>(operation, Attr::kUpdateWindowDims), Get<Ints>(operation, Attr::kInsertedWindowDims),
       Get<Ints>(operation, Attr::kInputBatchingDims), Get<Ints>(operation, Attr::kScatterIndicesBatchingDims),
       Get<Ints>(operation, Attr::kScatterDimsToOperandDims), Get<int64_t>(operation, Attr::kIndexVectorDim)},
      *operands[1], dims.size());
  const Ints strides = RowMajorStrides(dims);
  VisitScalar(result.type.data_type, [&](auto scalar) {
    int64_t at = 0;
    ForEachIndex(updates.type.dims, [&](const Ints& index) {
      const uint8_t* const update = updates.at(at++);
      Ints to = indices.Offset(index);
      const Ints start = indices.Start(index);
      for (size_t d = 0; d < to.size(); ++d) {
        // Not added if that is far outside, as sums might wrap.
        if (start[d] < -dims[d] || start[d] > dims[d]) return;
        to[d] += start[d];
        if (to[d] < 0 || to[d] >= dims[d]) return;
      }
      uint8_t* const element = result.at(OffsetOf(to, strides));
      scalar.Store(Fold(fold, scalar.Load(element), scalar.Load(update)), element);
    });
  });
  return result;
}

}  // namespace axccl::program
