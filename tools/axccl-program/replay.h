// The communication of a program without its computation: a benchmark made of a program.
//
// Each rank issues the program's collectives and messages, on the channels and in the order of a run (rank_calls.h), on
// zeros of the right shapes; local operations are left out. Loops go round as often as in a simulation. After a round
// that is not measured, for channels and prepared calls, come as many measured ones as asked for; ranks meet before
// each. With AXCCL_DEVICE=cuda ranks are GPUs (gpu_replay.h). Calls with operands of one type read the same buffer, and
// calls with results of the same types write the same.
#pragma once

#include <string>
#include <vector>

#include "src/base/status.h"
#include "src/program/program.h"
#include "src/program/simulate.h"
#include "tools/axccl-program/ranks.h"

namespace axccl::tools {

struct CallSite {
  const program::Operation* operation;
  std::vector<program::TensorType> operands;
};

struct ReplayOptions {
  program::SimulateOptions loops;  // how often loops go round, and which branch is taken
  int rounds = 10;
  Start start = RunRanksOnThreads;
};

// A line for each call site: how often a rank calls it in a round; of each rank's calls the median, of these the median
// and that of the slowest rank. Then the time of a round, from the first call of any rank to the end of the last. A
// recv or collective includes the wait for others; a send goes on until its message has been taken. Errors: those of
// simulate.h about loops; kInvalidUsage for more than 2^22 calls of a rank; those of
// `start`, whose conditions hold. Ranks that are not of this process are left out.
Result<std::string> Replay(const program::Program& program, const ReplayOptions& options);

}  // namespace axccl::tools
