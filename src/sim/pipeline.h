// Predicts what a pipeline saves: a collective with slices, whose callers compute while it is under way, compared with
// the same collective without slices before or after the computation.
#pragma once

#include <string>

#include "src/base/status.h"
#include "src/sim/simulate.h"

namespace axccl::sim {

struct Pipeline {
  Report whole;                // of both at the same time; its bus bandwidth is that of the whole time
  Report communication;        // of the same plan, with callers that compute nothing
  double compute_seconds = 0;  // the longest computation of a caller, without waiting
  double overlap = 0;          // the longer one of communication and computation, divided by the whole; 1: perfect
  // One after the other: the callers compute their input, the fastest plan without slices (with one lane, in one turn)
  // runs, and the callers compute with their output.
  double bulk_seconds = 0;
  std::string bulk_algorithm;
};

// For requests with slices; otherwise the errors are those of Simulate.
Result<Pipeline> SimulatePipeline(const Request& request);

}  // namespace axccl::sim
