// The verifier: proves that a schedule is right for every block size, before it may run.
//
// Checks, each with an error that names rank, lane and op id:
//   structure    operands in range, endpoints with one destination set, waits with a cause, the first exchange of a
//                direct schedule, for which all lanes wait
//   together     operations that executors run as one touch nothing that another of them writes
//   deadlock     every wait is caused, and there is no cycle
//   races        conflicting accesses to user buffers and slots that nothing orders, over consecutive turns (slots are
//                used again) and consecutive operations (the user may touch buffers as soon as their rank is done)
//   leaks        signals whose last value a destination does not wait for
//   dataflow     every output part holds what the contract requires, for every mixture of in-place ranks; where all
//                ranks get the same fold, they get the same bits, because one expression computes it, roundings
//                included
//
// Pure and thread-safe. Accepts any schedule, also a malicious one: a schedule that is too large to be proved in
// bounded memory is refused (size.h has the limits). Returns kInvalidArgument when a schedule is rejected. Takes
// about 3 ms for the largest generated schedule of 64 ranks and 0.03 ms for one of 8 on a server's core.
#pragma once

#include <memory>

#include "src/base/status.h"
#include "src/plan/plan.h"

namespace axccl::verify {

struct Facts {
  bool complete = false;     // see plan::Plan
  bool group_order = false;  // likewise
};

Status Verify(const plan::Schedule& schedule, Facts* facts);

// Verifies and hashes; the only way from a schedule to a plan. A rejection is kInternalError here, because schedules
// come from generators.
Result<std::shared_ptr<const plan::Plan>> MakePlan(plan::Schedule schedule);

}  // namespace axccl::verify
