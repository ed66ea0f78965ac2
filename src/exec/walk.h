// One turn of a schedule, run symbolically, operation by operation, in one of the orders that its signals allow.
//
// A verified schedule leaves no race, so what is followed along the way comes out the same in every one of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "src/base/status.h"
#include "src/plan/schedule.h"

namespace axccl::exec {

// Visit: Status(size_t rank, size_t lane, const plan::Op& op, std::span<const uint16_t> parts). Called for every
// operation but kNop when it is done, for a wait when it has passed. `parts` of a move: which part of a tile each of
// its parts is; a slot's part is that of the data it holds.
template <class Visit>
class Walk {
 public:
  Walk(const plan::Schedule& schedule, Visit visit) : schedule_(schedule), visit_(std::move(visit)) {
    const size_t places = schedule.program.size() * schedule.lanes;
    next_.resize(places);
    signalled_.resize(places * schedule.endpoints);
    slot_part_.resize(places * schedule.slots);
  }

  // The first error of a visit; kInternalError where a lane never ends.
  Status Run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t rank = 0; rank < schedule_.program.size(); ++rank) {
        for (size_t lane = 0; lane < schedule_.lanes; ++lane) {
          AXCCL_ASSIGN_OR_RETURN(const bool advanced, RunLane(rank, lane));
          moved |= advanced;
        }
      }
    }
    for (size_t rank = 0; rank < schedule_.program.size(); ++rank) {
      for (size_t lane = 0; lane < schedule_.lanes; ++lane) {
        if (next_[Place(rank, lane)] != schedule_.program[rank][lane].ops.size())
          return MakeStatus(Code::kInternalError, "plan %s: rank %zu lane %zu never ends", schedule_.algorithm.c_str(),
                            rank, lane);
      }
    }
    return Status();
  }

 private:
  using Op = plan::Op;
  using OpKind = plan::OpKind;

  size_t Place(size_t rank, size_t lane) const { return rank * schedule_.lanes + lane; }
  uint16_t& SlotPart(size_t lane, const plan::Operand& slots, size_t i) {
    return slot_part_[Place(slots.rank, lane) * schedule_.slots + slots.part + i];
  }

  Result<bool> RunLane(size_t rank, size_t lane) {
    const std::vector<Op>& ops = schedule_.program[rank][lane].ops;
    size_t& next = next_[Place(rank, lane)];
    const size_t first = next;
    for (; next < ops.size() && MayPass(ops[next]); ++next) {
      const Op& op = ops[next];
      if (op.kind == OpKind::kNop) continue;
      parts_.clear();
      if (op.kind == OpKind::kSignal) {
        ++signalled_[Place(rank, lane) * schedule_.endpoints + op.endpoint];
      } else if (op.kind != OpKind::kWait) {
        Move(lane, op);
      }
      AXCCL_RETURN_IF_ERROR(visit_(rank, lane, op, std::span<const uint16_t>(parts_)));
    }
    return next != first;
  }

  bool MayPass(const Op& op) const {
    if (op.kind != OpKind::kWait) return true;
    const size_t source = Place(static_cast<size_t>(op.peer), op.from_lane);
    return signalled_[source * schedule_.endpoints + op.endpoint] >= op.value;
  }

  void Move(size_t lane, const Op& op) {
    const plan::Operand& lead = op.dst[0].buffer != plan::Buffer::kScratch ? op.dst[0] : op.src[0];
    for (size_t i = 0; i < op.dst[0].parts; ++i) {
      const bool slots = lead.buffer == plan::Buffer::kScratch;
      parts_.push_back(slots ? SlotPart(lane, lead, i) : static_cast<uint16_t>(lead.part + i));
      for (const plan::Operand& dst : op.dst) {
        if (dst.buffer == plan::Buffer::kScratch) SlotPart(lane, dst, i) = parts_.back();
      }
    }
  }

  const plan::Schedule& schedule_;
  Visit visit_;
  std::vector<size_t> next_;         // [rank, lane]: operation
  std::vector<uint32_t> signalled_;  // [rank, lane, endpoint]
  std::vector<uint16_t> slot_part_;  // [rank, lane, slot]
  std::vector<uint16_t> parts_;
};

}  // namespace axccl::exec
