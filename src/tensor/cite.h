// Citations in messages: the constraint of StableHLO's specification that a call violates. Depends on src/plan only;
// pure.
#pragma once

#include <string>

#include "src/plan/contract.h"

namespace axccl::tensor {

// Returns StableHLO's name of the operation, or null if it has none. Transfers between two ranks are its
// collective_permute.
constexpr const char* StableHloName(plan::Kind kind) {
  switch (kind) {
    case plan::Kind::kAllGather:
      return "all_gather";
    case plan::Kind::kAllReduce:
      return "all_reduce";
    case plan::Kind::kReduceScatter:
      return "reduce_scatter";
    case plan::Kind::kAllToAll:
      return "all_to_all";
    case plan::Kind::kBroadcast:
      return "collective_broadcast";
    case plan::Kind::kReduce:
      return "collective_reduce";
    case plan::Kind::kSendRecv:
      return "collective_permute";
    default:
      return nullptr;
  }
}

// Returns " [StableHLO all_gather (C2)]", or nothing if the specification has no such operation or constraint.
inline std::string Cite(plan::Kind kind, const char* constraint) {
  const char* op = StableHloName(kind);
  if (op == nullptr || constraint[0] == '\0') return {};
  return std::string(" [StableHLO ") + op + " " + constraint + "]";
}

}  // namespace axccl::tensor
