// Schedule generators, one family in each file. None depends on a transport, a device or a byte count.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "src/base/status.h"
#include "src/plan/schedule.h"

namespace axccl::algo {

// The algorithms that depend on which ranks share a machine, for placements with levels. kHierarchical exists for all
// kinds but kSendRecv.
inline constexpr std::string_view kHierarchical = "hierarchical";
const std::vector<std::string_view>& HierarchicalAlgorithms(plan::Kind kind);

// The algorithms that implement `kind` for a group with this placement, best known first. They are valid for every
// group size and root. If the placement has levels, the list includes the hierarchical algorithms.
std::vector<std::string_view> Algorithms(plan::Kind kind, const plan::Placement& placement = {});

// Every algorithm of any kind and placement, in alphabetical order.
const std::vector<std::string_view>& AllAlgorithms();

// In both, ranks use each other's buffers. In kDirect ranks may also write into each other's outputs; kPull exists for
// the kinds where kDirect does that, and only reads.
inline constexpr std::string_view kDirect = "direct", kPull = "pull";

// Generates the schedule of `algorithm` for the contract with `lanes` >= 1 lanes. Returns kInvalidArgument, with a list
// of what exists, when the algorithm does not implement the kind. Deterministic: every rank generates the same object.
// For up to 4096 ranks, or 16384 where a rank has few operations (all_reduce, broadcast and reduce by tree and
// hierarchical_tree).
//
// `only` is for tools that study schedules too large to hold; such a schedule cannot run. It lists the ranks whose
// programs are wanted. Other ranks may then have lanes without operations, and the ids and the numbers of slots and
// endpoints cover only what was written. All algorithms but tree and hierarchical_tree support it for kinds without a
// root; ring and the hierarchical ones for up to 16384 ranks.
Result<plan::Schedule> Generate(const plan::Contract& contract, std::string_view algorithm, int lanes,
                                const plan::Placement& placement = {}, std::span<const int> only = {});

// Schedules with slices (schedule.h), for pipelines. Every rank fetches chunks from the others' buffers.
inline constexpr std::string_view kChunkedDirect = "chunked_direct";
// The algorithms with slices that implement `kind`, best known first; none for most kinds.
const std::vector<std::string_view>& ChunkedAlgorithms(plan::Kind kind);
// Generates a schedule with `slices` >= 1 slices. `produced`: input chunks are awaited. Returns kInvalidArgument when
// the algorithm does not implement the kind, or for more than plan::kMaxChunks chunks of a rank or 65535 parts.
// Deterministic.
Result<plan::Schedule> GenerateChunked(const plan::Contract& contract, std::string_view algorithm, int slices,
                                       bool produced);

// Whether the ranks' programs differ only in which ranks, blocks and parts they name, on one machine, so that all ranks
// take the same time for the same steps. Rank 1, which has neighbours on both sides, then stands for all: where a part
// is at the edge of a block, others may have an operation less.
bool Alike(const plan::Contract& contract, std::string_view algorithm);
inline constexpr int kStandsForAll = 1;

// Whether every rank's end of a turn follows every rank's beginning of it (plan::Plan::complete), for a generated
// schedule. The verifier proves the same for any schedule; this is cheaper, for estimating what a schedule costs.
bool Complete(const plan::Schedule& schedule);

}  // namespace axccl::algo
