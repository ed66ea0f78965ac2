// What the machine can do, as a few measured constants. Plain data: broadcast as bytes from rank 0 at init, so that all
// ranks of a communicator predict with the same numbers. Where they are on several machines, all are taken to be like
// it, and all links between them to be like the slowest that was measured.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "src/base/status.h"

namespace axccl::cost {

struct Machine {
  double signal_seconds = 1.5e-7;           // store of a line until another core has seen it
  double op_seconds = 1.5e-8;               // fixed cost of one operation of a schedule
  double switch_seconds = 2e-6;             // handing a core to another rank, paid where ranks outnumber cores
  double cached_bytes_per_second = 4e10;    // copy, working set within the last-level cache share
  double memory_bytes_per_second = 1.2e10;  // copy, beyond it
  double call_seconds = 5e-7;               // one process_vm_readv
  double call_bytes_per_second = 8e9;       // its bandwidth
  // Between machines, as network.h has them; no part of the file. Fixed figures until communicators have measured.
  double network_signal_seconds = 1e-5;   // a message without data, until a rank of another machine has seen it
  double network_message_seconds = 1e-6;  // of the core of the rank that sends one, and of the one that takes it in
  double link_bytes_per_second = 2e9;  // what the ranks of a machine send to others in all; as much comes in meanwhile
  uint64_t cache_bytes = 16u << 20;    // last-level cache share of one rank
  int32_t cores = 2;                   // cores the ranks of this machine share
  int32_t ranks = 2;                   // ranks of the communicator on this machine

  friend bool operator==(const Machine&, const Machine&) = default;
};

// Measures the constants in a few milliseconds (cores and ranks are left to the caller). What cannot be measured here
// (one core only, a system call refused) keeps its default. Starts and joins two threads of its own; thread-safe.
Machine Measure();
// The cached measurement of this machine, measuring and storing it first where there is none. The file is
// $AXCCL_CACHE_DIR, else $XDG_CACHE_HOME/axccl, else ~/.cache/axccl, /machine-<hash of CPU model, cores, version>; an
// unwritable or corrupt file is replaced or ignored, never an error. Thread-safe; processes may race, the last file
// stays.
Machine MeasureOnce();

// Of one GPU with so many multiprocessors, for ranks that share it. Fixed figures: "cores" are multiprocessors and the
// bandwidths those of one block; nothing is measured.
Machine GpuMachine(int multiprocessors, int ranks);

// Cores this process may use.
int Cores();

// Where MeasureOnce keeps its file; empty when the environment names no place for it.
std::string CacheFile();
// As MeasureOnce, with the file given. Empty: measures.
Machine MeasureOnce(const std::string& file);

// What such a file says. kSystemError where it cannot be read, else as FromText, with the file named.
Result<Machine> ReadMachine(const std::string& file);

// The text of the file: a line with name and version, then `name value` lines, in this order, with all digits.
std::string ToText(const Machine& machine);
// kInvalidArgument with line and reason unless `text` is exactly such a text with values that a machine can have.
Result<Machine> FromText(std::string_view text);

}  // namespace axccl::cost
