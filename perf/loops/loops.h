// Plain loops that copy separate runs of bytes: the comparison for AxCCL's calls on other dimensions than the first, by
// themselves and after a collective on the first dimension.
//
// Stateless, thread-safe. The best instruction set of the processor is chosen at the first call.
#pragma once

#include <cstddef>
#include <vector>

namespace axccl::perf {

// Run i goes from source + i * source_step to destination + i * destination_step.
struct Runs {
  const char* source;
  char* destination;
  size_t count;
  size_t bytes;  // of one run
  ptrdiff_t source_step;
  ptrdiff_t destination_step;
};

enum class Loop {
  kMemcpy = 0,  // memcpy of a size known at run time only
  kMoves = 1,   // a constant size (4 B to 1 KiB, powers of two) as vector moves, else a loop of vectors
  kStream = 2,  // the same with non-temporal stores, where their alignment allows
  kNumLoops = 3
};

// A way to copy several Runs: one after the other, or run i of all of them before run i + 1 (of as many runs each).
struct CopyWay {
  Loop loop;
  bool together;
};
std::vector<CopyWay> AllCopyWays();
// "moves, runs together".
const char* CopyWayName(const CopyWay& way);

void CopyRuns(const std::vector<Runs>& parts, const CopyWay& way);

// From `gathered`, the blocks of `ranks` ranks one after another, each of `count` runs of `bytes`, to an output in
// which the runs of all ranks are side by side: the remaining work after an all-gather on the first dimension.
std::vector<Runs> SideBySide(const char* gathered, char* out, size_t ranks, size_t count, size_t bytes);

}  // namespace axccl::perf
