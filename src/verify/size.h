// How large a schedule the verifier takes. Larger ones are refused rather than verified slowly. Besides the schedule,
// it holds at most about 3 GiB.
#pragma once

#include <cstdint>

#include "src/base/status.h"

namespace axccl::verify {

inline constexpr int kMaxRanks = 4096;
inline constexpr uint64_t kMaxStrands = 8192;        // lanes of all ranks together
inline constexpr uint64_t kMaxPlaces = 1u << 24;     // parts of all blocks and slots, of all ranks and lanes together
inline constexpr uint64_t kMaxEndpoints = 1u << 22;  // of all ranks and lanes together
// What grows with the number of operations: reads that no write has followed and the clocks that pending signals carry;
// and all folds.
inline constexpr uint64_t kMaxHeldBytes = 1u << 30;

// The refusal.
Status TooLarge();

}  // namespace axccl::verify
