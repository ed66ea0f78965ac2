// How messages point to the constraint of StableHLO's specification that a call violates. For src/plan only; pure.
#pragma once

#include <string>

#include "src/plan/contract.h"

namespace axccl::plan {

// StableHLO's name of the operation, null for those it does not have. Transfers between two ranks are its
// collective_permute.
constexpr const char* StableHloName(Kind kind) {
  switch (kind) {
    case Kind::kAllGather:
      return "all_gather";
    case Kind::kAllReduce:
      return "all_reduce";
    case Kind::kReduceScatter:
      return "reduce_scatter";
    case Kind::kAllToAll:
      return "all_to_all";
    case Kind::kBroadcast:
      return "collective_broadcast";
    case Kind::kReduce:
      return "collective_reduce";
    case Kind::kSendRecv:
      return "collective_permute";
    default:
      return nullptr;
  }
}

// " [StableHLO all_gather (C2)]", or nothing where the specification has no such operation or constraint.
inline std::string Cite(Kind kind, const char* constraint) {
  const char* op = StableHloName(kind);
  if (op == nullptr || constraint[0] == '\0') return {};
  return std::string(" [StableHLO ") + op + " " + constraint + "]";
}

}  // namespace axccl::plan
