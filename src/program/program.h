// Distributed tensor programs as data: what every rank computes and communicates.
//
// A program is a list of parts. A part is a function in SSA form that a set of ranks runs: one part for all ranks, or
// several that differ, such as the stages of a pipeline. Operations mean what StableHLO's operations of the same name
// mean; send, recv and free are of this IR. kinds.h lists what each kind of operation has.
//
// Everything here is plain data: values that own what they hold, without state shared between them. The parser returns
// only well-formed programs, and whoever makes one by hand must keep to the same rules:
//   - within a part, regions included, no two arguments, results or operations without results have the same id
//   - an operand is defined before its use, in the function itself or in one around it
//   - operands, results, attributes and regions of an operation are as many as its row of kinds.h says
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "src/base/types.h"

namespace axccl::program {

inline constexpr int kMaxRanks = 1 << 20;
inline constexpr int kMaxDims = 8;  // as in the library's views
inline constexpr size_t kMaxName = 64;
inline constexpr int kMaxNesting = 16;  // of regions within each other

using Ints = std::vector<int64_t>;
using Groups = std::vector<Ints>;

// The data type is one of those that kinds.h names. A type has less than 2^63 bytes.
struct TensorType {
  DataType data_type = DataType::kFloat32;
  Ints dims;

  friend bool operator==(const TensorType&, const TensorType&) = default;
};

using Id = uint32_t;

struct Value {
  Id id = 0;
  TensorType type;
  bool donated = false;  // only for arguments of a part: the caller gives its memory away

  friend bool operator==(const Value&, const Value&) = default;
};

enum class OpKind : uint8_t {
  // element by element
  kAbs,
  kAdd,
  kAnd,
  kClamp,
  kCompare,
  kConvert,
  kCopy,
  kCosine,
  kDivide,
  kExponential,
  kFloor,
  kIsFinite,
  kLog,
  kMaximum,
  kMinimum,
  kMultiply,
  kNegate,
  kNot,
  kOr,
  kPower,
  kRemainder,
  kRsqrt,
  kSelect,
  kSign,
  kSine,
  kSqrt,
  kSubtract,
  kTanh,
  kXor,
  // whole tensors
  kBroadcastInDim,
  kConcatenate,
  kConstant,
  kDot,
  kDotGeneral,
  kDynamicSlice,
  kDynamicUpdateSlice,
  kGather,
  kIota,
  kPad,
  kReduce,
  kReshape,
  kReverse,
  kScatter,
  kSlice,
  kTranspose,
  // between ranks
  kAllGather,
  kAllReduce,
  kAllToAll,
  kCollectiveBroadcast,
  kCollectiveBroadcastFrom,
  kCollectivePermute,
  kCollectiveReduce,
  kCollectiveReduceTo,
  kPartitionId,
  kRecv,
  kReduceScatter,
  kReplicaId,
  kSend,
  // control
  kFree,
  kIf,
  kOptimizationBarrier,
  kWhile,
};

enum class Attr : uint8_t {
  kNone,  // not an attribute; ends the lists of kinds.h
  kChannel,
  kCollapsedSliceDims,
  kConcatDim,
  kDim,
  kDims,
  kDirection,
  kFold,
  kGroups,
  kHigh,
  kIndexVectorDim,
  kInputBatchingDims,
  kInsertedWindowDims,
  kInterior,
  kLhsBatchingDims,
  kLhsContractingDims,
  kLimits,
  kLow,
  kOffsetDims,
  kOperandBatchingDims,
  kPairs,
  kRhsBatchingDims,
  kRhsContractingDims,
  kScatterDimsToOperandDims,
  kScatterIndicesBatchingDims,
  kSizes,
  kSplitDim,
  kStartIndexMap,
  kStartIndicesBatchingDims,
  kStarts,
  kStrides,
  kUpdateWindowDims,
  kValue,
};

enum class Direction : uint8_t { kEq, kNe, kGe, kGt, kLe, kLt };

// The elements of a constant, of the constant's data type and in the machine's byte order: all of them in row-major
// order, or one that all are equal to. Elements of kBool are 0 or 1.
struct Literal {
  std::vector<uint8_t> bytes;

  friend bool operator==(const Literal&, const Literal&) = default;
};

struct Attribute {
  Attr attr = Attr::kNone;
  // Which alternative follows from `attr`, see kinds.h. A Combine is the single operation of a reduction.
  std::variant<int64_t, Ints, Groups, Combine, Direction, Literal> value;

  friend bool operator==(const Attribute&, const Attribute&) = default;
};

struct Function;

struct Operation {
  OpKind kind = OpKind::kAdd;
  Id id = 0;  // that of the first result, if there is one; errors and traces name the operation by it
  std::vector<Id> operands;
  std::vector<Value> results;
  std::vector<Attribute> attributes;  // those of the kind, in the order of its row
  std::vector<Function> regions;      // likewise

  friend bool operator==(const Operation& a, const Operation& b);
};

struct Function {
  std::string name;  // of the part, or of the region: "cond", "body", "then", "else"
  std::vector<Value> arguments;
  std::vector<Operation> operations;
  std::vector<Id> results;

  friend bool operator==(const Function&, const Function&) = default;
};

// No rank is in two parts. A rank without a part does nothing.
struct Part {
  Ints ranks;  // ascending, not empty
  Function function;

  friend bool operator==(const Part&, const Part&) = default;
};

struct Program {
  int ranks = 1;
  std::vector<Part> parts;  // not empty; their names differ

  friend bool operator==(const Program&, const Program&) = default;
};

// The number of elements.
int64_t Elements(const TensorType& type);
// Whether the type has less than 2^63 bytes, also where sizes of 0 are counted as 1.
bool IsSmall(const TensorType& type);

// The attribute of an operation that has it, as the alternative of its type.
template <class T>
const T& Get(const Operation& operation, Attr attr) {
  size_t i = 0;
  while (operation.attributes[i].attr != attr) ++i;
  return std::get<T>(operation.attributes[i].value);
}

}  // namespace axccl::program
