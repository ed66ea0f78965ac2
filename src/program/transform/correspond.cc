#include "src/program/transform/correspond.h"

#include <algorithm>

namespace axccl::program {
namespace {

using Labels = std::vector<int>;

size_t At(int64_t d) { return static_cast<size_t>(d); }
bool Has(const Ints& list, size_t d) { return std::find(list.begin(), list.end(), int64_t(d)) != list.end(); }

Labels Ascending(size_t count, int first = 0) {
  Labels labels(count);
  for (size_t d = 0; d < count; ++d) labels[d] = first + static_cast<int>(d);
  return labels;
}

void Elementwise(const std::vector<TensorType>& operands, const Operation& operation, Correspondence* c) {
  const size_t dims = operation.results[0].type.dims.size();
  c->results = {Ascending(dims)};
  for (const TensorType& operand : operands) {
    c->operands.push_back(operand.dims.size() == dims ? Ascending(dims) : Labels(operand.dims.size(), kWhole));
  }
}

void Dot(const std::vector<TensorType>& operands, const Ints& lhs_batching, const Ints& rhs_batching,
         const Ints& lhs_contracting, const Ints& rhs_contracting, Correspondence* c) {
  const size_t lhs = operands[0].dims.size(), rhs = operands[1].dims.size();
  Labels left = Ascending(lhs), right = Ascending(rhs, static_cast<int>(lhs)), result;
  for (size_t i = 0; i < lhs_batching.size(); ++i) {
    right[At(rhs_batching[i])] = left[At(lhs_batching[i])];
    result.push_back(left[At(lhs_batching[i])]);
  }
  for (size_t i = 0; i < lhs_contracting.size(); ++i) right[At(rhs_contracting[i])] = left[At(lhs_contracting[i])];
  for (size_t d = 0; d < lhs; ++d) {
    if (!Has(lhs_batching, d) && !Has(lhs_contracting, d)) result.push_back(left[d]);
  }
  for (size_t d = 0; d < rhs; ++d) {
    if (!Has(rhs_batching, d) && !Has(rhs_contracting, d)) result.push_back(right[d]);
  }
  c->operands = {left, right};
  c->results = {result};
  c->fold = Combine::kSum;
}

// `dims` are those of the result; sizes of 1 that are stretched have no slices.
void Broadcast(const TensorType& operand, const Operation& operation, Correspondence* c) {
  const Ints& dims = Get<Ints>(operation, Attr::kDims);
  const Ints& sizes = operation.results[0].type.dims;
  Labels from;
  for (size_t d = 0; d < dims.size(); ++d) {
    from.push_back(operand.dims[d] == sizes[At(dims[d])] ? static_cast<int>(dims[d]) : kWhole);
  }
  c->operands = {from};
  c->results = {Ascending(sizes.size())};
  for (size_t d = 0; d < dims.size(); ++d) {
    if (from[d] == kWhole) c->results[0][At(dims[d])] = kWhole;
  }
}

// Dimensions before which there are as many elements begin together, so their slices are the same elements.
void Reshape(const TensorType& operand, const Operation& operation, Correspondence* c) {
  const Ints& from = operand.dims;
  const Ints& to = operation.results[0].type.dims;
  c->operands = {Labels(from.size(), kWhole)};
  c->results = {Labels(to.size(), kWhole)};
  if (Elements(operand) == 0) return;
  int label = 0;
  int64_t before = 1, after = 1;
  for (size_t d = 0, e = 0; d < from.size() && e < to.size();) {
    if (from[d] == 1 || before < after) {
      before *= from[d++];
    } else if (to[e] == 1 || after < before) {
      after *= to[e++];
    } else {
      c->operands[0][d] = c->results[0][e] = label++;
      before *= from[d++];
      after *= to[e++];
    }
  }
}

// Operand and result have the same dimensions, of which those may be cut that are taken whole.
template <class IsCut>
void SameDims(size_t dims, IsCut&& may_be_cut, Correspondence* c) {
  Labels labels = Ascending(dims);
  for (size_t d = 0; d < dims; ++d) {
    if (!may_be_cut(d)) labels[d] = kWhole;
  }
  c->operands.push_back(labels);
  if (c->results.empty()) c->results.push_back(labels);
}

void OnePiece(const std::vector<TensorType>& operands, const Operation& operation, Correspondence* c) {
  for (const TensorType& operand : operands) c->operands.emplace_back(operand.dims.size(), kWhole);
  for (const Value& result : operation.results) c->results.emplace_back(result.type.dims.size(), kWhole);
}

// Each result is that of its own operand.
template <class IsCut>
void Beside(const std::vector<TensorType>& operands, IsCut&& may_be_cut, Correspondence* c) {
  int next = 0;
  for (const TensorType& operand : operands) {
    Labels labels = Ascending(operand.dims.size(), next);
    next += static_cast<int>(labels.size());
    for (size_t d = 0; d < labels.size(); ++d) {
      if (!may_be_cut(d)) labels[d] = kWhole;
    }
    c->operands.push_back(labels);
    c->results.push_back(labels);
  }
}

void Moved(const Operation& operation, const std::vector<TensorType>& operands, Correspondence* c) {
  const Ints& from = operands[0].dims;
  const Ints& to = operation.results[0].type.dims;
  const auto same_size = [&](size_t d) { return from[d] == to[d]; };
  switch (operation.kind) {
    case OpKind::kTranspose: {
      const Ints& dims = Get<Ints>(operation, Attr::kDims);
      c->operands = {Ascending(from.size())};
      c->results.emplace_back();
      for (const int64_t d : dims) c->results[0].push_back(static_cast<int>(d));
      return;
    }
    case OpKind::kReverse: {
      const Ints& dims = Get<Ints>(operation, Attr::kDims);
      return SameDims(
          from.size(), [&](size_t d) { return !Has(dims, d); }, c);
    }
    case OpKind::kSlice:
    case OpKind::kDynamicSlice:
      SameDims(from.size(), same_size, c);
      break;
    case OpKind::kPad:
      SameDims(
          from.size(),
          [&](size_t d) {
            return Get<Ints>(operation, Attr::kLow)[d] == 0 && Get<Ints>(operation, Attr::kHigh)[d] == 0 &&
                   Get<Ints>(operation, Attr::kInterior)[d] == 0;
          },
          c);
      break;
    default:  // concatenate
      for (size_t i = 0; i < operands.size(); ++i) {
        SameDims(
            from.size(), [&](size_t d) { return int64_t(d) != Get<int64_t>(operation, Attr::kDim); }, c);
      }
  }
  while (c->operands.size() < operands.size()) c->operands.emplace_back();  // scalars
}

void Reduce(const Operation& operation, const std::vector<TensorType>& operands, Correspondence* c) {
  const Ints& dims = Get<Ints>(operation, Attr::kDims);
  c->operands = {Ascending(operands[0].dims.size()), {}};
  c->results.emplace_back();
  for (size_t d = 0; d < operands[0].dims.size(); ++d) {
    if (!Has(dims, d)) c->results[0].push_back(static_cast<int>(d));
  }
  c->fold = Get<Combine>(operation, Attr::kFold);
}

void Collective(const Operation& operation, const std::vector<TensorType>& operands, Correspondence* c) {
  const auto number = [&](Attr attr) { return static_cast<size_t>(Get<int64_t>(operation, attr)); };
  switch (operation.kind) {
    case OpKind::kAllGather:
    case OpKind::kReduceScatter:
      return Beside(
          operands, [&](size_t d) { return d != number(Attr::kDim); }, c);
    case OpKind::kAllToAll:
      return Beside(
          operands, [&](size_t d) { return d != number(Attr::kSplitDim) && d != number(Attr::kConcatDim); }, c);
    default:
      return Beside(
          operands, [](size_t) { return true; }, c);
  }
}

}  // namespace

Correspondence CorrespondenceOf(const Operation& operation, const std::vector<TensorType>& operands) {
  Correspondence c;
  switch (operation.kind) {
    case OpKind::kBroadcastInDim:
      Broadcast(operands[0], operation, &c);
      break;
    case OpKind::kDot: {
      const auto last = static_cast<int64_t>(operands[0].dims.size()) - 1;
      Dot(operands, {}, {}, {last}, {0}, &c);
      break;
    }
    case OpKind::kDotGeneral:
      Dot(operands, Get<Ints>(operation, Attr::kLhsBatchingDims), Get<Ints>(operation, Attr::kRhsBatchingDims),
          Get<Ints>(operation, Attr::kLhsContractingDims), Get<Ints>(operation, Attr::kRhsContractingDims), &c);
      break;
    case OpKind::kReshape:
      Reshape(operands[0], operation, &c);
      break;
    case OpKind::kReduce:
      Reduce(operation, operands, &c);
      break;
    case OpKind::kConcatenate:
    case OpKind::kDynamicSlice:
    case OpKind::kPad:
    case OpKind::kReverse:
    case OpKind::kSlice:
    case OpKind::kTranspose:
      Moved(operation, operands, &c);
      break;
    case OpKind::kAllGather:
    case OpKind::kAllReduce:
    case OpKind::kAllToAll:
    case OpKind::kCollectiveBroadcast:
    case OpKind::kCollectivePermute:
    case OpKind::kCollectiveReduce:
    case OpKind::kReduceScatter:
    case OpKind::kOptimizationBarrier:
      Collective(operation, operands, &c);
      break;
    default:
      if (operation.kind <= OpKind::kXor) {
        Elementwise(operands, operation, &c);
      } else {
        OnePiece(operands, operation, &c);
      }
  }
  return c;
}

bool IsLinear(const Operation& operation, Combine fold) {
  switch (operation.kind) {
    case OpKind::kBroadcastInDim:
    case OpKind::kCopy:
    case OpKind::kOptimizationBarrier:
    case OpKind::kReshape:
    case OpKind::kReverse:
    case OpKind::kSlice:
    case OpKind::kTranspose:
      return true;
    case OpKind::kAdd:
    case OpKind::kNegate:
    case OpKind::kSubtract:
      return fold == Combine::kSum;
    default:
      return false;
  }
}

}  // namespace axccl::program
