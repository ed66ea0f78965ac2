// A process of a job: what torchrun, mpirun, srun or another PMI launcher has put into its environment. Pure, except
// for the parent's process id, which stands for a job that has no name.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "src/base/status.h"

namespace axccl {

// The content of a launcher's variables.
struct Launched {
  std::string launcher;  // "torchrun", "Open MPI", "srun", "PMI", "MVAPICH"
  int rank = 0;
  int size = 1;
  int local_size = 0;       // processes on this machine; 0 = unknown
  std::string key;          // the same for all processes of the job, and only for them
  std::string coordinator;  // host:port for NCCL_COMM_ID; empty if unknown
};

// Reads the variables through `get` (getenv, or a test's). Returns nothing if there is no launcher, and an error if its
// variables make no sense.
Result<std::optional<Launched>> DetectLauncher(const std::function<const char*(const char*)>& get);

// An error that names the variable if a launcher's variables are there in part: of a rank without the number of
// processes, or of both without a place to meet. Of a program that would run without its peers then.
Status CheckLauncherComplete(const std::function<const char*(const char*)>& get);

// Also takes a rank and a size that a user has set by hand, without the other variables of their launcher. Of such,
// only launcher, rank and size are known.
Result<std::optional<Launched>> DetectPlace(const std::function<const char*(const char*)>& get);

// The port that a variable names, 1..65534: the next number is a port, too.
Result<int> PortFrom(const std::function<const char*(const char*)>& get, const char* name);

}  // namespace axccl
