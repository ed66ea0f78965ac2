// Builder: every generator builds its schedule with it, one lane of operations per rank.
//
// Generators write the data flow only. Build() derives the rest: the number of slots and endpoints, the credits that
// make the reuse of slots safe, the copies for further lanes and the operation ids. A Builder belongs to one thread;
// the schedules it returns are immutable values.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "src/plan/schedule.h"

namespace axccl::algo {

// A set of ranks, one bit each.
using RankSet = std::vector<uint64_t>;
inline bool Contains(const RankSet& set, int rank) { return (set[rank / 64] >> (rank % 64)) & 1; }

// Runs one turn of `program` [rank], a single lane, in any order its waits allow. Returns for each rank the ranks whose
// beginning happens before its end.
std::vector<RankSet> KnownBegins(const std::vector<const plan::Lane*>& program);
// Whether each of these sets, one for each rank, holds all ranks.
bool AllContainAll(const std::vector<RankSet>& sets);

inline plan::Operand In(int rank, int block = 0, int part = 0, int parts = 1) {
  return {plan::Buffer::kInput, static_cast<uint16_t>(rank), static_cast<uint16_t>(block), static_cast<uint16_t>(part),
          static_cast<uint16_t>(parts)};
}
inline plan::Operand Out(int rank, int block = 0, int part = 0, int parts = 1) {
  return {plan::Buffer::kOutput, static_cast<uint16_t>(rank), static_cast<uint16_t>(block), static_cast<uint16_t>(part),
          static_cast<uint16_t>(parts)};
}
inline plan::Operand Slot(int rank, int slot, int count = 1) {
  return {plan::Buffer::kScratch, static_cast<uint16_t>(rank), 0, static_cast<uint16_t>(slot),
          static_cast<uint16_t>(count)};
}

// Slots of all ranks.
inline plan::Operand AllSlots(int slot, int count = 1) {
  return {plan::Buffer::kMulticast, 0, 0, static_cast<uint16_t>(slot), static_cast<uint16_t>(count)};
}

// Whether an operation writes a result that is not reduced further (schedule.h, "Scaling": `finish`).
enum class State : bool { kPartial = false, kFinal = true };

class Builder {
 public:
  // `only`: the ranks whose programs are wanted; empty means all.
  Builder(const plan::Contract& contract, std::string_view algorithm, int parts, std::span<const int> only = {});

  int ranks() const { return contract_.ranks; }
  // The ranks whose programs are wanted, ascending.
  const std::vector<int>& programmed() const { return programmed_; }
  // The rank `step` places after `rank` on the circle of ranks; `step` may be negative.
  int Shift(int rank, int step) const { return ((rank + step) % ranks() + ranks()) % ranks(); }

  void Copy(int rank, std::vector<plan::Operand> dst, plan::Operand src, State state = State::kPartial);
  void Reduce(int rank, std::vector<plan::Operand> dst, std::vector<plan::Operand> src, State state = State::kPartial);
  void Signal(int rank, int peer, int endpoint = 0);
  void Wait(int rank, int source, int endpoint = 0, int value = 1);
  // Waits for the same value from every other rank, in ascending order.
  void WaitAll(int rank, int endpoint = 0, int value = 1);
  // Waits for a token of another lane of the same rank.
  void WaitToken(int rank, int from_lane, int endpoint);

  // Slot `slot` is published by the first signal on `endpoint` after it is written (schedule.h, inline_endpoint).
  void Inline(int slot, int endpoint) { inline_slots_.push_back({slot, endpoint}); }

  // Completes the schedule with the same pattern on every lane, each over its own span, slots and endpoints. Adds
  // credits where a rank writes a slot that another rank reads, and nothing in the turn shows the writer that the
  // reader has begun the turn. The reader then signals the writer as its first operation, and the writer waits for that
  // as its last. So when a writer begins turn t + 1, the reader has left turn t - 1, whose copy of the slot turn t + 1
  // writes, and the writer may run one turn ahead of the reader. Credits follow from the programs of all ranks, so a
  // pattern that is written only for some ranks must be one that needs none.
  plan::Schedule Build(int lanes);
  // For schedules whose lanes differ: makes the program written so far the next lane of `schedule` and empties the
  // builder. Adds no credits. Seal() completes the schedule.
  void MoveTo(plan::Schedule* schedule);
  void Seal(plan::Schedule* schedule) const;
  plan::Schedule Empty() const;

 private:
  struct InlineSlot {
    int slot;
    int endpoint;
  };

  void AddCredits();

  plan::Contract contract_;
  std::string_view algorithm_;
  int parts_;
  std::vector<int> programmed_;
  std::vector<plan::Lane> program_;  // [rank]
  std::vector<InlineSlot> inline_slots_;
};

}  // namespace axccl::algo
