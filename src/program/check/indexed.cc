#include <algorithm>

#include "src/program/check/rules.h"

namespace axccl::program {
namespace {

bool HasDim(const Ints& list, size_t number) {
  return std::find(list.begin(), list.end(), static_cast<int64_t>(number)) != list.end();
}

int64_t DimOf(const TensorType& type, int64_t dim) { return type.dims[static_cast<size_t>(dim)]; }

// The sizes of the two operands along corresponding dimensions must be equal.
Status CheckEqualDims(const Site& site, Attr a, size_t operand_a, Attr b, size_t operand_b, const char* constraint) {
  const TensorType &left = site.operand(operand_a), &right = site.operand(operand_b);
  for (size_t i = 0; i < site.list(a).size(); ++i) {
    const int64_t dim_a = site.list(a)[i], dim_b = site.list(b)[i];
    if (DimOf(left, dim_a) != DimOf(right, dim_b))
      return site.FailOperand(operand_b, constraint,
                              std::to_string(DimOf(left, dim_a)) + " in dimension " + std::to_string(dim_b) +
                                  ", as dimension " + std::to_string(dim_a) + " of %" +
                                  std::to_string(site.operation.operands[operand_a]));
  }
  return Status();
}

// ---- dot ----

// A product may be of the type of the operands, or of a larger one of the same sort.
Status CheckProductType(const Site& site) {
  const DataType from = site.operand(0).data_type, to = site.result().data_type;
  const bool is_same_sort = IsFloat(from) == IsFloat(to) && IsInteger(from) == IsInteger(to) &&
                            IsUnsigned(from) == IsUnsigned(to) && ElementSize(to) > ElementSize(from);
  if (from == to || is_same_sort) return Status();
  return site.FailResult(0, "", "elements of type " + std::string(NameOf(from)) + " or a larger one of that sort");
}

Status CheckPlainDot(const Site& site) {
  const TensorType &lhs = site.operand(0), &rhs = site.operand(1);
  AXCCL_RETURN_IF_ERROR(site.ExpectDataType(1, ""));
  for (size_t i = 0; i < 2; ++i) {
    if (Rank(site.operand(i)) < 1 || Rank(site.operand(i)) > 2) return site.FailOperand(i, "", "1 or 2 dimensions");
  }
  if (rhs.dims[0] != lhs.dims.back())
    return site.FailOperand(1, "",
                            std::to_string(lhs.dims.back()) + " in dimension 0, as the last dimension of %" +
                                std::to_string(site.operation.operands[0]));
  AXCCL_RETURN_IF_ERROR(CheckProductType(site));
  TensorType product{site.result().data_type, {}};
  if (Rank(lhs) == 2) product.dims.push_back(lhs.dims[0]);
  if (Rank(rhs) == 2) product.dims.push_back(rhs.dims[1]);
  return site.ExpectResult(0, product, "");
}

Status CheckDotLists(const Site& site) {
  constexpr Attr kLhsBatching = Attr::kLhsBatchingDims, kRhsBatching = Attr::kRhsBatchingDims;
  constexpr Attr kLhsContracting = Attr::kLhsContractingDims, kRhsContracting = Attr::kRhsContractingDims;
  const int64_t lhs = Rank(site.operand(0)), rhs = Rank(site.operand(1));
  const auto size = [&](Attr attr) { return static_cast<int64_t>(site.list(attr).size()); };
  AXCCL_RETURN_IF_ERROR(CheckLength(site, kRhsBatching, size(kLhsBatching), "(C1)"));
  AXCCL_RETURN_IF_ERROR(CheckLength(site, kRhsContracting, size(kLhsContracting), "(C2)"));
  AXCCL_RETURN_IF_ERROR(CheckDisjoint(site, kLhsBatching, kLhsContracting, "(C3)"));
  AXCCL_RETURN_IF_ERROR(CheckDisjoint(site, kRhsBatching, kRhsContracting, "(C4)"));
  AXCCL_RETURN_IF_ERROR(CheckList(site, {kLhsBatching, lhs, "(C5)", nullptr}));
  AXCCL_RETURN_IF_ERROR(CheckList(site, {kLhsContracting, lhs, "(C6)", nullptr}));
  AXCCL_RETURN_IF_ERROR(CheckList(site, {kRhsBatching, rhs, "(C7)", nullptr}));
  AXCCL_RETURN_IF_ERROR(CheckList(site, {kRhsContracting, rhs, "(C8)", nullptr}));
  AXCCL_RETURN_IF_ERROR(CheckEqualDims(site, kLhsBatching, 0, kRhsBatching, 1, "(C9)"));
  return CheckEqualDims(site, kLhsContracting, 0, kRhsContracting, 1, "(C10)");
}

Status CheckDotGeneral(const Site& site) {
  const TensorType &lhs = site.operand(0), &rhs = site.operand(1);
  AXCCL_RETURN_IF_ERROR(CheckDotLists(site));
  AXCCL_RETURN_IF_ERROR(site.ExpectDataType(1, "(C13)"));
  AXCCL_RETURN_IF_ERROR(CheckProductType(site));
  TensorType product{site.result().data_type, {}};
  for (const int64_t dim : site.list(Attr::kLhsBatchingDims)) product.dims.push_back(DimOf(lhs, dim));
  const auto append_others = [&](const TensorType& type, Attr batching, Attr contracting) {
    for (size_t d = 0; d < type.dims.size(); ++d) {
      if (!HasDim(site.list(batching), d) && !HasDim(site.list(contracting), d)) product.dims.push_back(type.dims[d]);
    }
  };
  append_others(lhs, Attr::kLhsBatchingDims, Attr::kLhsContractingDims);
  append_others(rhs, Attr::kRhsBatchingDims, Attr::kRhsContractingDims);
  return site.ExpectResult(0, product, "(C12)");
}

// ---- gather, scatter ----

// The constraints that gather and scatter share, each under its own numbers. A tensor of windows (gather's result,
// scatter's updates) has the sizes of the indices, without those of the index vectors, and those of a window.
struct Indexing {
  Attr window_dims, collapsed_dims, operand_batching, indices_batching, index_map;
  const char *collapsed_range, *collapsed_unique, *collapsed_sorted, *batching_range, *batching_sorted;
  const char *indices_unique, *indices_range, *indices_vector, *batching_size, *batching_dims;
  const char *map_unique, *map_range, *map_size, *vector_dim, *rank;
};

constexpr Indexing kGather = {
    .window_dims = Attr::kOffsetDims,
    .collapsed_dims = Attr::kCollapsedSliceDims,
    .operand_batching = Attr::kOperandBatchingDims,
    .indices_batching = Attr::kStartIndicesBatchingDims,
    .index_map = Attr::kStartIndexMap,
    .collapsed_range = "(C8)",
    .collapsed_unique = "(C6)",
    .collapsed_sorted = "(C7)",
    .batching_range = "(C11)",
    .batching_sorted = "(C10)",
    .indices_unique = "(C13)",
    .indices_range = "(C14)",
    .indices_vector = "(C15)",
    .batching_size = "(C16)",
    .batching_dims = "(C17)",
    .map_unique = "(C18)",
    .map_range = "(C19)",
    .map_size = "(C3)",
    .vector_dim = "(C2)",
    .rank = "(C1)",
};
constexpr Indexing kScatter = {
    .window_dims = Attr::kUpdateWindowDims,
    .collapsed_dims = Attr::kInsertedWindowDims,
    .operand_batching = Attr::kInputBatchingDims,
    .indices_batching = Attr::kScatterIndicesBatchingDims,
    .index_map = Attr::kScatterDimsToOperandDims,
    .collapsed_range = "(C11)",
    .collapsed_unique = "(C9)",
    .collapsed_sorted = "(C10)",
    .batching_range = "(C13)",
    .batching_sorted = "(C12)",
    .indices_unique = "(C14)",
    .indices_range = "(C15)",
    .indices_vector = "(C16)",
    .batching_size = "(C17)",
    .batching_dims = "(C18)",
    .map_unique = "(C20)",
    .map_range = "(C21)",
    .map_size = "(C19)",
    .vector_dim = "(C22)",
    .rank = "(C2)",
};

Status CheckIndexing(const Site& site, const Indexing& c) {
  const TensorType &operand = site.operand(0), &indices = site.operand(1);
  const auto size = [&](Attr attr) { return static_cast<int64_t>(site.list(attr).size()); };
  if (!IsInteger(indices.data_type)) return site.FailOperand(1, "(I2)", "integers");
  if (size(c.window_dims) + size(c.collapsed_dims) + size(c.operand_batching) != Rank(operand))
    return site.Fail(c.rank, std::string(InfoOf(c.window_dims).name) + ", " +
                                 std::string(InfoOf(c.collapsed_dims).name) + " and " +
                                 std::string(InfoOf(c.operand_batching).name) + " do not have " +
                                 std::to_string(Rank(operand)) + " dimensions together");
  AXCCL_RETURN_IF_ERROR(CheckDim(site, Attr::kIndexVectorDim, Rank(indices) + 1, c.vector_dim));
  const int64_t vector_dim = site.number(Attr::kIndexVectorDim);
  const int64_t components = vector_dim < Rank(indices) ? DimOf(indices, vector_dim) : 1;
  AXCCL_RETURN_IF_ERROR(CheckLength(site, c.index_map, components, c.map_size));
  AXCCL_RETURN_IF_ERROR(CheckDisjoint(site, c.collapsed_dims, c.operand_batching, c.collapsed_unique));
  AXCCL_RETURN_IF_ERROR(
      CheckList(site, {c.collapsed_dims, Rank(operand), c.collapsed_range, nullptr, c.collapsed_sorted}));
  AXCCL_RETURN_IF_ERROR(
      CheckList(site, {c.operand_batching, Rank(operand), c.batching_range, nullptr, c.batching_sorted}));
  AXCCL_RETURN_IF_ERROR(CheckList(site, {c.indices_batching, Rank(indices), c.indices_range, c.indices_unique}));
  if (HasDim(site.list(c.indices_batching), static_cast<size_t>(vector_dim)))
    return site.Fail(c.indices_vector, std::string(InfoOf(c.indices_batching).name) + " has index_vector_dim");
  AXCCL_RETURN_IF_ERROR(CheckLength(site, c.indices_batching, size(c.operand_batching), c.batching_size));
  AXCCL_RETURN_IF_ERROR(CheckEqualDims(site, c.operand_batching, 0, c.indices_batching, 1, c.batching_dims));
  AXCCL_RETURN_IF_ERROR(CheckDisjoint(site, c.index_map, c.operand_batching, c.map_unique));
  return CheckList(site, {c.index_map, Rank(operand), c.map_range, nullptr});
}

// The sizes of a tensor of windows of the sizes `window`.
Ints SizesOfWindows(const Site& site, const Indexing& c, const Ints& window) {
  const TensorType& indices = site.operand(1);
  Ints sizes;
  size_t next_window = 0, next_batch = 0;
  const auto vector_dim = static_cast<size_t>(site.number(Attr::kIndexVectorDim));
  const size_t rank = window.size() + indices.dims.size() - (vector_dim < indices.dims.size() ? 1 : 0);
  for (size_t d = 0; d < rank; ++d) {
    if (HasDim(site.list(c.window_dims), d)) {
      sizes.push_back(window[next_window++]);
    } else {
      if (next_batch == vector_dim) ++next_batch;
      sizes.push_back(indices.dims[next_batch++]);
    }
  }
  return sizes;
}

// The sizes of a window, without those of dimensions that it does not have.
Ints WindowOf(const Site& site, const Indexing& c, const Ints& sizes) {
  Ints window;
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (!HasDim(site.list(c.collapsed_dims), d) && !HasDim(site.list(c.operand_batching), d))
      window.push_back(sizes[d]);
  }
  return window;
}

// The number of dimensions of a tensor of windows.
int64_t RankOfWindows(const Site& site, const Indexing& c) {
  const int64_t rank = Rank(site.operand(1));
  return static_cast<int64_t>(site.list(c.window_dims).size()) + rank -
         (site.number(Attr::kIndexVectorDim) < rank ? 1 : 0);
}

}  // namespace

