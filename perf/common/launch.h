// How the processes of a perf run start and find each other: forked here, or started by a launcher.
//
// EnterWorld must run before any call of the library and before threads exist. It returns in every process of the run;
// it does not return in the parent that supervises forked processes.
#pragma once

#include <memory>
#include <string>

#include "perf/common/options.h"
#include "perf/common/shared_page.h"
#include "src/base/launcher.h"
#include "src/base/status.h"

namespace axccl::perf {

// The processes of a run, and this process's place among them.
struct World {
  int processes = 1;
  int process = 0;
  int local_processes = 1;  // on this machine
  // Where the processes meet; null when they live on several machines (then NCCL_COMM_ID is set and the tools agree
  // through the communicators).
  std::unique_ptr<SharedPage> page;
};

Result<World> EnterWorld(const Options& options);

// Forks `count` processes and returns each one's index in them. The parent waits for them, kills the rest when one
// fails, and exits with the status of the cause; deaths are recorded in `page`. Children die with the parent.
Result<int> ForkProcesses(int count, int ranks_per_process, SharedPage* page);

// Meets the other processes of this machine through a file that exists until all have come. Process 0 creates it.
Result<std::unique_ptr<SharedPage>> MeetThroughFile(const std::string& key, int process, int processes, int threads);

}  // namespace axccl::perf
