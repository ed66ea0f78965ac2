// How a collective is done: for every rank and lane an ordered list of operations, with explicit happens-before.
//
// A schedule contains no bytes, no data type, no pointers and no transport. It is generated and verified for the whole
// group (every rank holds the same object) and each rank executes its own part. Immutable once built.
//
// One *turn* runs every lane's list once, over one tile of the data (region.h). Large operations take several turns,
// and operations on a channel follow each other; to a schedule both are the same: turn t+1 of a rank's lane starts when
// its turn t is done, and only signals and waits order different ranks. Scratch slots and endpoint lines exist
// `kRotation` times and turn t uses copy t % kRotation, so a slot written in turn t is next written in t + 2.
//
// Synchronisation: an *endpoint* (source rank s, lane l, k) is a monotonic counter that only rank s writes. The v-th
// signal of a turn on it sets it to turn * 2^16 + v (v = 1, 2, ... in lane order); a wait for (s, l, k, v) blocks until
// it is at least that. A signal is a release, a wait an acquire. All signals on one endpoint go to the same destination
// set: one rank, or all other ranks of the group. Lanes of one rank are ordered by endpoints whose destination is the
// rank itself (tokens). A lane may wait on and signal endpoints of its own lane index only, except tokens, which name
// the lane of the source.
//
// Multicast: where devices have NVLink SHARP, one operation reaches the same slots of all ranks, its own among them. A
// copy or reduction that writes them stores one value everywhere. A reduction whose only source they are folds them in
// an order that is not defined: done again, it may give other bits, even of the same slots. No lane mixes both ways to
// a slot without a signal in between: after an access one way, it writes the other way only after a signal, and what it
// has written one way, it reads the other way only after a signal.
//
// Slices: a schedule for a pipeline cuts every block into `slices` slices, so that the user can wait for a slice of an
// output while the rest is on its way, and declare slices of an input ready one by one. A *chunk* is one slice of one
// block; its number is block * slices + slice. kNotify tells that an output chunk is final, kAwait waits until the user
// has declared an input chunk ready. Such a schedule moves everything in one turn, and its lanes do not divide blocks:
// each lane names parts of whole blocks, works on what it likes, and may wait for endpoints of any lane. If it is
// direct, a rank announces its buffers by a signal of endpoint 0, with which its lane 0 begins.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/plan/contract.h"
#include "src/plan/placement.h"
#include "src/plan/turns.h"

namespace axccl::plan {

inline constexpr int kAllPeers = -1;

// kMulticast: slots of all ranks.
enum class Buffer : uint8_t { kInput, kOutput, kScratch, kMulticast };
inline constexpr int kNumBuffers = 4;

// `parts` consecutive parts of one block of an input or output, or `parts` consecutive slots of a rank's scratch, or of
// that of all ranks.
// The i-th part of a source corresponds to the i-th part of a destination; a slot holds one part.
struct Operand {
  Buffer buffer = Buffer::kInput;
  uint16_t rank = 0;   // the owner of the buffer; any rank of the group, so that a copy can be a put or a get; 0 of all
  uint16_t block = 0;  // input/output only; 0 for scratch
  uint16_t part = 0;   // first part of the block, or first slot
  uint16_t parts = 1;  // number of parts or slots

