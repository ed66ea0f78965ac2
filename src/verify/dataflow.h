// Dataflow: what every place holds after every operation, and whether the outputs end as the contract requires.
//
// A value is a rank's contribution {rank, block, part} or, in kinds that reduce, a fold of some ranks' contributions,
// which may be finished. Reading an input in such a kind yields that rank's scaled contribution.
//
// One walk covers every mixture of in-place ranks. Out of place, the values are what the walk computes. In place, input
// and output blocks of some ranks share memory; only reads of such an input could differ, and the walk refuses a read
// that may find anything but the rank's own input there. So every mixture computes the same in every operation.
#pragma once

#include "src/base/status.h"
#include "src/plan/schedule.h"
#include "src/verify/concurrency.h"

namespace axccl::verify {

// Walks the data operations of lane `lane` in `order`; those of all lanes in a schedule with slices. The schedule must
// have passed CheckStructure and CheckConcurrency, so any order that it allows leads to the same values. Returns
// kInvalidArgument with the first error found. *group_order is whether the lane folds in group order (plan::Plan).
Status CheckDataflow(const plan::Schedule& schedule, const Order& order, int lane, bool* group_order);

}  // namespace axccl::verify
