// Which operations that follow each other in a lane are made at once: a lowering for calls on views, whose blocks lie
// side by side in memory, so that a mover goes through all of them row by row.
//
// Copies from a user's buffer to another, of the same part; and reductions of the same ranks' inputs into outputs.
// Nothing that synchronises lies between them. What one writes another must not touch, as bytes are moved in any order:
// the verifier proves that (src/verify/together.h).
#pragma once

#include <cstdint>
#include <vector>

#include "src/plan/schedule.h"

namespace axccl::plan {

// [operation]: how many from there on, itself included, kNop not counted. Executors begin at the first of a row of
// them.
std::vector<uint16_t> FindTogether(const Lane& lane);

}  // namespace axccl::plan
