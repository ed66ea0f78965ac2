// A plan: a contract, a schedule and the properties derived from them. Immutable, shared between channels and threads.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>

#include "src/plan/schedule.h"

namespace axccl::plan {

// 128-bit content hash of the canonical text form (text.h). Equal hashes do not prove equality; caches must compare,
// too.
struct Hash {
  uint64_t high = 0;
  uint64_t low = 0;
  friend bool operator==(const Hash&, const Hash&) = default;
};
std::string ToString(const Hash& hash);  // 32 lower-case hex digits

struct Plan {
  Schedule schedule;
  Hash hash;
  // In every turn, each rank's end happens after every rank's begin: lane by lane, unless the schedule is direct. Plans
  // with this property may follow each other on a channel freely; the executor puts a barrier around the others (see
  // exec). Computed by the verifier.
  bool complete = false;
  // Every output is one left fold of all ranks' contributions in ascending order, each read from the input or as a copy
  // has stored it. All such plans give the same bits, if storing a contribution changes nothing or every contribution
  // is rounded as storing would round it (kernels::ReduceRequest::round_factored). True where nothing is reduced.
  // Computed by the verifier.
  bool group_order = false;
  // Some rank writes into another's output (Pushes). Such a plan is only for ranks that cannot outlive the call of the
  // output's owner, as ranks of the owner's process.
  bool pushes = false;
  // A message whose sender waits for nothing before all its data is published (SendsAhead).
  bool sends_ahead = false;
};

}  // namespace axccl::plan
