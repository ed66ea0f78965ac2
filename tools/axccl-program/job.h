// The place of this process in a job that torchrun, mpirun or srun has started: which ranks of a program it has.
// Without a job, a process has all of them.
#pragma once

#include <functional>
#include <string>

#include "src/base/status.h"
#include "src/program/program.h"
#include "tools/axccl-program/ranks.h"

namespace axccl::tools {

using Environment = std::function<const char*(const char*)>;  // getenv, or a test's

struct Job {
  RankRange here;             // in the order of the processes, as many for each
  int processes = 1;          // 1: no job
  std::string meeting_point;  // what NCCL_COMM_ID must be set to; "": it is set, or not needed
};

// kInvalidUsage if a launcher's variables are incomplete or make no sense, if the ranks cannot be divided by the number
// of processes, or if there is nothing that says where the processes meet.
Result<Job> FindJob(int ranks, const Environment& get);

// Tasks that first compare a number of each rank, and fail if it is not that of rank 0: `what` says what must be alike.
// For a job, whose processes may have been started with different files.
MakeTask ComparedFirst(uint64_t number, int ranks, const char* what, const MakeTask& make);

// "out.4.json" for "out.{rank}.json", if rank 4 is the first one here.
std::string WithRank(const std::string& name, RankRange here);
// Likewise of a file that is written. kInvalidUsage for a name without {rank} in a job: all would write one file.
Result<std::string> NameHere(const char* option, const std::string& name, const Job& job);

}  // namespace axccl::tools
