// The verifier: proves a schedule right for every block size, before it may run.
//
// Checks, each with an error that names rank, lane and op id:
//   structure    operands in range, endpoints with one destination set, waits with a cause, the `direct` prologue
//   deadlock     every wait is caused, and no cycle
//   races        conflicting accesses to user buffers, slots and endpoint lines that nothing orders, over consecutive
//   turns
//                (slot and endpoint reuse) and consecutive operations (the user may touch his buffers as soon as his
//                rank is done)
//   leaks        signals no destination waits for
//   dataflow     every output part holds what the contract says, for every mixture of in-place ranks; and where all
//   ranks
//                get the same fold, they get the same bits: computed by one expression, order and roundings included
//
// Pure and thread-safe. Takes any schedule, also a hostile one: bounded in time and memory by the schedule's own size.
// kInvalidArgument when a schedule is rejected. Some milliseconds for 64 ranks, some ten microseconds for 8.
#pragma once

#include <memory>

#include "src/base/status.h"
#include "src/plan/plan.h"

namespace axccl::verify {

struct Facts {
  bool complete = false;  // see plan::Plan
};

Status Verify(const plan::Schedule& schedule, Facts* facts);

// Verifies and hashes; the only way from a schedule to a plan. Rejection is kInternalError here, because schedules come
// from generators.
Result<std::shared_ptr<const plan::Plan>> MakePlan(plan::Schedule schedule);

}  // namespace axccl::verify
