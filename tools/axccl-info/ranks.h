// Local processes that form a communicator and report about it. Uses the public C API only.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace axccl_info {

inline constexpr int kMaxRanks = 64;

// The report of one rank. Plain data, because it is passed between processes.
struct RankReport {
  int done;  // 1 once everything below is filled in
  int pid;
  int device;
  double init_seconds;     // ncclCommInitRank, wall clock
  uint64_t memory_before;  // bytes held for the rank after init
  uint64_t memory_after;   // and after one all_reduce of `kReduceBytes`
  char algorithm[32];      // of that all_reduce
  char links[kMaxRanks][16];
  char error[512];  // why the rank failed; empty if it did not
};

inline constexpr uint64_t kReduceBytes = 64u << 20;

// Forks `ranks` (1..kMaxRanks) processes, one rank each, and waits for them. Must be called before this process uses
// the library, because a process forked from a user of the library cannot use it. If a rank fails, the others are
// ended.
std::vector<RankReport> RunRanks(int ranks);

}  // namespace axccl_info
