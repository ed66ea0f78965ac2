// Acceptance vectors (tests/harness/vectors.h) as the types of src/plan.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "src/tensor/replica_groups.h"
#include "src/tensor/view.h"
#include "tests/harness/vectors.h"

namespace axccl::tensor {

using harness::Json;
using harness::ReadVectors;
using harness::VectorsMissing;
using plan::Kind;

// The kind that an operation's groups and shapes follow; the variable-size exchanges follow all_to_all.
std::optional<Kind> KindOfOp(const std::string& op);

// Replica groups or source_target_pairs of a case's attributes, as a compiler's tensor. Owns the ids.
struct IdTensor {
  std::vector<int64_t> ids;
  std::vector<int64_t> shape;
  Kind kind = Kind::kAllReduce;

  Result<IdLists> Lists(const std::string& call) const { return IdLists::FromTensor(call.c_str(), kind, ids, shape); }
};
IdTensor ReadIds(Kind kind, const Json& attributes);

// For cases without a grid: one row or column of as many processes as the largest id requires. StableHLO's verifier
// knows no grid, and takes the ids that it sees for all processes.
Grid SmallestGrid(const IdTensor& tensor, GroupMode mode);

Shape ShapeOf(const Json& tensor);

// The collective of a case for a group of `group_size`, with StableHLO's rule for negative dimensions.
Collective ReadCollective(const std::string& op, const Json& attributes, int group_size, int operand);

// StableHLO's rules for the operation, with the case's split_count.
GroupRules ReadRules(Kind kind, const Json& attributes);

}  // namespace axccl::tensor
