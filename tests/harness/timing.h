// Time limits in tests. Steady clock, comparable between processes of one machine.
//
// A bound such as "within 100 ms" is tested at three times its value (more under sanitizers, and on a loaded machine):
// a run must not fail by chance, and a missing mechanism exceeds the bound by far more.
#pragma once

#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
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

// How many threads have wanted to run on each core of the machine, over the last minute; at least 1.
inline double Crowding() {
  double threads = 0;
  if (getloadavg(&threads, 1) != 1) return 1;
  return std::max(1.0, threads / static_cast<double>(sysconf(_SC_NPROCESSORS_ONLN)));
}

// What a test allows for a promised bound, in nanoseconds.
inline uint64_t AllowedNs(uint64_t promised_ms) {
  return static_cast<uint64_t>(static_cast<double>(promised_ms * 3000000u) * TimeScale() * Crowding());
}

// Between two looks of a test for what another thread or process will do. A test that only yields would take a core
// from them, and from the tests that run beside it.
inline void LookLater() { usleep(200); }

}  // namespace axccl::harness
