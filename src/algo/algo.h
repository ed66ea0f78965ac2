// Schedule generators: one family a file, none knows a transport, a device or a byte count.
#pragma once

#include <string_view>
#include <vector>

#include "src/base/status.h"
#include "src/plan/schedule.h"

namespace axccl::algo {

// The algorithm that minds which ranks share a machine.
inline constexpr std::string_view kHierarchical = "hierarchical";

// Algorithms that implement `kind` for a group so placed, best known first. Valid for every group size and root. Flat: all
// but "hierarchical", which is for placements with levels.
const std::vector<std::string_view>& Algorithms(plan::Kind kind, const plan::Placement& placement = {});

// The schedule of `algorithm` for the contract with `lanes` >= 1 lanes. kInvalidArgument, naming what there is, when
// the algorithm does not implement the kind. Deterministic: every rank generates the same object.
Result<plan::Schedule> Generate(const plan::Contract& contract, std::string_view algorithm, int lanes,
                                const plan::Placement& placement = {});

// Whether every rank's end of a turn follows every rank's beginning of it (plan::Plan::complete), for a generated
// schedule; the verifier proves the same for any. Cheaper than that, for the estimate of what a schedule costs.
bool Complete(const plan::Schedule& schedule);

}  // namespace axccl::algo
