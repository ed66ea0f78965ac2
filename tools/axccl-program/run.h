// Runs a program on host ranks of this machine.
#pragma once

#include <cstdint>
#include <vector>

#include "src/base/status.h"
#include "src/program/reference.h"
#include "tools/axccl-program/run_options.h"

namespace axccl::tools {

// Each has a host device of its own.
inline constexpr int kMostRanks = 1024;

// As RunReference, with a thread for each rank. The observer is called by all of them at once. An error is that of the
// rank that had one first, and names it. `peaks`: gets RankRun::peak_bytes of each rank.
// `steps`: of each repetition, the seconds of the slowest rank.
Result<std::vector<program::Tensors>> RunOnThreads(const program::Program& program,
                                                   const std::vector<program::Tensors>& inputs,
                                                   const program::Observer& observer = {},
                                                   std::vector<uint64_t>* peaks = nullptr,
                                                   const RunOptions& options = {},
                                                   std::vector<double>* steps = nullptr);
// Likewise with a process for each rank; none of them is left at the end, nor if the caller dies. The library must not
// have been used in this process before, which must have one thread.
Result<std::vector<program::Tensors>> RunOnProcesses(const program::Program& program,
                                                     const std::vector<program::Tensors>& inputs,
                                                     std::vector<uint64_t>* peaks = nullptr,
                                                     const RunOptions& options = {},
                                                     std::vector<double>* steps = nullptr);

}  // namespace axccl::tools
