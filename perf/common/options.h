// The command line shared by all perf tools: nccl-tests' options under nccl-tests' names and defaults, plus a few.
//
// Plain values, no behaviour. Parsing neither prints nor exits; it is strict (a malformed number, an unknown type or
// an option that host ranks cannot honour is an error that names the option, the value and what to do).
#pragma once

#include <cstddef>
#include <string>

#include "nccl.h"
#include "perf/common/view_options.h"
#include "src/base/status.h"

namespace axccl::perf {

// -z: how far the host waits inside the timed loop.
enum class Blocking {
  kNone = 0,          // enqueue all, wait once at the end
  kInnerBarrier = 1,  // wait and meet at a barrier after every operation
  kInner = 2,         // wait after every operation: the latency of enqueue + synchronise
  kOuterBarrier = 3,  // wait and meet after every -m operations; the barrier is not counted
};

// -a: how different times of the ranks are combined.
enum class Average { kRank0 = 0, kMean = 1, kMin = 2, kMax = 3 };

// -R.
enum class Registration { kNone = 0, kLocal = 1, kWindow = 2 };

inline constexpr int kAllTypes = -1;
inline constexpr int kAllOps = -1;
inline constexpr int kAllRoots = -1;

struct Options {
  int threads = 1;            // -t, per process
  int ranks_per_thread = 1;   // -g
  bool layout_given = false;  // -t or -g was given
  int ranks = 0;              // --ranks: processes; 0 = not given
  int rank = -1;              // --rank: index of this process among them; -1 = not given, all are started here
  bool sizes_given = false;   // -b, -e, -i or -f was given
  size_t min_bytes = size_t{32} << 20;
  size_t max_bytes = size_t{32} << 20;
  size_t step_bytes = size_t{1} << 20;
  size_t step_factor = 1;  // 1 = add step_bytes
  int iterations = 20;
  int aggregate = 1;  // operations a group, -m
  int warmup = 1;
  int cycles = 1;  // -N, 0 = endless
  bool parallel_init = false;
  int checks = 1;          // -c
  int op = 0;              // index into the op names, or kAllOps
  int type = ncclFloat32;  // ncclDataType_t, or kAllTypes
  int root = 0;            // or kAllRoots
  Blocking blocking = Blocking::kNone;
  bool null_stream = false;
  int timeout_seconds = 0;  // -T, 0 = none
  bool report_cpu_time = false;
  bool report_timestamps = false;
  std::string json_path;  // empty = none
  Average average = Average::kMean;
  Registration registration = Registration::kNone;
  int cta_policy = -1;  // -1 = not set
  bool memory_report = false;
  size_t unalign = 0;  // elements
  bool per_iteration = false;
  int per_iteration_skip = 0;
  bool malloc_buffers = false;  // --malloc
  ViewOptions views;            // --shape and related options
  bool help = false;
};

// Parses argv. When help is set in the result, the rest may be incomplete.
Result<Options> ParseOptions(int argc, char** argv);

// "8", "64K", "1.5M", "2G" (binary units) to bytes.
Result<size_t> ParseSize(const char* text);

// The text of --help.
std::string UsageText(const std::string& program);

}  // namespace axccl::perf