Status CheckDot(const Site& site) {
  return site.operation.kind == OpKind::kDot ? CheckPlainDot(site) : CheckDotGeneral(site);
}

Status CheckGather(const Site& site) {
  const TensorType& operand = site.operand(0);
  const Ints& sizes = site.list(Attr::kSizes);
  AXCCL_RETURN_IF_ERROR(CheckIndexing(site, kGather));
  AXCCL_RETURN_IF_ERROR(CheckList(site, {Attr::kOffsetDims, RankOfWindows(site, kGather), "(C5)", "(C4)", "(C4)"}));
  AXCCL_RETURN_IF_ERROR(CheckLength(site, Attr::kSizes, Rank(operand), "(C20)"));
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d] < 0 || sizes[d] > operand.dims[d])
      return site.FailOperand(0, "(C21)",
                              "at least " + std::to_string(sizes[d]) + " in dimension " + std::to_string(d));
    const bool is_collapsed = HasDim(site.list(Attr::kCollapsedSliceDims), d);
    if (sizes[d] > 1 && (is_collapsed || HasDim(site.list(Attr::kOperandBatchingDims), d)))
      return site.Fail(is_collapsed ? "(C9)" : "(C12)",
                       "sizes has " + std::to_string(sizes[d]) + " in dimension " + std::to_string(d));
  }
  AXCCL_RETURN_IF_ERROR(site.ExpectResultDataType("(C23)"));
  const Ints window = WindowOf(site, kGather, sizes);
  return site.ExpectResult(0, {operand.data_type, SizesOfWindows(site, kGather, window)}, "(C22)");
}

