// Checks operations that executors run as one (src/plan/together.h): an executor moves some bytes of each, then some
// more of each, in any order.
#pragma once

#include <cstdint>
#include <vector>

#include "src/base/status.h"
#include "src/plan/schedule.h"

namespace axccl::verify {

// Checks one lane of a rank: among operations that run as one, no operation may read or write what another one writes,
// in place or not. `together` is the result of FindTogether. The schedule must have passed CheckStructure. Returns
// kInvalidArgument with the first error found.
Status CheckTogether(const plan::Schedule& schedule, int rank, int lane, const std::vector<uint16_t>& together);

// Checks all lanes, with the groups that executors use.
Status CheckTogether(const plan::Schedule& schedule);

}  // namespace axccl::verify
