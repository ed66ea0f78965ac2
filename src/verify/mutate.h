// Mutation: every schedule that differs from a given one in a single place.
//
// The verifier must reject these. A mutation changes one operation (or swaps two neighbours) as a mistaken generator
// would: it leaves out a step, names the wrong rank, endpoint, value, block, part or slot, or lists an operand once too
// often. Fields that name one of several ranks or lanes take every other value; counted fields change by one.
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
  kMoveOp,       // an await or notify, to any other place in its lane
  kDuplicateOp,  // likewise, at its place
};
inline constexpr int kNumChanges = 23;

struct Mutation {
  Change change = Change::kDropOp;
  uint16_t rank = 0;
  uint16_t lane = 0;
  uint32_t index = 0;      // operation in its lane
  bool of_source = false;  // which list `operand` indexes
  uint16_t operand = 0;
  int32_t value = 0;  // the new value of the field
};

const char* ChangeName(Change change);
// "drop_op at rank 1 lane 0 op 5 (copy slot[1].0 <- in[1].0.0)".
std::string Describe(const plan::Schedule& schedule, const Mutation& mutation);

// Returns all mutations. Each differs from the schedule; two may yield the same schedule.
std::vector<Mutation> Mutations(const plan::Schedule& schedule);
// Applies a mutation to the schedule that Mutations() got. Only the named lane changes.
void Apply(const Mutation& mutation, plan::Schedule* schedule);

}  // namespace axccl::verify
