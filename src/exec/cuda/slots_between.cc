#include "src/exec/cuda/slots_between.h"

#include <algorithm>

namespace axccl::exec {

template <class Visit>
void SlotsBetween::ForEachOfSlots(const plan::Schedule& schedule, const Visit& visit) {
  for (size_t rank = 0; rank < schedule.program.size(); ++rank) {
    for (size_t lane = 0; lane < schedule.program[rank].size(); ++lane) {
      for (const plan::Op& op : schedule.program[rank][lane].ops) {
        for (const auto* operands : {&op.dst, &op.src}) {
          for (const plan::Operand& operand : *operands) {
            if (operand.buffer == plan::Buffer::kScratch) visit(static_cast<int>(rank), lane, operand);
          }
        }
      }
    }
  }
}

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
  ForEachOfSlots(schedule, [&](int rank, size_t lane, const plan::Operand& slots) {
    if (placement.Apart(rank, slots.rank))
      std::fill_n(between_.begin() + static_cast<ptrdiff_t>(IndexOf(lane, slots)), slots.parts, uint8_t{1});
  });
  for (bool more = true; more;) {
    more = false;
    ForEachOfSlots(schedule, [&](int, size_t lane, const plan::Operand& slots) { more |= Spread(lane, slots); });
  }
}

}  // namespace axccl::exec
