// Runs a program on host ranks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/base/status.h"
#include "src/program/reference.h"
#include "src/program/simulate.h"
#include "tools/axccl-program/ranks.h"
#include "tools/axccl-program/run_options.h"

namespace axccl::tools {

struct RunReport {
  bool keeps_events = false;    // given by the caller
  std::vector<uint64_t> peaks;  // RankRun's peak_bytes of each rank
  std::vector<double> steps;    // seconds of the slowest rank here, of each repetition
  std::string verdict;          // of all ranks of a job, if they compare
  // As those of a simulation, with measured times, from when the first rank began. Refers to the program.
  std::vector<program::SimulatedEvent> events;
};

// As RunReference, with a thread for each rank. The observer is called by all of them at once. An error is that of the
// rank that had one first, and names it. `report`: may be null.
Result<std::vector<program::Tensors>> RunOnThreads(const program::Program& program,
                                                   const std::vector<program::Tensors>& inputs,
                                                   const program::Observer& observer = {}, RunReport* report = nullptr,
                                                   const RunOptions& options = {});
// Likewise by `start`, whose conditions hold. Ranks that are not of this process have no outputs.
Result<std::vector<program::Tensors>> RunBy(const Start& start, const program::Program& program,
                                            const std::vector<program::Tensors>& inputs, RunReport* report = nullptr,
                                            const RunOptions& options = {});

}  // namespace axccl::tools
