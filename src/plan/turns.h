// What the executors of all devices do alike with turns (schedule.h): which copies of lines and slots a turn uses, and
// which operations of a channel may follow each other. Constant expressions, callable on a device.
#pragma once

#include <cstdint>

#include "src/plan/region.h"

namespace axccl::plan {

// Copies of every endpoint line and scratch slot: turn t uses copy t % kRotation.
inline constexpr int kRotation = 2;

// The index of an endpoint's line in a turn, among the lines of its rank.
AXCCL_HD constexpr uint64_t LineIndex(uint32_t endpoints, uint32_t lane, uint32_t endpoint, uint64_t turn) {
  return (uint64_t{lane} * endpoints + endpoint) * kRotation + turn % kRotation;
}

// The sets of slots in a half of the scratch, which the turns of that half use one after the other. Memory that others
// have just read is slow to write again, because their cores still hold it, so scratch is used in rotation, as much as
// stays in a core's cache. Every kTurnsPerSet turns of the channel another set is added, so that few operations occupy
// few pages.
struct SlotSets {
  uint64_t bytes = 0;  // of a set: the slots of one turn
  uint64_t count = 1;

  static constexpr uint64_t kTurnsPerSet = 32;

  // The offset in its half of the set that a turn uses.
  AXCCL_HD constexpr uint64_t OffsetOf(uint64_t turn) const {
    if (count == 1) return 0;
    const uint64_t in_use = 1 + turn / kTurnsPerSet;
    return turn / kRotation % (in_use < count ? in_use : count) * bytes;
  }
};

// What an operation of a channel leaves behind for the next one to consider. Plans are identified by their hash and not
// by their address, because plans may be evicted and made again.
struct Run {
  uint64_t plan[2] = {};
  uint64_t slot_bytes = 0;
  uint32_t complete = 1;  // Plan::complete
  uint32_t barrier = 1;   // it was a barrier, or nothing has run
};

// Whether a barrier must separate two operations of a channel. Complete plans may follow each other freely: a rank that
// has ended a turn knows that all others have ended the turn before it, and are done with the scratch of the next.
// Other plans may only follow themselves, with their slots at the same places: the verifier has checked that what
// touches a slot in a turn comes before what touches it two turns later, and so before all later turns of the same
// half, one of which is the next to use the same set.
AXCCL_HD constexpr bool NeedsBarrier(const Run& last, const Run& next) {
  if (last.barrier != 0) return false;
  const bool same_plan = next.plan[0] == last.plan[0] && next.plan[1] == last.plan[1];
  if (same_plan && next.slot_bytes == last.slot_bytes) return false;
  return last.complete == 0 || next.complete == 0;
}

}  // namespace axccl::plan
