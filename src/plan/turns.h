// What executors on every device do alike with turns (schedule.h): which copies of lines and slots a turn uses, and
// which operations of a channel may follow each other. Constant expressions, callable on a device.
#pragma once

#include <cstdint>

#include "src/plan/region.h"

namespace axccl::plan {

// Copies of every endpoint line and scratch slot: turn t uses copy t % kRotation.
inline constexpr int kRotation = 2;
inline constexpr int kAllPeers = -1;  // the destination of a signal to all other ranks

// The line of an endpoint in a turn, among the lines of its rank.
AXCCL_HD constexpr uint64_t LineIndex(uint32_t endpoints, uint32_t lane, uint32_t endpoint, uint64_t turn) {
  return (uint64_t{lane} * endpoints + endpoint) * kRotation + turn % kRotation;
}

// A half of the scratch, which the turns of one copy use, holds `sets` sets of slots, `set_bytes` each. Where in its
// half the set of a turn begins. Memory that others have just read is slow to write again, as their cores still hold
// it: so all of the scratch is used in turn, until it is larger than what a core can hold. Every kTurnsPerSet turns of
// the channel there is one more set in use, so that few operations take few pages of memory.
inline constexpr uint64_t kTurnsPerSet = 32;
AXCCL_HD constexpr uint64_t SetOffset(uint64_t turn, uint64_t sets, uint64_t set_bytes) {
  if (sets == 1) return 0;
  const uint64_t in_use = 1 + turn / kTurnsPerSet;
  return turn / kRotation % (in_use < sets ? in_use : sets) * set_bytes;
}

// An operation of a channel, as far as it decides what may follow it. The default may be followed by any: nothing has
// run. Plans are told apart by hash and not by address, as they may be forgotten and made again.
struct Ran {
  uint64_t plan[2] = {};
  uint64_t slot_bytes = 0;
  uint32_t complete = 1;  // Plan::complete
  uint32_t was_barrier = 1;
};

// Whether a barrier must separate two operations. Complete plans follow each other freely: who has ended a turn knows
// that all others have ended the turn before it, and with it are done with the scratch of the next. Others may only
// follow themselves, with their slots at the same places: the verifier has seen that what touches a slot in a turn
// comes before what touches it two turns later, and so before all later turns of the same half, one of which is the
// next to use the same set.
AXCCL_HD constexpr bool NeedsBarrier(const Ran& last, const Ran& next) {
  if (last.was_barrier != 0) return false;
  const bool same_plan = next.plan[0] == last.plan[0] && next.plan[1] == last.plan[1];
  if (same_plan && next.slot_bytes == last.slot_bytes) return false;
  return last.complete == 0 || next.complete == 0;
}

}  // namespace axccl::plan
