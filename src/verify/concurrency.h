// Happens-before over consecutive turns: deadlock, races, inline slots, the user's begin and end, completeness.
//
// The turns run once, in an order that the waits allow, with a vector clock for each lane of a rank (a *strand*). The
// order has two kinds of edges: from an operation to the next one of its strand, and from a signal to its wait. No edge
// leads back to an earlier turn, and the edges are the same in every turn. So three turns show everything that any
// number of turns can: conflicts inside a turn, and conflicts between turn t and turn t + kRotation, the next that uses
// the same copy of scratch. A conflict between accesses that the order does not decide is found whichever of the two
// runs first, so one run is a proof and not a sample.
//
// Which turns are joined: a direct schedule moves everything in one turn, so its turns are whole operations and all
// lanes of a rank end before any begins the next. Other schedules repeat turns inside an operation without that join;
// what holds without it holds with it.
//
// A signal of turn t + kRotation may overwrite the line of turn t before a waiter looked. Nothing is lost, because
// counters only grow and waits are for "at least", so lines need no check of their own. Data inside a line does need
// one: an inline slot is visible from the first signal of its endpoint after it was written, and a reader must be
// ordered after that signal.
//
// In a schedule with slices, the user reads an output chunk as soon as it is notified, so that must come after the last
// write there; and it writes an input chunk until that is awaited, so all reads, by whichever rank, must come after.
// The buffers of the user are the same for all lanes. A chunk is notified at once: next to the operation that writes
// it, or that shows that it is written; and no wait follows an await, so that a chunk is used or announced first. A
// notify depends on no input chunk but the chunk's own and those that the same lane awaits before; so a user that
// declares inputs in the order of the awaits, and each only when it has seen what came of those before, is never stuck.
#pragma once

#include <cstdint>
#include <vector>

#include "src/base/status.h"
#include "src/plan/schedule.h"
#include "src/verify/structure.h"

namespace axccl::verify {

// A data operation, by its position in the program.
struct OpRef {
  uint16_t rank = 0;
  uint16_t lane = 0;
  uint32_t index = 0;
};

struct Order {
  // The data operations of one turn of the lanes examined, in an order the schedule allows.
  std::vector<OpRef> data;
  // See plan::Plan. For schedules that are not direct, it is computed lane by lane, because lanes are not joined
  // between turns.
  bool complete = true;
};

// Examines the lanes `lanes`, which must be closed under tokens; all lanes for a direct schedule and one with slices.
// The schedule must have passed CheckStructure. Returns kInvalidArgument with the first error found.
Status CheckConcurrency(const plan::Schedule& schedule, const SignalTable& signals, const std::vector<int>& lanes,
                        Order* order);

}  // namespace axccl::verify
