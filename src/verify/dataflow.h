// Dataflow: what every place holds after every operation, and whether the outputs end as the contract says.
//
// A value is a rank's contribution {rank, block, part}, or in kinds that reduce a fold of some ranks' contributions,
// which may be finished. Reading an input in such a kind yields that rank's scaled contribution.
//
// Every mixture of in-place ranks is covered by one walk. Out of place the values are what the walk computes. In place,
// input and output blocks of some ranks share memory; then only reads of such an input could differ, and the walk
// refuses a read that may find anything but the rank's own input there. So, operation by operation, every mixture
// computes the same.
#pragma once

#include "src/base/status.h"
#include "src/plan/schedule.h"
#include "src/verify/concurrency.h"

namespace axccl::verify {

// Walks the data operations of lane `lane` in `order`. The schedule has passed CheckStructure and CheckConcurrency, so
// that any order the schedule allows leads to the same values. kInvalidArgument tells the first error met.
// *group_order is whether the lane keeps that (plan::Plan).
Status CheckDataflow(const plan::Schedule& schedule, const Order& order, int lane, bool* group_order);

}  // namespace axccl::verify
