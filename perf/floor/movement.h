// Ways to do a Job, one of which is the fastest this machine allows at a size.
//
// Stateless, thread-safe. The best instruction set of the processor is chosen at the first call.
#pragma once

#include "perf/floor/jobs.h"

namespace axccl::perf {

enum class Way {
  kLoop = 0,           // vector loads and plain stores
  kStream = 1,         // vector loads and non-temporal stores
  kBlockMemcpy = 2,    // cache-sized blocks, memcpy to every destination
  kBlockRepMovsb = 3,  // the same with rep movsb
  kBlockStream = 4,    // the same with non-temporal stores, one destination after the other
  kNumWays = 5
};
const char* WayName(Way way);

void DoJob(const Job& job, Way way);

}  // namespace axccl::perf
