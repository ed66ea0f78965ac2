// The command line of overlap_perf.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "axccl/pipelines.h"

namespace axccl::perf::overlap {

// A matrix product and a collective of its input or output, with D ranks and S slices; <D> is a dimension of which each
// rank has one index. The forms are those of nvFuser's benchmarks (tests/python/multidevice/test_overlap.py).
enum class Pattern {
  kAgMatmul,     // all_gather of [S, <D>, M/SD, K], times [K, N]
  kMatmulAr,     // [S, M/S, K/D] times [K/D, N] of each rank, all_reduce
  kMatmulRs,     // [S, D, M/SD, K/D] times [K/D, N] of each rank, reduce_scatter along D
  kAgMatmulOwn,  // all_gather of [<D>, M/D, K], times [K, N], the own block first
};
const char* PatternName(Pattern pattern);
// Whether the product follows the collective.
constexpr bool Gathers(Pattern pattern) { return pattern == Pattern::kAgMatmul || pattern == Pattern::kAgMatmulOwn; }

// How both are done: one after the other; a call for each slice; a pipeline.
enum class Mode { kBulk, kCalls, kPipeline };
const char* ModeName(Mode mode);

struct OverlapOptions {
  Pattern pattern = Pattern::kAgMatmul;
  std::vector<Mode> modes = {Mode::kBulk, Mode::kCalls, Mode::kPipeline};
  int ranks = 2;    // in all
  int threads = 1;  // of each process, with a rank each
  int rank = -1;    // of this process, started by hand; -1: all are started here
  int64_t m = 4096, k = 4096, n = 1024;
  int64_t slices = 8;
  int rounds = 5;
  bool balance = false;
  bool malloc = false;
  bool gpu = false;    // ranks on GPUs
  bool plain = false;  // products on GPUs by a plain kernel
  axcclEngine_t engine = axcclEngineAuto;
  std::string trace_path, json_path;  // empty: none
};

// Ends the program after --help, and when the command line is wrong.
OverlapOptions ParseOverlapOptions(int argc, char** argv);

// "" or why the sizes do not fit.
std::string RefuseSizes(const OverlapOptions& options);

}  // namespace axccl::perf::overlap
