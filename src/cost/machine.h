// What the machine can do, as a few measured constants. Plain data: broadcast as bytes from rank 0 at init, so that all
// ranks of a communicator predict with the same numbers.
#pragma once

#include <cstdint>
#include <string>

#include "src/base/status.h"

namespace axccl::cost {

struct Machine {
  double signal_seconds = 1.5e-7;      // store of a line until another core has seen it
  double op_seconds = 1.5e-8;          // fixed cost of one operation of a schedule
  double switch_seconds = 2e-6;        // handing a core to another rank, paid where ranks outnumber cores
  double cached_bytes_per_second = 4e10;   // copy, working set within the last-level cache share
  double memory_bytes_per_second = 1.2e10; // copy, beyond it
  double call_seconds = 5e-7;          // one process_vm_readv
  double call_bytes_per_second = 8e9;  // its bandwidth
  uint64_t cache_bytes = 16u << 20;    // last-level cache share of one rank
  int32_t cores = 2;                   // cores the ranks of this machine share
  int32_t ranks = 2;                   // ranks of the communicator on this machine
};

// Measures the constants in a few milliseconds (cores and ranks are left to the caller).
Machine Measure();
// The cached measurement of this machine, measuring and storing it first where there is none. The file is
// $AXCCL_CACHE_DIR, else $XDG_CACHE_HOME/axccl, else ~/.cache/axccl, /machine-<hash of CPU model, cores, version>; an
// unwritable or corrupt file is replaced or ignored, never an error.
Machine MeasureOnce();

}  // namespace axccl::cost
