#include "src/exec/prepared/outbound.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "src/exec/prepared/follow.h"
#include "src/plan/cargo.h"

namespace axccl::exec {
namespace {

using plan::Buffer;
using plan::Op;
using plan::Operand;
using plan::OpKind;
using plan::Schedule;

// Tracks which rank wrote what every rank reads, and what ranks know of each other (exec::FollowTurn).
class Tracker {
 public:
  Tracker(const Schedule& schedule, int rank, std::vector<std::vector<Outbound::Slot>>* found)
      : schedule_(schedule),
        strands_(plan::StrandsOf(schedule)),
        rank_(static_cast<size_t>(rank)),
        found_(found),
        parts_(schedule),
        written_(strands_.size() * schedule.slots),
        heard_(strands_.size()) {
    for (const plan::Lane* strand : strands_) carriers_.emplace_back(*strand);
    found_->resize(schedule.lanes);
  }

  // Signals carry their number.
  using Carried = uint32_t;
  Carried Signal(size_t strand, const Op& op) { return IndexOf(strand, op); }
  // After a wait in its own lane, the rank knows all that the source has done there up to that signal.
  void Pass(size_t strand, const Op& op, Carried signal) {
    if (op.from_lane != strand % schedule_.lanes) return;
    uint32_t& heard = HeardOf(strand, op.peer);
    heard = std::max(heard, signal + 1);
  }
  void Move(size_t strand, const Op& op) {
    const std::vector<uint16_t>& parts = parts_.Move(strand, op);
    for (size_t i = 0; i < parts.size(); ++i) {
      for (const Operand& src : op.src) {
        if (src.buffer == Buffer::kScratch) Read(strand, src, i);
      }
      for (const Operand& dst : op.dst) {
        if (dst.buffer == Buffer::kScratch)
          At(strand, dst, i) = {static_cast<int>(strand / schedule_.lanes), IndexOf(strand, op), parts[i]};
      }
    }
  }

  bool needs_common_memory() const { return needs_common_memory_; }

 private:
  struct Written {
    int rank = -1;
    uint32_t op = 0;
    uint16_t part = 0;
  };

  uint32_t IndexOf(size_t strand, const Op& op) const {
    return static_cast<uint32_t>(&op - strands_[strand]->ops.data());
  }
  Written& At(size_t strand, const Operand& slots, size_t i) {
    return written_[(slots.rank * schedule_.lanes + strand % schedule_.lanes) * schedule_.slots + slots.part + i];
  }
  uint32_t& HeardOf(size_t strand, int source) {
    auto& heard = heard_[strand];
    auto it = std::lower_bound(heard.begin(), heard.end(), std::pair(source, 0u));
    if (it == heard.end() || it->first != source) it = heard.insert(it, {source, 0});
    return it->second;
  }

  void Read(size_t strand, const Operand& src, size_t i) {
    const size_t reader = strand / schedule_.lanes, lane = strand % schedule_.lanes;
    const Written& written = At(strand, src, i);
    if (written.rank < 0 || static_cast<size_t>(written.rank) == reader) return;
    const auto writer = static_cast<size_t>(written.rank);
    const uint32_t signal = carriers_[writer * schedule_.lanes + lane].After(written.op, static_cast<int>(reader));
    if ((src.rank != writer && src.rank != reader) || signal >= HeardOf(strand, written.rank)) {
      needs_common_memory_ = true;
    } else if (writer == rank_) {
      (*found_)[lane].push_back({signal, static_cast<uint16_t>(reader), static_cast<uint16_t>(src.part + i),
                                 written.part, src.rank == reader});
    }
  }

  const Schedule& schedule_;
  const std::vector<const plan::Lane*> strands_;
  const size_t rank_;
  std::vector<std::vector<Outbound::Slot>>* const found_;  // with operations as steps
  SlotParts parts_;
  std::vector<plan::Carriers> carriers_;                      // [strand]
  std::vector<Written> written_;                              // [rank, lane, slot]
  std::vector<std::vector<std::pair<int, uint32_t>>> heard_;  // [strand]: by source, how many operations it has done
  bool needs_common_memory_ = false;
};

auto PlaceOf(const Outbound::Slot& s) { return std::tie(s.step, s.reader, s.of_reader, s.slot); }

}  // namespace

Result<Outbound> Outbound::Make(const Schedule& schedule, int rank) {
  Outbound outbound;
  Tracker tracker(schedule, rank, &outbound.lanes_);
  AXCCL_RETURN_IF_ERROR(FollowTurn(schedule, &tracker));
  if (tracker.needs_common_memory())
    return MakeStatus(Code::kInvalidUsage,
                      "%s of %zu ranks needs memory that its ranks share; between machines take "
                      "another algorithm (NCCL_ALGO)",
                      schedule.algorithm.c_str(), schedule.program.size());
  for (size_t lane = 0; lane < outbound.lanes_.size(); ++lane) {
    std::vector<Slot>& slots = outbound.lanes_[lane];
    std::sort(slots.begin(), slots.end(), [](const Slot& a, const Slot& b) { return PlaceOf(a) < PlaceOf(b); });
    const auto same = [](const Slot& a, const Slot& b) { return PlaceOf(a) == PlaceOf(b); };
    slots.erase(std::unique(slots.begin(), slots.end(), same), slots.end());
    const std::vector<Op>& ops = schedule.program[static_cast<size_t>(rank)][lane].ops;
    uint32_t op = 0, nops = 0;
    for (Slot& slot : slots) {
      for (; op < slot.step; ++op) nops += ops[op].kind == OpKind::kNop;
      slot.step -= nops;
    }
  }
  return outbound;
}

size_t Outbound::bytes() const {
  size_t bytes = sizeof(Outbound);
  for (const std::vector<Slot>& slots : lanes_) bytes += sizeof(slots) + slots.size() * sizeof(Slot);
  return bytes;
}

std::span<const Outbound::Slot> Outbound::With(uint32_t lane, uint32_t step) const {
  const std::vector<Slot>& slots = lanes_[lane];
  const auto [first, last] = std::equal_range(slots.begin(), slots.end(), Slot{step},
                                              [](const Slot& a, const Slot& b) { return a.step < b.step; });
  return {first, last};
}

}  // namespace axccl::exec
