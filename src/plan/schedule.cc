#include "src/plan/schedule.h"

#include <algorithm>

namespace axccl::plan {

bool Pushes(const Schedule& schedule) {
  for (size_t rank = 0; rank < schedule.program.size(); ++rank) {
    const auto elsewhere = [rank](const Operand& o) { return !IsSlot(o) && o.rank != rank; };
    for (const Lane& lane : schedule.program[rank]) {
      for (const Op& op : lane.ops) {
        if (std::any_of(op.dst.begin(), op.dst.end(), elsewhere)) return true;
        if (op.kind == OpKind::kNotify && op.peer != static_cast<int>(rank)) return true;
      }
    }
  }
  return false;
}

bool UsesMulticast(const Schedule& schedule) {
  bool any = false;
  ForEachOperand(schedule, [&](size_t, size_t, const Operand& o) { any |= o.buffer == Buffer::kMulticast; });
  return any;
}

bool SendsAhead(const Schedule& schedule) {
  if (schedule.contract.kind != Kind::kSendRecv || schedule.direct || schedule.slices != 0) return false;
  const auto is_wait = [](const Op& op) { return op.kind == OpKind::kWait; };
  return std::all_of(schedule.program[0].begin(), schedule.program[0].end(), [&](const Lane& lane) {
    return std::is_partitioned(lane.ops.begin(), lane.ops.end(), [&](const Op& op) { return !is_wait(op); });
  });
}

}  // namespace axccl::plan
