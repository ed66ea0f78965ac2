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
      : lanes_(schedule.lanes),
        slots_(schedule.slots),
        part_(schedule.program.size() * schedule.lanes * schedule.slots) {}

  // Makes a move of a strand. Returns the number of each part that it moves; valid until the next call.
  const std::vector<uint16_t>& Move(size_t strand, const plan::Op& op) {
    moved_.clear();
    const plan::Operand& lead = op.dst[0].buffer != plan::Buffer::kScratch ? op.dst[0] : op.src[0];
    for (uint16_t i = 0; i < op.dst[0].parts; ++i) {
      const bool slots = lead.buffer == plan::Buffer::kScratch;
      moved_.push_back(slots ? Of(strand, lead, i) : static_cast<uint16_t>(lead.part + i));
      for (const plan::Operand& dst : op.dst) {
        if (dst.buffer == plan::Buffer::kScratch) Of(strand, dst, i) = moved_.back();
      }
    }
    return moved_;
  }

 private:
  uint16_t& Of(size_t strand, const plan::Operand& slots, size_t i) {
    return part_[(slots.rank * lanes_ + strand % lanes_) * slots_ + slots.part + i];
  }

  const size_t lanes_, slots_;
  std::vector<uint16_t> part_;  // [rank, lane, slot]
  std::vector<uint16_t> moved_;
};

}  // namespace axccl::exec
