#include "src/program/simulate/work.h"

#include "src/program/check/rules.h"

namespace axccl::program {
namespace {

// The elements over which each element of the result sums.
double Contracted(const Operation& operation, const TensorType& lhs) {
  if (operation.kind == OpKind::kDot) return static_cast<double>(lhs.dims.back());
  double contracted = 1;
  for (const int64_t dim : Get<Ints>(operation, Attr::kLhsContractingDims))
    contracted *= static_cast<double>(lhs.dims[static_cast<size_t>(dim)]);
  return contracted;
}

}  // namespace

double BytesOf(const TensorType& type) {
  return static_cast<double>(Elements(type)) * static_cast<double>(ElementSize(type.data_type));
}

bool IsIdle(OpKind kind) {
  return kind == OpKind::kConstant || kind == OpKind::kPartitionId || kind == OpKind::kReplicaId ||
         kind == OpKind::kOptimizationBarrier || kind == OpKind::kFree;
}

Work WorkOf(const Operation& operation, const std::vector<const TensorType*>& operands) {
  Work work;
  if (IsIdle(operation.kind)) return work;
  for (const Value& result : operation.results) work.written += BytesOf(result.type);
  for (const TensorType* operand : operands) work.read += BytesOf(*operand);
  const double elements = static_cast<double>(Elements(operation.results[0].type));
  switch (operation.kind) {
    case OpKind::kDot:
    case OpKind::kDotGeneral:
      work.flops = 2 * elements * Contracted(operation, *operands[0]);
      work.product = true;
      break;
    case OpKind::kReduce:
      work.flops = static_cast<double>(Elements(*operands[0]));
      break;
    case OpKind::kScatter:
      work.flops = static_cast<double>(Elements(*operands[2]));
      break;
    case OpKind::kDynamicSlice:
    case OpKind::kGather:
    case OpKind::kSlice:
      work.read += work.written - BytesOf(*operands[0]);
      break;
    default:
      if (IsElementwise(operation.kind) && operation.kind != OpKind::kCopy) work.flops = elements;
      break;
  }
  return work;
}

}  // namespace axccl::program
