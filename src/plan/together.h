// Finds consecutive operations of a lane that can be executed as one: a lowering for calls on views, whose blocks lie
// side by side in memory, so that a mover can go through all of them row by row.
//
// A group holds copies of the same part from one user's buffer to another, or reductions of the same ranks' inputs into
// outputs, with no synchronisation between them. None may touch what another one writes, because bytes are moved in any
// order; the verifier proves that (src/verify/together.h).
#pragma once

#include <cstdint>
#include <vector>

#include "src/plan/schedule.h"

namespace axccl::plan {

// Returns for each operation the number of operations that are executed together from it on, including it and not
// counting kNop. Executors start at the first operation of a group.
std::vector<uint16_t> FindTogether(const Lane& lane);

}  // namespace axccl::plan
