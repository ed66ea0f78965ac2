#include "src/program/stablehlo/names.h"

#include <algorithm>
#include <iterator>

#include "src/program/kinds.h"
#include "src/program/stablehlo/scanner.h"

namespace axccl::program::stablehlo {
namespace {

constexpr Source kSources[] = {
    {OpKind::kAllGather, Attr::kDim, "all_gather_dim", ""},
    {OpKind::kAllToAll, Attr::kConcatDim, "concat_dimension", ""},
    {OpKind::kAllToAll, Attr::kSplitDim, "split_dimension", ""},
    {OpKind::kBroadcastInDim, Attr::kDims, "broadcast_dimensions", ""},
    {OpKind::kCompare, Attr::kDirection, "comparison_direction", ""},
    {OpKind::kConcatenate, Attr::kDim, "dimension", ""},
    {OpKind::kConstant, Attr::kValue, "value", ""},
    {OpKind::kDotGeneral, Attr::kLhsBatchingDims, "dot_dimension_numbers", "lhs_batching_dimensions"},
    {OpKind::kDotGeneral, Attr::kRhsBatchingDims, "dot_dimension_numbers", "rhs_batching_dimensions"},
    {OpKind::kDotGeneral, Attr::kLhsContractingDims, "dot_dimension_numbers", "lhs_contracting_dimensions"},
    {OpKind::kDotGeneral, Attr::kRhsContractingDims, "dot_dimension_numbers", "rhs_contracting_dimensions"},
    {OpKind::kDynamicSlice, Attr::kSizes, "slice_sizes", ""},
    {OpKind::kGather, Attr::kOffsetDims, "dimension_numbers", "offset_dims"},
    {OpKind::kGather, Attr::kCollapsedSliceDims, "dimension_numbers", "collapsed_slice_dims"},
    {OpKind::kGather, Attr::kOperandBatchingDims, "dimension_numbers", "operand_batching_dims"},
    {OpKind::kGather, Attr::kStartIndicesBatchingDims, "dimension_numbers", "start_indices_batching_dims"},
    {OpKind::kGather, Attr::kStartIndexMap, "dimension_numbers", "start_index_map"},
    {OpKind::kGather, Attr::kIndexVectorDim, "dimension_numbers", "index_vector_dim"},
    {OpKind::kGather, Attr::kSizes, "slice_sizes", ""},
    {OpKind::kIota, Attr::kDim, "iota_dimension", ""},
    {OpKind::kPad, Attr::kHigh, "edge_padding_high", ""},
    {OpKind::kPad, Attr::kInterior, "interior_padding", ""},
    {OpKind::kPad, Attr::kLow, "edge_padding_low", ""},
    {OpKind::kReduce, Attr::kDims, "dimensions", ""},
    {OpKind::kReduceScatter, Attr::kDim, "scatter_dimension", ""},
    {OpKind::kReverse, Attr::kDims, "dimensions", ""},
    {OpKind::kScatter, Attr::kUpdateWindowDims, "scatter_dimension_numbers", "update_window_dims"},
    {OpKind::kScatter, Attr::kInsertedWindowDims, "scatter_dimension_numbers", "inserted_window_dims"},
    {OpKind::kScatter, Attr::kInputBatchingDims, "scatter_dimension_numbers", "input_batching_dims"},
    {OpKind::kScatter, Attr::kScatterIndicesBatchingDims, "scatter_dimension_numbers", "scatter_indices_batching_dims"},
    {OpKind::kScatter, Attr::kScatterDimsToOperandDims, "scatter_dimension_numbers", "scatter_dims_to_operand_dims"},
    {OpKind::kScatter, Attr::kIndexVectorDim, "scatter_dimension_numbers", "index_vector_dim"},
    {OpKind::kSlice, Attr::kLimits, "limit_indices", ""},
    {OpKind::kSlice, Attr::kStarts, "start_indices", ""},
    {OpKind::kSlice, Attr::kStrides, "strides", ""},
    {OpKind::kTranspose, Attr::kDims, "permutation", ""},
};

// What operations may have besides.
struct Extra {
  OpKind kind;
  std::string_view key;
};
constexpr Extra kExtras[] = {
    // their meaning is in groups, pairs and channel
    {OpKind::kAllGather, "channel_handle"},
    {OpKind::kAllGather, "replica_groups"},
    {OpKind::kAllGather, "use_global_device_ids"},
    {OpKind::kAllReduce, "channel_handle"},
    {OpKind::kAllReduce, "replica_groups"},
    {OpKind::kAllReduce, "use_global_device_ids"},
    {OpKind::kAllToAll, "channel_handle"},
    {OpKind::kAllToAll, "replica_groups"},
    {OpKind::kAllToAll, "split_count"},
    {OpKind::kCollectiveBroadcast, "channel_handle"},
    {OpKind::kCollectiveBroadcast, "replica_groups"},
    {OpKind::kCollectiveBroadcastFrom, "channel_handle"},
    {OpKind::kCollectiveBroadcastFrom, "has_dynamic_root"},
    {OpKind::kCollectiveBroadcastFrom, "replica_groups"},
    {OpKind::kCollectivePermute, "channel_handle"},
    {OpKind::kCollectivePermute, "source_target_pairs"},
    {OpKind::kCollectiveReduce, "channel_handle"},
    {OpKind::kCollectiveReduce, "replica_groups"},
    {OpKind::kCollectiveReduce, "use_global_device_ids"},
    {OpKind::kCollectiveReduceTo, "channel_handle"},
    {OpKind::kCollectiveReduceTo, "has_dynamic_root"},
    {OpKind::kCollectiveReduceTo, "replica_groups"},
    {OpKind::kCollectiveReduceTo, "use_global_device_ids"},
    {OpKind::kReduceScatter, "channel_handle"},
    {OpKind::kReduceScatter, "replica_groups"},
    {OpKind::kReduceScatter, "use_global_device_ids"},
    // TOTALORDER is refused
    {OpKind::kCompare, "compare_type"},
    // hints to compilers
    {OpKind::kCosine, "result_accuracy"},
    {OpKind::kDot, "precision_config"},
    {OpKind::kDotGeneral, "precision_config"},
    {OpKind::kExponential, "result_accuracy"},
    {OpKind::kGather, "indices_are_sorted"},
    {OpKind::kLog, "result_accuracy"},
    {OpKind::kRsqrt, "result_accuracy"},
    {OpKind::kScatter, "indices_are_sorted"},
    {OpKind::kScatter, "unique_indices"},
    {OpKind::kSine, "result_accuracy"},
    {OpKind::kSqrt, "result_accuracy"},
    {OpKind::kTanh, "result_accuracy"},
};

// Operations of programs that have no counterpart of that name.
bool IsOwn(OpKind kind) {
  return kind == OpKind::kCopy || kind == OpKind::kFree || kind == OpKind::kRecv || kind == OpKind::kSend ||
         kind == OpKind::kCollectiveBroadcastFrom || kind == OpKind::kCollectiveReduceTo;
}

void Append(std::string_view word, std::string* list) { *list += (list->empty() ? "" : ", ") + std::string(word); }

}  // namespace

bool FindKind(std::string_view name, OpKind* kind) {
  constexpr std::string_view kDialect = "stablehlo.";
  *kind = OpKind::kCopy;
  if (name == "mhlo.copy") return true;
  if (!name.starts_with(kDialect)) return false;
  const KindInfo* const info = program::FindKind(name.substr(kDialect.size()));
  if (info == nullptr || IsOwn(info->kind)) return false;
  *kind = info->kind;
  return true;
}

bool FindKind(const Op& op, OpKind* kind) {
  if (!FindKind(op.name, kind)) return false;
  if (Find(op.attributes, "has_dynamic_root") == nullptr) return true;
  if (*kind == OpKind::kCollectiveBroadcast) *kind = OpKind::kCollectiveBroadcastFrom;
  if (*kind == OpKind::kCollectiveReduce) *kind = OpKind::kCollectiveReduceTo;
  return true;
}

std::string RefusedOp(std::string_view name) {
  std::string list;
  for (const KindInfo& info : Kinds()) {
    if (!IsOwn(info.kind)) Append(info.name, &list);
  }
  return "the operation " + Quote(name) +
         " is not supported; supported are func.call, mhlo.copy, sdy.manual_computation, and of stablehlo " + list;
}

std::span<const Source> Sources() { return kSources; }

bool IsIgnored(std::string_view key) {
  return key.starts_with("mhlo.") || key.starts_with("jax.") || key == "sdy.sharding" || key == "result_layout" ||
         key == "xla_shape";
}

bool MayHave(OpKind kind, std::string_view key) {
  const auto has = [&](const auto& row) { return row.kind == kind && row.key == key; };
  return IsIgnored(key) || std::any_of(std::begin(kSources), std::end(kSources), has) ||
         std::any_of(std::begin(kExtras), std::end(kExtras), has);
}

std::string RefusedAttribute(std::string_view owner, std::string_view key, std::string_view keys) {
  const std::string supported = keys.empty() ? "" : "supported are " + std::string(keys) + "; ";
  return "the attribute " + Quote(key) + " of " + std::string(owner) + " is not supported; " + supported +
         "ignored are mhlo.*, jax.*, sdy.sharding, result_layout and xla_shape";
}

std::string KeysOf(OpKind kind) {
  std::string list;
  std::string_view last;
  for (const Source& row : kSources) {
    if (row.kind == kind && row.key != last) Append(last = row.key, &list);
  }
  for (const Extra& row : kExtras) {
    if (row.kind == kind) Append(row.key, &list);
  }
  return list;
}

}  // namespace axccl::program::stablehlo