Status CheckScatter(const Site& site) {
  const TensorType &operand = site.operand(0), &updates = site.operand(2);
  AXCCL_RETURN_IF_ERROR(CheckIndexing(site, kScatter));
  AXCCL_RETURN_IF_ERROR(site.ExpectDataType(2, "(C6)"));
  if (Rank(updates) != RankOfWindows(site, kScatter))
    return site.FailOperand(2, "(C4)", std::to_string(RankOfWindows(site, kScatter)) + " dimensions");
  AXCCL_RETURN_IF_ERROR(CheckList(site, {Attr::kUpdateWindowDims, Rank(updates), "(C8)", "(C7)", "(C7)"}));
  Ints window = WindowOf(site, kScatter, operand.dims);
  for (size_t i = 0; i < window.size(); ++i)
    window[i] = std::min(window[i], DimOf(updates, site.list(Attr::kUpdateWindowDims)[i]));
  AXCCL_RETURN_IF_ERROR(site.ExpectOperand(2, {operand.data_type, SizesOfWindows(site, kScatter, window)}, "(C4)"));
  AXCCL_RETURN_IF_ERROR(CheckFold(site, operand.data_type, "(C23)"));
  AXCCL_RETURN_IF_ERROR(site.ExpectResultDataType("(C25)"));
  return site.ExpectResult(0, operand, "(C24)");
}

}  // namespace axccl::program
