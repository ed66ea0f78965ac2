// How large a schedule the verifier takes. Larger ones are refused rather than verified slowly. Besides the schedule,
// it holds at most about 3 GiB.
#pragma once

#include <cstdint>

#include "src/base/status.h"
#include "src/plan/schedule.h"

namespace axccl::verify {

inline constexpr int kMaxRanks = 4096;
inline constexpr uint64_t kMaxStrands = 8192;        // lanes to prove, of all ranks together
inline constexpr uint64_t kMaxPlaces = 1u << 24;     // parts of all blocks and slots, of these lanes
inline constexpr uint64_t kMaxEndpoints = 1u << 22;  // of all ranks and lanes together
// What grows with the number of operations: reads that no write has followed and the clocks that pending signals carry;
// and all folds.
inline constexpr uint64_t kMaxHeldBytes = 1u << 30;

// Whether a schedule fits that has `lanes` lanes and is otherwise like `s`, whose operations do not count. `proved`:
// the lanes to prove. Those are all lanes of a schedule that moves everything in one turn. Of other lanes that wait for
// no other lane and have the same program, it is one.
bool Fits(const plan::Schedule& s, int lanes, int proved);

// The refusal.
Status TooLarge();

}  // namespace axccl::verify
