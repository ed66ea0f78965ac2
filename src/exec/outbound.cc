#include "src/exec/outbound.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "src/exec/walk.h"

namespace axccl::exec {
namespace {

using plan::Buffer;
using plan::Op;
using plan::Operand;
using plan::OpKind;
using plan::Schedule;

// Notes who wrote what every rank reads.
class Tracker {
 public:
  Tracker(const Schedule& schedule, int rank, std::vector<std::vector<Outbound::Slot>>* found)
      : schedule_(schedule), rank_(static_cast<size_t>(rank)), found_(found) {
    const size_t places = schedule.program.size() * schedule.lanes;
    steps_.resize(places);
    signalled_.resize(places * schedule.endpoints);
    written_.resize(places * schedule.slots);
    heard_.resize(places * schedule.program.size());
    found_->resize(schedule.lanes);
  }

  // What a Walk has come to.
  Status Visit(size_t rank, size_t lane, const Op& op, std::span<const uint16_t> parts) {
    uint32_t& step = steps_[Place(rank, lane)];
    if (op.kind == OpKind::kWait) {
      Pass(Place(rank, lane), lane, op);
    } else if (op.kind == OpKind::kSignal) {
      signalled_[Place(rank, lane) * schedule_.endpoints + op.endpoint].push_back(step);
    } else {
      AXCCL_RETURN_IF_ERROR(Move(rank, lane, op, parts));
    }
    ++step;
    return Status();
  }

 private:
  struct Written {
    int rank = -1;
    uint32_t step = 0;
    uint16_t part = 0;
  };

  size_t Place(size_t rank, size_t lane) const { return rank * schedule_.lanes + lane; }
  Written& At(size_t lane, const Operand& operand, size_t i) {
    return written_[Place(operand.rank, lane) * schedule_.slots + operand.part + i];
  }

  // A wait in its own lane tells the rank of all its source has done there up to that signal.
  void Pass(size_t here, size_t lane, const Op& op) {
    if (op.from_lane != lane) return;
    const size_t source = Place(static_cast<size_t>(op.peer), op.from_lane);
    uint32_t& heard = heard_[here * schedule_.program.size() + static_cast<size_t>(op.peer)];
    heard = std::max(heard, signalled_[source * schedule_.endpoints + op.endpoint][op.value - 1u] + 1);
  }

  Status Move(size_t rank, size_t lane, const Op& op, std::span<const uint16_t> parts) {
    for (size_t i = 0; i < parts.size(); ++i) {
      for (const Operand& src : op.src) {
        if (src.buffer == Buffer::kScratch) AXCCL_RETURN_IF_ERROR(Read(rank, lane, src, i));
      }
      for (const Operand& dst : op.dst) {
        if (dst.buffer == Buffer::kScratch)
          At(lane, dst, i) = {static_cast<int>(rank), steps_[Place(rank, lane)], parts[i]};
      }
    }
    return Status();
  }

  Status Read(size_t reader, size_t lane, const Operand& src, size_t i) {
    const Written& written = At(lane, src, i);
    if (written.rank < 0 || static_cast<size_t>(written.rank) == reader) return Status();
    const auto writer = static_cast<size_t>(written.rank);
    const uint32_t signal = SignalAfter(writer, lane, written.step, reader);
    const uint32_t heard = heard_[Place(reader, lane) * schedule_.program.size() + writer];
    if ((src.rank != writer && src.rank != reader) || signal >= heard)
      return MakeStatus(Code::kInvalidUsage,
                        "%s of %zu ranks needs memory that its ranks share; between machines take "
                        "another algorithm (NCCL_ALGO)",
                        schedule_.algorithm.c_str(), schedule_.program.size());
    if (writer != rank_) return Status();
    const Outbound::Slot slot{signal, static_cast<uint16_t>(reader), static_cast<uint16_t>(src.part + i), written.part,
                              src.rank == reader};
    auto same = [&slot](const Outbound::Slot& s) {
      return s.step == slot.step && s.reader == slot.reader && s.slot == slot.slot && s.of_reader == slot.of_reader;
    };
    auto& found = (*found_)[lane];
    if (std::none_of(found.begin(), found.end(), same)) found.push_back(slot);
    return Status();
  }

  // The step of the first signal to `reader` after a step; ~0 if there is none.
  uint32_t SignalAfter(size_t rank, size_t lane, uint32_t after, size_t reader) const {
    uint32_t step = 0;
    for (const Op& op : schedule_.program[rank][lane].ops) {
      if (op.kind == OpKind::kNop) continue;
      const bool reaches = op.peer == plan::kAllPeers || op.peer == static_cast<int>(reader);
      if (step > after && op.kind == OpKind::kSignal && reaches) return step;
      ++step;
    }
    return ~0u;
  }

  const Schedule& schedule_;
  const size_t rank_;
  std::vector<std::vector<Outbound::Slot>>* const found_;
  std::vector<uint32_t> steps_;                   // [rank, lane]: done, kNop not counted
  std::vector<std::vector<uint32_t>> signalled_;  // [rank, lane, endpoint]: steps of its signals
  std::vector<Written> written_;                  // [rank, lane, slot]
  std::vector<uint32_t> heard_;                   // [rank, lane, source]: steps of the source it knows to be done
};

}  // namespace

Result<Outbound> Outbound::Make(const Schedule& schedule, int rank) {
  Outbound outbound;
  Tracker tracker(schedule, rank, &outbound.lanes_);
  const auto visit = [&](size_t of, size_t lane, const Op& op, std::span<const uint16_t> parts) {
    return tracker.Visit(of, lane, op, parts);
  };
  AXCCL_RETURN_IF_ERROR(Walk(schedule, visit).Run());
  for (std::vector<Slot>& slots : outbound.lanes_) {
    std::sort(slots.begin(), slots.end(), [](const Slot& a, const Slot& b) {
      return std::tie(a.step, a.reader, a.of_reader, a.slot) < std::tie(b.step, b.reader, b.of_reader, b.slot);
    });
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
