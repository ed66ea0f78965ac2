// Time limits in tests. Steady clock, comparable between processes of one machine.
//
// A bound such as "within 100 ms" is tested at three times its value (more under sanitizers): a run on a loaded machine
// must not fail by chance, and a missing mechanism exceeds the bound by far more.
#pragma once

#include <time.h>

#include <cstdint>

#include "tests/harness/run_ranks.h"

namespace axccl::harness {

inline uint64_t NowNs() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1000000000u + static_cast<uint64_t>(now.tv_nsec);
}

// CPU time this process has used, all threads.
inline uint64_t ProcessCpuNs() {
  timespec used{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return static_cast<uint64_t>(used.tv_sec) * 1000000000u + static_cast<uint64_t>(used.tv_nsec);
}

// What a test allows for a promised bound, in nanoseconds.
inline uint64_t AllowedNs(uint64_t promised_ms) {
  return promised_ms * 1000000u * 3u * static_cast<uint64_t>(TimeScale());
}

}  // namespace axccl::harness
