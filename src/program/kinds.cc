#include "src/program/kinds.h"

#include <algorithm>
#include <iterator>

namespace axccl::program {
namespace {

constexpr AttrInfo kAttrs[] = {
    {Attr::kNone, "", AttrType::kNumber},
    {Attr::kChannel, "channel", AttrType::kNumber},
    {Attr::kCollapsedSliceDims, "collapsed_slice_dims", AttrType::kList},
    {Attr::kConcatDim, "concat_dim", AttrType::kNumber},
    {Attr::kDim, "dim", AttrType::kNumber},
    {Attr::kDims, "dims", AttrType::kList},
    {Attr::kDirection, "direction", AttrType::kDirection},
    {Attr::kFold, "fold", AttrType::kFold},
    {Attr::kGroups, "groups", AttrType::kGroups},
    {Attr::kHigh, "high", AttrType::kSignedList},
    {Attr::kIndexVectorDim, "index_vector_dim", AttrType::kNumber},
    {Attr::kInputBatchingDims, "input_batching_dims", AttrType::kList},
    {Attr::kInsertedWindowDims, "inserted_window_dims", AttrType::kList},
    {Attr::kInterior, "interior", AttrType::kList},
    {Attr::kLhsBatchingDims, "lhs_batching_dims", AttrType::kList},
    {Attr::kLhsContractingDims, "lhs_contracting_dims", AttrType::kList},
    {Attr::kLimits, "limits", AttrType::kList},
    {Attr::kLow, "low", AttrType::kSignedList},
    {Attr::kOffsetDims, "offset_dims", AttrType::kList},
    {Attr::kOperandBatchingDims, "operand_batching_dims", AttrType::kList},
    {Attr::kPairs, "pairs", AttrType::kPairs},
    {Attr::kRhsBatchingDims, "rhs_batching_dims", AttrType::kList},
    {Attr::kRhsContractingDims, "rhs_contracting_dims", AttrType::kList},
    {Attr::kScatterDimsToOperandDims, "scatter_dims_to_operand_dims", AttrType::kList},
    {Attr::kScatterIndicesBatchingDims, "scatter_indices_batching_dims", AttrType::kList},
    {Attr::kSizes, "sizes", AttrType::kList},
    {Attr::kSplitDim, "split_dim", AttrType::kNumber},
    {Attr::kStartIndexMap, "start_index_map", AttrType::kList},
    {Attr::kStartIndicesBatchingDims, "start_indices_batching_dims", AttrType::kList},
    {Attr::kStarts, "starts", AttrType::kList},
    {Attr::kStrides, "strides", AttrType::kList},
    {Attr::kUpdateWindowDims, "update_window_dims", AttrType::kList},
    {Attr::kValue, "value", AttrType::kLiteral},
};

constexpr KindInfo Elementwise(OpKind kind, std::string_view name, int operands) {
  return {kind, name, operands, operands, Results::kOne, {}, {}};
}

constexpr KindInfo kKinds[] = {
    Elementwise(OpKind::kAbs, "abs", 1),
    Elementwise(OpKind::kAdd, "add", 2),
    Elementwise(OpKind::kAnd, "and", 2),
    Elementwise(OpKind::kClamp, "clamp", 3),
    {OpKind::kCompare, "compare", 2, 2, Results::kOne, {Attr::kDirection}, {}},
    Elementwise(OpKind::kConvert, "convert", 1),
    Elementwise(OpKind::kCopy, "copy", 1),
    Elementwise(OpKind::kCosine, "cosine", 1),
    Elementwise(OpKind::kDivide, "divide", 2),
    Elementwise(OpKind::kExponential, "exponential", 1),
    Elementwise(OpKind::kFloor, "floor", 1),
    Elementwise(OpKind::kIsFinite, "is_finite", 1),
    Elementwise(OpKind::kLog, "log", 1),
    Elementwise(OpKind::kMaximum, "maximum", 2),
    Elementwise(OpKind::kMinimum, "minimum", 2),
    Elementwise(OpKind::kMultiply, "multiply", 2),
    Elementwise(OpKind::kNegate, "negate", 1),
    Elementwise(OpKind::kNot, "not", 1),
    Elementwise(OpKind::kOr, "or", 2),
    Elementwise(OpKind::kPower, "power", 2),
    Elementwise(OpKind::kRemainder, "remainder", 2),
    Elementwise(OpKind::kRsqrt, "rsqrt", 1),
    Elementwise(OpKind::kSelect, "select", 3),
    Elementwise(OpKind::kSign, "sign", 1),
    Elementwise(OpKind::kSine, "sine", 1),
    Elementwise(OpKind::kSqrt, "sqrt", 1),
    Elementwise(OpKind::kSubtract, "subtract", 2),
    Elementwise(OpKind::kTanh, "tanh", 1),
    Elementwise(OpKind::kXor, "xor", 2),

    {OpKind::kBroadcastInDim, "broadcast_in_dim", 1, 1, Results::kOne, {Attr::kDims}, {}},
    {OpKind::kConcatenate, "concatenate", 1, kAnyNumber, Results::kOne, {Attr::kDim}, {}},
    {OpKind::kConstant, "constant", 0, 0, Results::kOne, {Attr::kValue}, {}},
    {OpKind::kDot, "dot", 2, 2, Results::kOne, {}, {}},
    {OpKind::kDotGeneral,
     "dot_general",
     2,
     2,
     Results::kOne,
     {Attr::kLhsBatchingDims, Attr::kRhsBatchingDims, Attr::kLhsContractingDims, Attr::kRhsContractingDims},
     {}},
    // The operand, then one start for each dimension; dynamic_update_slice has the update between them.
    {OpKind::kDynamicSlice, "dynamic_slice", 1, 1 + kMaxDims, Results::kOne, {Attr::kSizes}, {}},
    {OpKind::kDynamicUpdateSlice, "dynamic_update_slice", 2, 2 + kMaxDims, Results::kOne, {}, {}},
    {OpKind::kGather,
     "gather",
     2,
     2,
     Results::kOne,
     {Attr::kOffsetDims, Attr::kCollapsedSliceDims, Attr::kOperandBatchingDims, Attr::kStartIndicesBatchingDims,
      Attr::kStartIndexMap, Attr::kIndexVectorDim, Attr::kSizes},
     {}},
    {OpKind::kIota, "iota", 0, 0, Results::kOne, {Attr::kDim}, {}},
    {OpKind::kPad, "pad", 2, 2, Results::kOne, {Attr::kLow, Attr::kHigh, Attr::kInterior}, {}},
    {OpKind::kReduce, "reduce", 2, 2, Results::kOne, {Attr::kFold, Attr::kDims}, {}},
    {OpKind::kReshape, "reshape", 1, 1, Results::kOne, {}, {}},
    {OpKind::kReverse, "reverse", 1, 1, Results::kOne, {Attr::kDims}, {}},
    {OpKind::kScatter,
     "scatter",
     3,
     3,
     Results::kOne,
     {Attr::kFold, Attr::kUpdateWindowDims, Attr::kInsertedWindowDims, Attr::kInputBatchingDims,
      Attr::kScatterIndicesBatchingDims, Attr::kScatterDimsToOperandDims, Attr::kIndexVectorDim},
     {}},
    {OpKind::kSlice, "slice", 1, 1, Results::kOne, {Attr::kStarts, Attr::kLimits, Attr::kStrides}, {}},
    {OpKind::kTranspose, "transpose", 1, 1, Results::kOne, {Attr::kDims}, {}},

    {OpKind::kAllGather,
     "all_gather",
     1,
     kAnyNumber,
     Results::kOnePerOperand,
     {Attr::kDim, Attr::kGroups, Attr::kChannel},
     {}},
    {OpKind::kAllReduce,
     "all_reduce",
     1,
     kAnyNumber,
     Results::kOnePerOperand,
     {Attr::kFold, Attr::kGroups, Attr::kChannel},
     {}},
    {OpKind::kAllToAll,
     "all_to_all",
     1,
     kAnyNumber,
     Results::kOnePerOperand,
     {Attr::kSplitDim, Attr::kConcatDim, Attr::kGroups, Attr::kChannel},
     {}},
    {OpKind::kCollectiveBroadcast,
     "collective_broadcast",
     1,
     kAnyNumber,
     Results::kOnePerOperand,
     {Attr::kGroups, Attr::kChannel},
     {}},
    // The roots are behind the operands.
    {OpKind::kCollectiveBroadcastFrom,
     "collective_broadcast_from",
     2,
     kAnyNumber,
     Results::kOnePerOperandButLast,
     {Attr::kGroups, Attr::kChannel},
     {}},
    {OpKind::kCollectivePermute, "collective_permute", 1, 1, Results::kOne, {Attr::kPairs, Attr::kChannel}, {}},
    {OpKind::kCollectiveReduce,
     "collective_reduce",
     1,
     kAnyNumber,
     Results::kOnePerOperand,
     {Attr::kFold, Attr::kGroups, Attr::kChannel},
     {}},
    {OpKind::kCollectiveReduceTo,
     "collective_reduce_to",
     2,
     kAnyNumber,
     Results::kOnePerOperandButLast,
     {Attr::kFold, Attr::kGroups, Attr::kChannel},
     {}},
    {OpKind::kPartitionId, "partition_id", 0, 0, Results::kOne, {}, {}},
    {OpKind::kRecv, "recv", 0, 0, Results::kOne, {Attr::kPairs, Attr::kChannel}, {}},
    {OpKind::kReduceScatter,
     "reduce_scatter",
     1,
     1,
     Results::kOne,
     {Attr::kFold, Attr::kDim, Attr::kGroups, Attr::kChannel},
     {}},
    {OpKind::kReplicaId, "replica_id", 0, 0, Results::kOne, {}, {}},
    {OpKind::kSend, "send", 1, 1, Results::kNone, {Attr::kPairs, Attr::kChannel}, {}},

    {OpKind::kFree, "free", 1, kAnyNumber, Results::kNone, {}, {}},
    {OpKind::kIf, "if", 1, 1, Results::kAny, {}, {"then", "else"}},
    {OpKind::kOptimizationBarrier, "optimization_barrier", 1, kAnyNumber, Results::kOnePerOperand, {}, {}},
    {OpKind::kWhile, "while", 1, kAnyNumber, Results::kOnePerOperand, {}, {"cond", "body"}},
};

template <class Rows, class Key>
constexpr bool IsIndexed(const Rows& rows, Key key) {
  for (size_t i = 0; i < std::size(rows); ++i) {
    if (static_cast<size_t>(rows[i].*key) != i) return false;
  }
  return true;
}
static_assert(IsIndexed(kKinds, &KindInfo::kind) && std::size(kKinds) == size_t(OpKind::kWhile) + 1);
static_assert(IsIndexed(kAttrs, &AttrInfo::attr) && std::size(kAttrs) == size_t(Attr::kValue) + 1);

template <class T>
struct Word {
  T value;
  std::string_view name;
};

constexpr Word<DataType> kDataTypeNames[] = {
    {DataType::kFloat64, "f64"}, {DataType::kFloat32, "f32"}, {DataType::kBfloat16, "bf16"},
    {DataType::kFloat16, "f16"}, {DataType::kBool, "i1"},     {DataType::kInt8, "i8"},
    {DataType::kInt16, "i16"},   {DataType::kInt32, "i32"},   {DataType::kInt64, "i64"},
    {DataType::kUint8, "u8"},    {DataType::kUint16, "u16"},  {DataType::kUint32, "u32"},
    {DataType::kUint64, "u64"},
};
constexpr Word<Combine> kFoldNames[] = {
    {Combine::kSum, "add"}, {Combine::kProd, "mul"}, {Combine::kMax, "max"}, {Combine::kMin, "min"},
    {Combine::kAnd, "and"}, {Combine::kOr, "or"},    {Combine::kXor, "xor"},
};
constexpr Word<Direction> kDirectionNames[] = {
    {Direction::kEq, "EQ"}, {Direction::kNe, "NE"}, {Direction::kGe, "GE"},
    {Direction::kGt, "GT"}, {Direction::kLe, "LE"}, {Direction::kLt, "LT"},
};

template <class T, size_t kSize>
std::string_view NameIn(const Word<T> (&words)[kSize], T value) {
  const auto found = std::find_if(words, words + kSize, [&](const Word<T>& word) { return word.value == value; });
  return found == words + kSize ? std::string_view() : found->name;
}

template <class T, size_t kSize>
bool FindIn(const Word<T> (&words)[kSize], std::string_view name, T* value) {
  const auto found = std::find_if(words, words + kSize, [&](const Word<T>& word) { return word.name == name; });
  if (found == words + kSize) return false;
  *value = found->value;
  return true;
}

}  // namespace

std::span<const Attr> KindInfo::attributes() const {
  return {attribute_list, std::find(attribute_list, std::end(attribute_list), Attr::kNone)};
}

std::span<const std::string_view> KindInfo::regions() const {
  return {region_list, std::find(region_list, std::end(region_list), std::string_view())};
}

std::optional<size_t> KindInfo::ResultsOf(size_t operands) const {
  switch (results) {
    case Results::kNone:
      return 0;
    case Results::kOne:
      return 1;
    case Results::kOnePerOperand:
      return operands;
    case Results::kOnePerOperandButLast:
      return operands == 0 ? 0 : operands - 1;
    case Results::kAny:
      break;
  }
  return std::nullopt;
}

std::span<const KindInfo> Kinds() { return kKinds; }
const KindInfo& InfoOf(OpKind kind) { return kKinds[static_cast<size_t>(kind)]; }
const AttrInfo& InfoOf(Attr attr) { return kAttrs[static_cast<size_t>(attr)]; }

const KindInfo* FindKind(std::string_view name) {
  const auto found = std::find_if(std::begin(kKinds), std::end(kKinds), [&](const auto& i) { return i.name == name; });
  return found == std::end(kKinds) ? nullptr : found;
}

std::string_view NameOf(DataType type) { return NameIn(kDataTypeNames, type); }
std::string_view NameOf(Combine fold) { return NameIn(kFoldNames, fold); }
std::string_view NameOf(Direction direction) { return NameIn(kDirectionNames, direction); }
bool Find(std::string_view name, DataType* type) { return FindIn(kDataTypeNames, name, type); }
bool Find(std::string_view name, Combine* fold) { return FindIn(kFoldNames, name, fold); }
bool Find(std::string_view name, Direction* direction) { return FindIn(kDirectionNames, name, direction); }

bool operator==(const Operation& a, const Operation& b) {
  return a.kind == b.kind && a.id == b.id && a.operands == b.operands && a.results == b.results &&
         a.attributes == b.attributes && a.regions == b.regions;
}

int64_t Elements(const TensorType& type) {
  int64_t elements = 1;
  for (const int64_t dim : type.dims) elements *= dim;
  return elements;
}

bool IsSmall(const TensorType& type) {
  uint64_t bytes = ElementSize(type.data_type);
  for (const int64_t dim : type.dims) {
    if (dim > 0 && __builtin_mul_overflow(bytes, static_cast<uint64_t>(dim), &bytes)) return false;
  }
  return bytes <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
}

bool IsInteger(DataType type) { return !IsFloat(type) && !IsComplex(type) && type != DataType::kBool; }

bool IsUnsigned(DataType type) {
  return type == DataType::kUint8 || type == DataType::kUint16 || type == DataType::kUint32 ||
         type == DataType::kUint64;
}

}  // namespace axccl::program
