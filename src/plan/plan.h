// A plan: contract + schedule, with what is derived from them once. Immutable, shared between channels and threads.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>

#include "src/plan/schedule.h"

namespace axccl::plan {

// 128-bit content hash of the canonical text form (text.h). Equal hash does not replace equality in caches.
struct Hash {
  uint64_t high = 0;
  uint64_t low = 0;
  friend bool operator==(const Hash&, const Hash&) = default;
};
std::string ToString(const Hash& hash);  // 32 lower-case hex digits

struct Plan {
  Schedule schedule;
  Hash hash;
  // In every turn each rank's end happens after every rank's begin; lane by lane, unless the schedule is direct. Plans
  // with this property may follow each other on a channel freely; the executor puts a barrier around the others (see
  // exec). Computed by the verifier.
  bool complete = false;
  // Every output is one left fold of all ranks' contributions in ascending order, each taken from the input or as a
  // copy has stored it. Where storing a contribution changes nothing, or every contribution is brought to what storing
  // makes of it (kernels::ReduceRequest::round_factored), all such plans give the same bits. True where nothing is
  // reduced. Computed by the verifier.
  bool group_order = false;
  // Some rank writes into another's output (Pushes): for ranks that cannot outlive the owner's call, as those of its
  // own process.
  bool pushes = false;
};

}  // namespace axccl::plan