  friend bool operator==(const Operand&, const Operand&) = default;
};

inline bool IsSlot(const Operand& o) { return o.buffer == Buffer::kScratch || o.buffer == Buffer::kMulticast; }

// Calls f(operand) with what the operand stands for: slots of each rank in turn, if it is multicast, else itself.
template <class F>
void ForEachRank(const Operand& o, int ranks, F f) {
  if (o.buffer != Buffer::kMulticast) return f(o);
  for (int rank = 0; rank < ranks; ++rank)
    f(Operand{Buffer::kScratch, static_cast<uint16_t>(rank), 0, o.part, o.parts});
}

enum class OpKind : uint8_t {
  kCopy,    // every dst := src[0]
  kReduce,  // every dst := src[0] (+) src[1] (+) ..., left fold in the order listed; of multicast slots, in any order
  kSignal,  // until endpoint (peer, lane, endpoint) >= value; `from_lane` is this lane, except for tokens
  kWait,    // until endpoint (peer, lane, endpoint) >= value; `from_lane` is the own lane unless it is a token
  kNop,
  kAwait,   // until input chunk `chunk` of the own rank may be read
  kNotify,  // output chunk `chunk` of rank `peer` is final
};

// Scaling: in a contract that reduces, reading an input operand (by copy or reduce) applies the factor of the rank that
// owns it; scratch and output operands are read as they are. `finish` marks the operation that writes final results
// (where an integer average divides and a factor of the result applies, before the rounding if the operation makes the
// fold): every output part must be finished exactly once, and finished data must not be reduced again. Slot-to-slot and
// slot-to-output copies keep the state of the data.
//
// In place (contract.h), the source of a copy may be its destination. Where the contract does not reduce, such a copy
// does nothing, and executors leave it out, because other ranks may read the data at the same time.
struct Op {
  OpKind kind = OpKind::kNop;
  bool finish = false;
  int16_t peer = 0;  // signal: destination rank, own rank (token) or kAllPeers; wait: source rank; notify: the owner
  uint16_t from_lane = 0;  // wait only
  uint16_t endpoint = 0;
  uint16_t value = 0;  // wait only: v >= 1
  uint16_t chunk = 0;  // await and notify
  uint32_t id = 0;     // unique in the schedule; lowering passes keep it, traces name it
  std::vector<Operand> dst;
  std::vector<Operand> src;

  friend bool operator==(const Op&, const Op&) = default;
};

struct Lane {
  std::vector<Op> ops;

  friend bool operator==(const Lane&, const Lane&) = default;
};

inline constexpr int kMaxChunks = 1 << 16;  // of a rank's input or output

struct Schedule {
  std::string algorithm;  // as src/algo names it: "oneshot", "ring", "hierarchical", ...
  Contract contract;
  // The placement for which an algorithm for several machines generated the schedule; flat for all other algorithms. It
  // says for which groups the schedule is good, not whether it is correct, so the verifier ignores it.
  Placement placement;
  uint16_t parts = 1;      // parts a tile of a block is cut into
  uint16_t slices = 0;     // slices of a block, a divisor of parts; 0: no chunks
  bool produced = false;   // every input chunk is awaited; otherwise inputs are ready when the operation begins
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

// Calls visit(rank, lane, operand) with every operand of the schedule.
template <class Visit>
void ForEachOperand(const Schedule& schedule, const Visit& visit) {
  for (size_t rank = 0; rank < schedule.program.size(); ++rank) {
    for (size_t lane = 0; lane < schedule.program[rank].size(); ++lane) {
      for (const Op& op : schedule.program[rank][lane].ops) {
        for (const Operand& o : op.dst) visit(rank, lane, o);
        for (const Operand& o : op.src) visit(rank, lane, o);
      }
    }
  }
}

// Whether a rank writes into another rank's output, or notifies its owner of a chunk there.
bool Pushes(const Schedule& schedule);

// Whether an operand of any operation is multicast.
bool UsesMulticast(const Schedule& schedule);

// Whether it is a message through scratch, of which no lane of the sender does anything in a turn after its first wait.
bool SendsAhead(const Schedule& schedule);

// Whether a turn is a whole operation, so that all lanes of a rank end it before any begins the next.
inline bool MovesAllInOneTurn(const Schedule& schedule) { return schedule.direct || schedule.slices != 0; }

// The chunk that a part of an input or output block belongs to, in a schedule with slices.
inline int ChunkOf(const Schedule& schedule, int block, int part) {
  return block * schedule.slices + part / (schedule.parts / schedule.slices);
}

}  // namespace axccl::plan
