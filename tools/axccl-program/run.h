// Runs a program on host ranks of this machine.
#pragma once

#include <cstdint>
#include <vector>

#include "src/base/status.h"
#include "src/program/reference.h"

namespace axccl::tools {

struct RankOutcome {
  program::Tensors outputs;
  uint64_t peak_bytes = 0;  // RankRun::peak_bytes
};
using Outcomes = std::vector<RankOutcome>;  // [rank]

// As RunReference, with a thread for each rank. The observer is called by all of them at once.
Result<Outcomes> RunOnThreads(const program::Program& program, const std::vector<program::Tensors>& inputs,
                              const program::Observer& observer = {});
// As RunReference, with a process for each rank. The library must not have been used in this process before.
Result<Outcomes> RunOnProcesses(const program::Program& program, const std::vector<program::Tensors>& inputs);

}  // namespace axccl::tools
