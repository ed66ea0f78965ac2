// What a collective must achieve: the contract a schedule is generated for and verified against.
//
// Data is symbolic. The input and output of a rank are sequences of *blocks* of equal length; the schedule cuts a block
// into `parts` parts (see region.h for how parts become byte ranges). With n = group size:
//
//   kind            input blocks        output blocks       output of rank r, block b, holds
//   kAllReduce      1                   1                   fold over all ranks of input block 0
//   kReduce         1                   1 on root           fold over all ranks of input block 0 (root only)
//   kReduceScatter  n                   1                   fold over all ranks of input block r
//   kBroadcast      1 on root           1                   input block 0 of root
//   kAllGather      1                   n                   input block 0 of rank b
//   kAllToAll       n                   n                   input block r of rank b
//   kGather         1                   n on root           input block 0 of rank b (root only)
//   kScatter        n on root           1                   input block r of root
//   kSendRecv       1 on rank 0         1 on rank 1         n = 2: input block 0 of rank 0
//   kBarrier        0                   0                   nothing; every rank ends after every rank began
//
// A fold contains each rank's contribution exactly once, scaled by that rank's factor, and is finished (divided)
// exactly once. In place (NCCL's rules): kAllReduce, kReduce, kBroadcast: input block 0 == output block 0; kAllGather,
// kGather: input block 0 == output block [own rank]; kReduceScatter, kScatter: input block [own rank] == output block
// 0. Each rank decides for itself whether it runs in place, so a schedule must be right for every mixture. kAllToAll
// and kSendRecv are never in place.
#pragma once

#include <cstdint>
#include <string_view>

namespace axccl::plan {

enum class Kind : uint8_t {
  kAllReduce,
  kBroadcast,
  kReduce,
  kAllGather,
  kReduceScatter,
  kAllToAll,
  kGather,
  kScatter,
  kSendRecv,
  kBarrier,
};
inline constexpr int kNumKinds = 10;

const char* KindName(Kind kind);  // "all_reduce", "broadcast", ... (the words of the text form)
// Finds the kind with that name. Returns false, and leaves `kind` as it is, when there is none.
bool FindKind(std::string_view name, Kind* kind);

struct Contract {
  Kind kind = Kind::kBarrier;
  int ranks = 1;
  int root = 0;  // position in the group; 0 where the kind has no root

  friend bool operator==(const Contract&, const Contract&) = default;
};

// True for the kinds whose outputs are folds.
bool Reduces(Kind kind);
// Whether the kind has a root argument.
bool HasRoot(Kind kind);
// The number of blocks of a rank's input and output; 0 where the rank has none.
int InputBlocks(const Contract& contract, int rank);
int OutputBlocks(const Contract& contract, int rank);
// Finds the block of rank `source`'s input that block `block` of rank `rank`'s output holds, or folds with others.
// Returns false if that rank contributes nothing to it.
bool SourceBlock(const Contract& contract, int rank, int block, int source, int* input_block);
// Finds the input block and the output block that coincide when `rank` runs in place. Returns false if the rank never
// runs in place.
bool InPlaceBlocks(const Contract& contract, int rank, int* input_block, int* output_block);

}  // namespace axccl::plan
