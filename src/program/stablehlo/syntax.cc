#include "src/program/stablehlo/syntax.h"

#include <algorithm>
#include <iterator>

namespace axccl::program::stablehlo {
namespace {

using enum Clause::Form;

constexpr Syntax kSyntax[] = {
    {OpKind::kAbs, Types::kSame, {}},
    {OpKind::kAdd, Types::kSame, {}},
    {OpKind::kAnd, Types::kSame, {}},
    {OpKind::kBroadcastInDim, Types::kFunction, {{kInts, "dims", "broadcast_dimensions"}}},
    {OpKind::kClamp, Types::kSame, {}},
    {OpKind::kCompare,
     Types::kFunction,
     {{kWord, "a direction", "comparison_direction"}, {kWord, "a type of comparison", "compare_type", true}},
     true},
    {OpKind::kConcatenate, Types::kFunction, {{kNumber, "dim", "dimension"}}},
    {OpKind::kConvert, Types::kSame, {}},
    {OpKind::kCopy, Types::kSame, {}},
    {OpKind::kCosine, Types::kSame, {}},
    {OpKind::kDivide, Types::kSame, {}},
    {OpKind::kDot, Types::kFunction, {{kPrecision, "precision", "precision_config", true}}},
    {OpKind::kDotGeneral,
     Types::kFunction,
     {{kPair, "batching_dims", "batching", true},
      {kPair, "contracting_dims", "contracting"},
      {kPrecision, "precision", "precision_config", true}}},
    {OpKind::kDynamicSlice, Types::kFunction, {{kInts, "sizes", "slice_sizes"}}},
    {OpKind::kDynamicUpdateSlice, Types::kFunction, {}},
    {OpKind::kExponential, Types::kSame, {}},
    {OpKind::kFloor, Types::kSame, {}},
    {OpKind::kIota, Types::kResult, {{kNumber, "dim", "iota_dimension"}}},
    {OpKind::kIsFinite, Types::kFunction, {}},
    {OpKind::kLog, Types::kSame, {}},
    {OpKind::kMaximum, Types::kSame, {}},
    {OpKind::kMinimum, Types::kSame, {}},
    {OpKind::kMultiply, Types::kSame, {}},
    {OpKind::kNegate, Types::kSame, {}},
    {OpKind::kNot, Types::kSame, {}},
    {OpKind::kOptimizationBarrier, Types::kEach, {}},
    {OpKind::kOr, Types::kSame, {}},
    {OpKind::kPad,
     Types::kFunction,
     {{kInts, "low", "edge_padding_low"},
      {kInts, "high", "edge_padding_high"},
      {kInts, "interior", "interior_padding"}}},
    {OpKind::kPartitionId, Types::kResult, {}},
    {OpKind::kPower, Types::kSame, {}},
    {OpKind::kRemainder, Types::kSame, {}},
    {OpKind::kReplicaId, Types::kResult, {}},
    {OpKind::kReshape, Types::kFunction, {}},
    {OpKind::kReverse, Types::kSame, {{kInts, "dims", "dimensions"}}},
    {OpKind::kRsqrt, Types::kSame, {}},
    {OpKind::kSelect, Types::kSelect, {}},
    {OpKind::kSign, Types::kSame, {}},
    {OpKind::kSine, Types::kSame, {}},
    {OpKind::kSlice, Types::kFunction, {}, false, true},
    {OpKind::kSqrt, Types::kSame, {}},
    {OpKind::kSubtract, Types::kSame, {}},
    {OpKind::kTanh, Types::kSame, {}},
    {OpKind::kTranspose, Types::kFunction, {{kInts, "dims", "permutation"}}},
    {OpKind::kXor, Types::kSame, {}},
};

}  // namespace

const Syntax* FindSyntax(OpKind kind) {
  const auto found =
      std::find_if(std::begin(kSyntax), std::end(kSyntax), [&](const Syntax& row) { return row.kind == kind; });
  return found == std::end(kSyntax) ? nullptr : found;
}

}  // namespace axccl::program::stablehlo
