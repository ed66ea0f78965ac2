// How the processes of a perf run come to be and find each other: forked here, or started by a launcher.
//
// EnterWorld must run before any call of the library and before threads exist. It returns in every process of the run;
// the supervising parent of forked processes never comes back from it.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "perf/common/options.h"
#include "perf/common/shared_page.h"
#include "src/base/status.h"

namespace axccl::perf {

// The processes of a run and this one's place.
struct World {
  int processes = 1;
  int process = 0;
  int local_processes = 1;  // on this machine
  // Where the processes meet; null when they live on several machines (then NCCL_COMM_ID is set and the tools agree
  // through the communicators).
  std::unique_ptr<SharedPage> page;
};

Result<World> EnterWorld(const Options& options);

// What a launcher's variables say.
struct Launched {
  std::string launcher;  // "torchrun", "Open MPI", "srun", "PMI"
  int rank = 0;
  int size = 1;
  int local_size = 0;       // processes on this machine; 0 = not told
  std::string key;          // the same for all processes of the job, and only for them
  std::string coordinator;  // host:port for NCCL_COMM_ID; empty if not told
};

// Reads the variables through `get` (getenv, or a test's). Nothing when no launcher is at work; an error when what it
// says makes no sense.
Result<std::optional<Launched>> DetectLauncher(const std::function<const char*(const char*)>& get);

// Forks `count` processes and returns each one's number in them. The parent waits for them, kills the rest when one
// fails, and exits with the status of the cause; `page` is told about deaths. Children die with the parent.
Result<int> ForkProcesses(int count, int ranks_per_process, SharedPage* page);

// Meets the other processes of this machine through a file that lives until all have come. Process 0 creates it.
Result<std::unique_ptr<SharedPage>> MeetThroughFile(const std::string& key, int process, int processes, int threads);

}  // namespace axccl::perf
