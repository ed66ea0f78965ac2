// Schedule generators: one family a file, none knows a transport, a device or a byte count.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "src/base/status.h"
#include "src/plan/schedule.h"

namespace axccl::algo {

// The algorithms that mind which ranks share a machine, for placements with levels; the first is there for all kinds
// but kSendRecv.
inline constexpr std::string_view kHierarchical = "hierarchical";
const std::vector<std::string_view>& HierarchicalAlgorithms(plan::Kind kind);

// Algorithms that implement `kind` for a group so placed, best known first. Valid for every group size and root. With
// levels: also the hierarchical ones.
std::vector<std::string_view> Algorithms(plan::Kind kind, const plan::Placement& placement = {});

// Every algorithm of any kind and placement, in alphabetical order.
const std::vector<std::string_view>& AllAlgorithms();

// Ranks use each other's buffers. The second is there where they write into each other's in the first, and do not
// there.
inline constexpr std::string_view kDirect = "direct", kPull = "pull";

// The schedule of `algorithm` for the contract with `lanes` >= 1 lanes. kInvalidArgument, naming what there is, when
// the algorithm does not implement the kind. Deterministic: every rank generates the same object. For up to 4096 ranks,
// or 16384 where a rank's operations are few (all_reduce, broadcast and reduce by tree and hierarchical_tree).
//
// `only` is for those who study schedules too large to hold, not to run them: the program of these ranks is wanted, and
// others may have lanes without operations; ids, and how many slots and endpoints there are, then are of what was
// written. Ring and hierarchical do so for kinds without a root, for up to 16384 ranks.
Result<plan::Schedule> Generate(const plan::Contract& contract, std::string_view algorithm, int lanes,
                                const plan::Placement& placement = {}, std::span<const int> only = {});

// Whether every rank's end of a turn follows every rank's beginning of it (plan::Plan::complete), for a generated
// schedule; the verifier proves the same for any. Cheaper than that, for the estimate of what a schedule costs.
bool Complete(const plan::Schedule& schedule);

}  // namespace axccl::algo
