// Mutation: every schedule that differs from a given one by a single mistake.
//
// The verifier must reject these, unless they are right as well. Most mutations change one operation (or swap two
// neighbours) as a mistaken generator would: it leaves out a step, names the wrong rank, endpoint, value, block, part
// or slot, or lists an operand once too often. Fields that name one of several ranks or lanes take every other value;
// counted fields change by one. Others move or insert operations, and some change several lanes at once: a signal with
// all waits for it, a slot or an endpoint that serves as two.
//
// Values; Mutations() and Apply() are pure and thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/plan/schedule.h"

namespace axccl::verify {

enum class Change : uint8_t {
  kDropOp,
  kSwapOps,         // with the next operation of the lane
  kSignalPeer,      // any other rank, this rank, or all
  kSignalEndpoint,  // +-1
  kWaitPeer,        // any other rank
  kWaitLane,        // any other lane
  kWaitEndpoint,    // +-1
  kWaitValue,       // +-1
  kOperandBuffer,   // one of the two others
  kOperandRank,     // any other
  kOperandBlock,    // +-1
  kOperandPart,     // +-1; of scratch: the slot
  kOperandParts,    // +-1
  kDropSource,
  kDropDestination,
  kDuplicateSource,
  kDuplicateDestination,
  kSwapSources,  // with the next source
  kFlipFinish,
  kChunk,        // +-1, of an await or notify
  kNotifyOwner,  // any other rank
  // An await or notify to any other place in its lane; a data operation by 2, 4, 8, ... places. Swaps move by one.
  kMoveOp,
  // Inserts a copy of the operation before another one of its lane: of an await or notify before itself, of others as
  // far away as kMoveOp moves data.
  kDuplicateOp,
  kInsertOp,      // before it, a copy of the operation at the same place of the next rank
  kOntoItself,    // before the operation (0) or after it (1), a copy of an input to the output that it is in place
  kMulticast,     // a slot of one rank becomes that of all ranks (-1), or one of all that of a rank
  kFinishOutput,  // finishes later, by a copy of the destination onto itself
  // Changes of more than one lane from here on.
  kFinishSlot,      // likewise, by a copy from a slot of its own
  kDropPair,        // a signal and the waits for it
  kAddPair,         // before the operation, a signal to another rank (or lane, if it is the own rank) and a wait there
  kMergeEndpoints,  // all signals of an endpoint, and waits for it, are of another one with the same destination
  kMergeSlots,      // a slot is another one on all ranks
  kInlineEndpoint,  // of a slot: none or any other, which another slot then loses
};
inline constexpr int kNumChanges = 33;
inline constexpr bool ChangesOneLane(Change change) { return change < Change::kFinishSlot; }

struct Mutation {
  Change change = Change::kDropOp;
  uint16_t rank = 0;
  uint16_t lane = 0;
  uint32_t index = 0;      // operation in its lane
  bool of_source = false;  // which list `operand` indexes
  uint16_t operand = 0;    // or slot
  int32_t value = 0;       // the new value of the field
};

const char* ChangeName(Change change);
// "drop_op at rank 1 lane 0 op 5 (copy slot[1].0 <- in[1].0.0)".
std::string Describe(const plan::Schedule& schedule, const Mutation& mutation);

// Returns all mutations. Each differs from the schedule; two may yield the same schedule.
std::vector<Mutation> Mutations(const plan::Schedule& schedule);
// Applies a mutation to the schedule that Mutations() got. If it changes one lane, that is the one it names.
void Apply(const Mutation& mutation, plan::Schedule* schedule);
// Makes the mutant the original again, at the cost of what the mutation changes.
void Undo(const Mutation& mutation, const plan::Schedule& original, plan::Schedule* mutant);

}  // namespace axccl::verify
