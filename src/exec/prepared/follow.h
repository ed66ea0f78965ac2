// Follows one turn of a schedule (src/plan/walk.h) with the data that its moves read and write.
//
// A verified schedule has no races, so the result is the same in every order that its signals allow.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "src/base/status.h"
#include "src/plan/walk.h"

namespace axccl::exec {

// Returns kInternalError if a strand never ends.
template <class Follower>
Status FollowTurn(const plan::Schedule& schedule, Follower* follower) {
  const std::vector<const plan::Lane*> strands = plan::StrandsOf(schedule);
  const size_t stuck = plan::FollowTurn(strands, schedule.lanes, follower);
  if (stuck == strands.size()) return Status();
  return MakeStatus(Code::kInternalError, "plan %s: rank %zu lane %zu never ends", schedule.algorithm.c_str(),
                    stuck / schedule.lanes, stuck % schedule.lanes);
}

// The part of a tile that each slot holds: that of the data last written to it.
class SlotParts {
 public:
  explicit SlotParts(const plan::Schedule& schedule)
      : ranks_(schedule.contract.ranks),
        lanes_(schedule.lanes),
        slots_(schedule.slots),
        part_(schedule.program.size() * schedule.lanes * schedule.slots) {}

  // Makes a move of a strand. Returns the number of each part that it moves; valid until the next call.
  const std::vector<uint16_t>& Move(size_t strand, const plan::Op& op) {
    moved_.clear();
    const plan::Operand& lead = LeadOf(op);
    for (uint16_t i = 0; i < op.dst[0].parts; ++i) {
      const bool slots = plan::IsSlot(lead);
      moved_.push_back(slots ? Of(strand, lead, i) : static_cast<uint16_t>(lead.part + i));
      for (const plan::Operand& dst : op.dst) {
        if (!plan::IsSlot(dst)) continue;
        plan::ForEachRank(dst, ranks_, [&](const plan::Operand& slot) { Of(strand, slot, i) = moved_.back(); });
      }
    }
    return moved_;
  }

 private:
  // The operand that tells which parts move: a block if there is one, or slots that hold them. (Slots of all ranks hold
  // the same parts, so those of rank 0 tell.)
  static const plan::Operand& LeadOf(const plan::Op& op) {
    for (const plan::Operand& dst : op.dst) {
      if (!plan::IsSlot(dst)) return dst;
    }
    return op.src[0];
  }
  uint16_t& Of(size_t strand, const plan::Operand& slots, size_t i) {
    return part_[(slots.rank * lanes_ + strand % lanes_) * slots_ + slots.part + i];
  }

  const int ranks_;
  const size_t lanes_, slots_;
  std::vector<uint16_t> part_;  // [rank, lane, slot]
  std::vector<uint16_t> moved_;
};

}  // namespace axccl::exec
