// Schedule generators, one family in each file. None depends on a transport, a device or a byte count.
#pragma once

#include <cstdint>
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

// The algorithms for ranks of one machine, each on a device of its own, whose slots are multicast (schedule.h): through
// NVLink SHARP. Empty for kinds that have none.
const std::vector<std::string_view>& MulticastAlgorithms(plan::Kind kind);
// Whether such an algorithm has the slots of all ranks folded, not only written.
bool FoldsByMulticast(plan::Kind kind, std::string_view algorithm);

// Every algorithm of any kind and placement, in alphabetical order.
const std::vector<std::string_view>& AllAlgorithms();

// In both, ranks use each other's buffers. In kDirect ranks may also write into each other's outputs; kPull exists for
// the kinds where kDirect does that, and only reads.
inline constexpr std::string_view kDirect = "direct", kPull = "pull";
// In the first, ranks put data into the next rank's slots; in the second, they read the previous rank's buffers.
inline constexpr std::string_view kRing = "ring", kRingPull = "ring_pull";

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

// Schedules with slices (schedule.h), for pipelines. In kChunkedDirect, every rank fetches chunks from the others'
// buffers, in kChunkedRing from those of one neighbour; kChunkedStaged is for ranks that share no memory.
inline constexpr std::string_view kChunkedDirect = "chunked_direct", kChunkedRing = "chunked_ring",
                                  kChunkedStaged = "chunked_staged";
// The algorithms with slices that implement `kind`, best known first; none for most kinds.
const std::vector<std::string_view>& ChunkedAlgorithms(plan::Kind kind);

// The order in which a rank receives the blocks of its output, and in which it awaits and announces those of its input.
// Rank r of n: own first is r, r + 1, ..., r - 1 (modulo n), own last is r + 1, ..., r - 1, r, by rank is 0 to n - 1.
// The default is own first where blocks are moved (all_gather, all_to_all) and own last where they are reduced
// (reduce_scatter). Other kinds have one block, and the default alone.
enum class ChunkOrder : uint8_t { kDefault, kOwnFirst, kOwnLast, kByRank };
inline constexpr int kNumChunkOrders = 4;

// "default", "own_first", ...
const char* ChunkOrderName(ChunkOrder order);
// The orders that an algorithm with slices has for a kind; the default is one of these. None for a kind with one block.
std::span<const ChunkOrder> ChunkOrders(plan::Kind kind, std::string_view algorithm);
// The numbers of the blocks of rank `rank` of `ranks` in that order; {0} for a kind with one block.
std::vector<int> BlockOrder(ChunkOrder order, plan::Kind kind, int rank, int ranks);

// How a schedule with slices cuts and orders the data.
struct Chunking {
  int slices = 1;         // of a block
  bool produced = false;  // input chunks are awaited
  ChunkOrder order = ChunkOrder::kDefault;
};

// Generates a schedule with slices. An executor that runs the lanes of a rank in ascending order, each as far as it
// goes, receives blocks in the order of `chunking` as far as they are there. Returns kInvalidArgument when the
// algorithm does not implement the kind, when there is no such order, and unless there are 1 to
// plan::kMaxChunks chunks of a rank (one less in kChunkedStaged), up to 65535 parts, and up to 8192 lanes of all ranks
// together. Deterministic.
Result<plan::Schedule> GenerateChunked(const plan::Contract& contract, std::string_view algorithm,
                                       const Chunking& chunking);

// Whether the ranks' programs differ only in which ranks, blocks and parts they name, on one machine, so that all ranks
// take the same time for the same steps. Rank 1, which has neighbours on both sides, then stands for all: where a part
// is at the edge of a block, others may have an operation less.
bool Alike(const plan::Contract& contract, std::string_view algorithm);
inline constexpr int kStandsForAll = 1;

// Whether every rank's end of a turn follows every rank's beginning of it (plan::Plan::complete), for a generated
// schedule. The verifier proves the same for any schedule; this is cheaper, for estimating what a schedule costs.
bool Complete(const plan::Schedule& schedule);

}  // namespace axccl::algo
