#include "src/program/simulate/distir.h"

#include <string>

#include "src/program/kinds.h"
#include "src/program/simulate/work.h"

namespace axccl::program {

double DistirModel::LocalSeconds(const Operation& operation, const std::vector<const TensorType*>& operands) const {
  if (IsIdle(operation.kind)) return 0;
  if (operation.kind == OpKind::kSlice || operation.kind == OpKind::kConcatenate ||
      operation.kind == OpKind::kReshape || operands.empty())
    return machine_.launch_seconds;
  double bytes = 0;
  for (const TensorType* operand : operands) bytes += BytesOf(*operand);
  const Work work = WorkOf(operation, operands);
  const double flops = work.product ? work.flops : static_cast<double>(Elements(*operands[0]));
  return machine_.launch_seconds + bytes / machine_.memory_bytes_per_second + flops / machine_.flops;
}

Result<double> DistirModel::Seconds(const Transfer& transfer) {
  const double ranks = static_cast<double>(transfer.ranks.size());
  const double seconds = transfer.operand_bytes / machine_.link_bytes_per_second;
  switch (transfer.operation.kind) {
    case OpKind::kAllGather:
    case OpKind::kAllReduce:
      return 2 * seconds * (ranks - 1) / ranks;
    case OpKind::kCollectivePermute:
    case OpKind::kRecv:
    case OpKind::kSend:
      return seconds;
    case OpKind::kCollectiveBroadcast:
    case OpKind::kCollectiveBroadcastFrom:
      return 0.0;
    default:
      return MakeStatus(Code::kInvalidArgument, "%%%u %s: DistIR's model has no such collective", transfer.operation.id,
                        std::string(InfoOf(transfer.operation.kind).name).c_str());
  }
}

}  // namespace axccl::program
