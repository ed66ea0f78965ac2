// Whether operations that executors make at once (src/plan/together.h) may be: some bytes of each, then some more, in
// any order, as if they were one.
#pragma once

#include <cstdint>
#include <vector>

#include "src/base/status.h"
#include "src/plan/schedule.h"

namespace axccl::verify {

// Of one lane of a rank. Among those made at once nothing that one operation writes may be read or written by another,
// in place or not. `together` is as FindTogether gives it. The schedule has passed CheckStructure. kInvalidArgument
// tells the first error met.
Status CheckTogether(const plan::Schedule& schedule, int rank, int lane, const std::vector<uint16_t>& together);

// Of all lanes, with what executors make at once.
Status CheckTogether(const plan::Schedule& schedule);

}  // namespace axccl::verify
