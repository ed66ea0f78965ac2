#include <algorithm>
#include <cstring>
#include <string>

#include "src/program/kinds.h"
#include "src/program/reference/arithmetic.h"
#include "src/program/reference/compute.h"
#include "src/program/reference/scalar.h"

namespace axccl::program {
namespace {

using Operands = std::vector<std::vector<const Tensor*>>;  // by rank of the group

// Of every rank, its i-th operand.
std::vector<const Tensor*> Column(const Operands& operands, size_t i) {
  std::vector<const Tensor*> column;
  for (const auto& of_rank : operands) column.push_back(of_rank[i]);
  return column;
}

// The tensors one behind the other along a dimension.
Tensor Join(const std::vector<const Tensor*>& blocks, size_t dim) {
  TensorType type = blocks[0]->type;
  type.dims[dim] = 0;
  for (const Tensor* const block : blocks) type.dims[dim] += block->type.dims[dim];
  Tensor joined = Tensor::Zeros(type);
  const Ints strides = RowMajorStrides(type.dims);
  int64_t first = 0;
  for (const Tensor* const block : blocks) {
    int64_t at = 0;
    ForEachIndex(block->type.dims, [&](const Ints& index) {
      CopyElement(*block, at++, &joined, OffsetOf(index, strides) + first * strides[dim]);
    });
    first += block->type.dims[dim];
  }
  return joined;
}

// The part-th of `parts` equal parts along a dimension.
Tensor PartOf(const Tensor& whole, size_t dim, size_t part, size_t parts) {
  TensorType type = whole.type;
  type.dims[dim] /= static_cast<int64_t>(parts);
  Tensor result = Tensor::Zeros(type);
  const Ints strides = RowMajorStrides(whole.type.dims);
  const int64_t first = static_cast<int64_t>(part) * type.dims[dim] * strides[dim];
  int64_t at = 0;
  ForEachIndex(type.dims,
               [&](const Ints& index) { CopyElement(whole, first + OffsetOf(index, strides), &result, at++); });
  return result;
}

Tensor FoldAll(const std::vector<const Tensor*>& terms, Combine fold) {
  Tensor result = Tensor::Zeros(terms[0]->type);
  VisitScalar(result.type.data_type, [&](auto scalar) {
    for (int64_t i = 0; i < Elements(result.type); ++i) {
      auto value = scalar.Load(terms[0]->at(i));
      for (size_t p = 1; p < terms.size(); ++p) value = Fold(fold, value, scalar.Load(terms[p]->at(i)));
      scalar.Store(value, result.at(i));
    }
  });
  return result;
}

Tensor ExchangeParts(const std::vector<const Tensor*>& from, size_t to, size_t split_dim, size_t concat_dim) {
  std::vector<Tensor> parts;
  for (const Tensor* const tensor : from) parts.push_back(PartOf(*tensor, split_dim, to, from.size()));
  std::vector<const Tensor*> blocks;
  for (const Tensor& part : parts) blocks.push_back(&part);
  return Join(blocks, concat_dim);
}

// Ranks that are no target get zeros.
Tensor Permuted(const Operation& operation, const std::vector<const Tensor*>& from, const Ints& ranks, size_t to) {
  for (const Ints& pair : Get<Groups>(operation, Attr::kPairs)) {
    if (pair[1] != ranks[to]) continue;
    const auto source = std::find(ranks.begin(), ranks.end(), pair[0]) - ranks.begin();
    return *from[static_cast<size_t>(source)];
  }
  return Tensor::Zeros(from[to]->type);
}

bool HasRoots(OpKind kind) { return kind == OpKind::kCollectiveBroadcastFrom || kind == OpKind::kCollectiveReduceTo; }

// Of an operation that has them, of its i-th operand; 0 of others.
size_t RootOf(const Operation& operation, const std::vector<const Tensor*>& operands, size_t i) {
  if (!HasRoots(operation.kind)) return 0;
  int32_t root = 0;
  std::memcpy(&root, operands.back()->at(static_cast<int64_t>(i)), sizeof root);
  return static_cast<size_t>(root);
}

}  // namespace

Status CheckRoots(const Operation& operation, const Operands& operands, const Ints& ranks) {
  if (!HasRoots(operation.kind)) return Status();
  for (size_t i = 0; i < operation.results.size(); ++i) {
    const size_t root = RootOf(operation, operands[0], i);
    if (root >= ranks.size())
      return MakeStatus(Code::kInvalidUsage,
                        "rank %lld in %%%u %s: root %d of operand %zu is not in the group, which has %zu ranks",
                        static_cast<long long>(ranks[0]), operation.id,
                        std::string(InfoOf(operation.kind).name).c_str(), static_cast<int32_t>(root), i, ranks.size());
  }
  for (size_t p = 1; p < operands.size(); ++p) {
    if (operands[p].back()->bytes == operands[0].back()->bytes) continue;
    return MakeStatus(Code::kInvalidUsage, "rank %lld in %%%u %s: its roots are not those of rank %lld",
                      static_cast<long long>(ranks[p]), operation.id, std::string(InfoOf(operation.kind).name).c_str(),
                      static_cast<long long>(ranks[0]));
  }
  return Status();
}

std::vector<Tensors> ComputeCollective(const Operation& operation, const Operands& operands, const Ints& ranks) {
  const auto dim = [&](Attr attr) { return static_cast<size_t>(Get<int64_t>(operation, attr)); };
  std::vector<Tensors> results(operands.size());
  for (size_t i = 0; i < operation.results.size(); ++i) {
    const std::vector<const Tensor*> from = Column(operands, i);
    const size_t root = RootOf(operation, operands[0], i);
    Tensor common;  // what all ranks get, or get parts of
    switch (operation.kind) {
      case OpKind::kAllGather:
        common = Join(from, dim(Attr::kDim));
        break;
      case OpKind::kAllReduce:
      case OpKind::kCollectiveReduce:
      case OpKind::kCollectiveReduceTo:
      case OpKind::kReduceScatter:
        common = FoldAll(from, Get<Combine>(operation, Attr::kFold));
        break;
      case OpKind::kCollectiveBroadcast:
      case OpKind::kCollectiveBroadcastFrom:
        common = *from[root];
        break;
      default:
        break;
    }
    for (size_t p = 0; p < operands.size(); ++p) {
      switch (operation.kind) {
        case OpKind::kReduceScatter:
          results[p].push_back(PartOf(common, dim(Attr::kDim), p, operands.size()));
          break;
        case OpKind::kAllToAll:
          results[p].push_back(ExchangeParts(from, p, dim(Attr::kSplitDim), dim(Attr::kConcatDim)));
          break;
        case OpKind::kCollectivePermute:
          results[p].push_back(Permuted(operation, from, ranks, p));
          break;
        case OpKind::kCollectiveReduce:
        case OpKind::kCollectiveReduceTo:
          results[p].push_back(p == root ? common : Tensor::Zeros(common.type));
          break;
        default:
          results[p].push_back(common);
      }
    }
  }
  return results;
}

}  // namespace axccl::program
