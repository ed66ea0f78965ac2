// How a collective is done: for every rank and lane an ordered list of operations, with explicit happens-before.
//
// A schedule knows no bytes, no data type, no pointers and no transport. It is generated and verified for the whole
// group (every rank holds the same object) and executed by each rank for its own part. Immutable once built.
//
// One *turn* runs every lane's list once, over one tile of the data (region.h). Large operations take several turns and
// operations on a channel follow each other; both are the same thing to a schedule: turn t+1 of a rank's lane starts
// when its turn t is done, with no other ordering between ranks than what signals and waits make. Scratch slots and
// endpoint lines exist `kRotation` times and turn t uses copy t % kRotation, so a slot written in turn t is next
// written in t + 2.
//
// Synchronisation. An *endpoint* (source rank s, lane l, k) is a monotonic counter written by rank s only. The v-th
// signal of a turn on it sets it to turn * 2^16 + v (v = 1, 2, ... in lane order); a wait for (s, l, k, v) blocks until
// it is at least that. Signal is a release, wait an acquire. All signals on one endpoint go to the same destination
// set: one rank or all other ranks of the group. Lanes of one rank are ordered by endpoints whose destination is the
// rank itself (tokens). A lane may wait on and signal endpoints of its own lane index only, except tokens, which name
// the lane of the source.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/plan/contract.h"
#include "src/plan/placement.h"

namespace axccl::plan {

inline constexpr int kRotation = 2;
inline constexpr int kAllPeers = -1;

enum class Buffer : uint8_t { kInput, kOutput, kScratch };

// `parts` consecutive parts of one block of an input or output, or `parts` consecutive slots of a rank's scratch.
// The i-th part of a source corresponds to the i-th part of a destination; a slot holds one part.
struct Operand {
  Buffer buffer = Buffer::kInput;
  uint16_t rank = 0;   // whose buffer; any rank of the group (memory links), so that copy covers put and get
  uint16_t block = 0;  // input/output only; 0 for scratch
  uint16_t part = 0;   // first part of the block, or first slot
  uint16_t parts = 1;  // how many

  friend bool operator==(const Operand&, const Operand&) = default;
};

enum class OpKind : uint8_t {
  kCopy,    // every dst := src[0]
  kReduce,  // every dst := src[0] (+) src[1] (+) ..., left fold in the order listed
  kSignal,  // endpoint (own rank, own lane, endpoint) := next value, to `peer` or to all
  kWait,    // until endpoint (peer, lane, endpoint) >= value; `from_lane` is the own lane unless it is a token
  kNop,
};

// Scaling. In a contract that reduces, reading an input operand (by copy or reduce) applies the factor of the rank that
// owns it; scratch and output operands are read as they are. `finish` marks the operation that writes final results
// (where an integer average divides): every output part must be finished exactly once, and finished data never reduced
// again. Slot-to-slot and slot-to-output copies keep the state of the data.
//
// In place (contract.h) a copy may find that its source is its destination; where the contract does not reduce it then
// does nothing to it, and executors leave it out, because other ranks may read there at the same time.
struct Op {
  OpKind kind = OpKind::kNop;
  bool finish = false;
  int16_t peer = 0;        // signal: destination rank, own rank (token) or kAllPeers; wait: source rank
  uint16_t from_lane = 0;  // wait only
  uint16_t endpoint = 0;
  uint16_t value = 0;  // wait only: v >= 1
  uint32_t id = 0;     // unique in the schedule; kept by lowering passes, cited by traces
  std::vector<Operand> dst;
  std::vector<Operand> src;

  friend bool operator==(const Op&, const Op&) = default;
};

struct Lane {
  std::vector<Op> ops;

  friend bool operator==(const Lane&, const Lane&) = default;
};

struct Schedule {
  std::string algorithm;  // as src/algo names it: "oneshot", "ring", "hierarchical", ...
  Contract contract;
  // What an algorithm for several machines was told of them; flat for all others. Says what the schedule is good for,
  // not what is right: the verifier has no use for it.
  Placement placement;
  uint16_t parts = 1;      // parts a tile of a block is cut into
  uint16_t lanes = 1;      // lanes of every rank
  uint16_t slots = 0;      // scratch slots of a rank and lane (each kRotation times)
  uint16_t endpoints = 0;  // endpoints of a rank and lane
  // The schedule reads or writes input or output of other ranks. Its first operations on lane 0 of every rank are then
  // signal(all, endpoint 0) and one wait (peer, endpoint 0, 1) per other rank, in ascending order of rank: the executor
  // announces buffer addresses with that exchange. Other lanes begin with a wait for a token of lane 0. The schedule
  // moves all data in one turn (no tiles).
  bool direct = false;
  // inline_endpoint[slot]: the endpoint whose first signal after the slot is written publishes it, or -1. Slots of a
  // few bytes may then live in the endpoint's cache line. A hint: it changes no ordering.
  std::vector<int16_t> inline_endpoint;
  std::vector<std::vector<Lane>> program;  // [rank][lane]

  friend bool operator==(const Schedule&, const Schedule&) = default;
};

// Whether a rank writes into another rank's output.
bool Pushes(const Schedule& schedule);

}  // namespace axccl::plan
