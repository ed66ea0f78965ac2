// Happens-before over consecutive turns: deadlock, races, inline slots, the user's begin and end, completeness.
//
// The turns are run once, in an order the waits allow, with a vector clock a lane of a rank (a *strand*). An edge of
// the order is: the next operation of a strand, and a wait's own signal. It never leads back to an earlier turn, and it
// is the same in every turn; so three turns show everything that any number of turns can: conflicts inside a turn, and
// between turn t and turn t + kRotation, the next that uses the same copy of scratch. A conflict between accesses that
// the order does not decide is found whichever of the two the run meets first, so one run is a proof and not a sample.
//
// Which turns are joined: a direct schedule moves everything in one turn, so its turns are whole operations and all
// lanes of a rank end before any begins the next. Other schedules repeat turns inside an operation without that join;
// what holds without it holds with it.
//
// A counter of turn t + kRotation may overwrite the line of turn t before a waiter looked: counters only grow and waits
// are for "at least", so nothing is lost and lines need no check of their own. What travels inside a line does: an
// inline slot is visible from the first signal of its endpoint after it was written, and a reader must be ordered
// behind that one.
#pragma once

#include <cstdint>
#include <vector>

#include "src/base/status.h"
#include "src/plan/schedule.h"
#include "src/verify/structure.h"

namespace axccl::verify {

// A data operation, by its place in the program.
struct OpRef {
  uint16_t rank = 0;
  uint16_t lane = 0;
  uint32_t index = 0;
};

struct Order {
  // The data operations of one turn of the lanes examined, in an order the schedule allows.
  std::vector<OpRef> data;
  // See plan::Plan. For schedules that are not direct: lane by lane, because lanes are not joined between turns.
  bool complete = true;
};

// Examines the lanes `lanes`, which must be closed under tokens; all lanes for a direct schedule. The schedule has
// passed CheckStructure. kInvalidArgument tells the first error met.
Status CheckConcurrency(const plan::Schedule& schedule, const SignalTable& signals, const std::vector<int>& lanes,
                        Order* order);

}  // namespace axccl::verify
