#include "src/exec/cuda/slots_between.h"

#include <algorithm>

namespace axccl::exec {

// If one of the slots is between machines, all become so. Returns whether any was not.
bool SlotsBetween::Spread(size_t lane, const plan::Operand& slots) {
  const auto first = between_.begin() + static_cast<ptrdiff_t>(IndexOf(lane, slots)), last = first + slots.parts;
  const auto some = std::count(first, last, uint8_t{1});
  if (some == 0 || some == slots.parts) return false;
  std::fill(first, last, uint8_t{1});
  return true;
}

SlotsBetween::SlotsBetween(const plan::Schedule& schedule, const plan::Placement& placement)
    : lanes_(schedule.lanes), slots_(schedule.slots) {
  if (placement.is_flat()) return;
  between_.resize(schedule.program.size() * lanes_ * slots_);
  plan::ForEachOperand(schedule, [&](size_t rank, size_t lane, const plan::Operand& o) {
    if (o.buffer == plan::Buffer::kScratch && placement.Apart(static_cast<int>(rank), o.rank))
      std::fill_n(between_.begin() + static_cast<ptrdiff_t>(IndexOf(lane, o)), o.parts, uint8_t{1});
  });
  for (bool more = true; more;) {
    more = false;
    plan::ForEachOperand(schedule, [&](size_t, size_t lane, const plan::Operand& o) {
      more |= o.buffer == plan::Buffer::kScratch && Spread(lane, o);
    });
  }
}

}  // namespace axccl::exec
