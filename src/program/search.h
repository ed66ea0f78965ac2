// Tries all ways to spread a training step over devices, and says how long each takes and what memory it needs.
//
// Deterministic, whatever the number of threads.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "src/base/status.h"
#include "src/program/simulate.h"
#include "src/program/transform.h"

namespace axccl::program {

struct SearchSpace {
  int64_t devices = 1;
  uint64_t memory_bytes = 0;  // of a device; 0: no limit
  std::vector<int> zero{0, 1, 2, 3};
  std::vector<int64_t> recompute{0, 1};
  std::vector<int64_t> microbatches{2, 4, 8, 16, 32, 64};  // of pipelines; one stage has one
  PipelineOrder order = PipelineOrder::k1F1B;
  int64_t bucket_bytes = 25 << 20;  // of Overlap; -1: no overlap
  size_t threads = 1;               // that search; each holds the program of a candidate
};

struct Candidate {
  Parallelism parallelism;
  double seconds = 0;            // 0 if it cannot be used, and so are the parts of the time
  uint64_t peak_bytes = 0;       // of the device that needs most
  double exposed = 0, idle = 0;  // parts of the time, means of all devices
  std::string left_out = {};     // why it cannot be used; empty: it can
};

// All with tensor * data * stages == devices. Those that can be used come first, the fastest at the top; then those
// that need too much memory, the smallest first; then those that the program cannot be cut for. The model's errors are
// returned; its LocalSeconds is called by all threads at once.
Result<std::vector<Candidate>> Search(const Program& program, const SearchSpace& space, Model* model);

}  // namespace axccl::program
