// Runs a program on host ranks of this machine.
#pragma once

#include <cstdint>
#include <vector>

#include "src/base/status.h"
#include "src/program/reference.h"
#include "src/program/simulate.h"
#include "tools/axccl-program/run_options.h"

namespace axccl::tools {

struct RunReport {
  bool keeps_events = false;    // given by the caller
  std::vector<uint64_t> peaks;  // RankRun's peak_bytes of each rank
  std::vector<double> steps;    // seconds of the slowest rank, of each repetition
  // As those of a simulation, with measured times, from when the first rank began. Refers to the program.
  std::vector<program::SimulatedEvent> events;
};

// As RunReference, with a thread for each rank. The observer is called by all of them at once. An error is that of the
// rank that had one first, and names it. `report`: may be null.
Result<std::vector<program::Tensors>> RunOnThreads(const program::Program& program,
                                                   const std::vector<program::Tensors>& inputs,
                                                   const program::Observer& observer = {}, RunReport* report = nullptr,
                                                   const RunOptions& options = {});
// Likewise with a process for each rank; none of them is left at the end, nor if the caller dies. The library must not
// have been used in this process before, which must have one thread.
Result<std::vector<program::Tensors>> RunOnProcesses(const program::Program& program,
                                                     const std::vector<program::Tensors>& inputs,
                                                     RunReport* report = nullptr, const RunOptions& options = {});

}  // namespace axccl::tools
