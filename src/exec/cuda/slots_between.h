// The slots of a plan that ranks of several machines use: written or read by a rank that is not on their owner's
// machine. On GPU ranks these are in host memory, where messages are sent from and arrive, and all others are on the
// devices.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "src/plan/placement.h"
#include "src/plan/schedule.h"

namespace axccl::exec {

class SlotsBetween {
 public:
  // The schedule has the operations of all ranks.
  SlotsBetween(const plan::Schedule& schedule, const plan::Placement& placement);

  // Whether those of an operand are such slots, in an operation of that lane: all of them, or none. (Slots that one
  // operation moves together are in one place: if one of them is between machines, all are.)
  bool Has(size_t lane, const plan::Operand& slots) const {
    return !between_.empty() && between_[IndexOf(lane, slots)] != 0;
  }

 private:
  size_t IndexOf(size_t lane, const plan::Operand& slots) const {
    return (slots.rank * lanes_ + lane) * slots_ + slots.part;
  }
  bool Spread(size_t lane, const plan::Operand& slots);

  const size_t lanes_, slots_;
  std::vector<uint8_t> between_;  // [owner, lane, slot]; empty: none is
};

}  // namespace axccl::exec
