#include "perf/common/launch.h"

#include <unistd.h>

#include <cstdlib>

namespace axccl::perf {
namespace {

int DefaultProcesses(const Options& options) {
  if (options.ranks > 0) return options.ranks;
  return options.layout_given ? 1 : 2;
}

Result<World> ForkWorld(const Options& options) {
  World world;
  world.processes = world.local_processes = DefaultProcesses(options);
  AXCCL_ASSIGN_OR_RETURN(world.page, SharedPage::CreateAnonymous(world.processes, world.processes * options.threads));
  if (world.processes > 1) {
    int ranks = options.threads * options.ranks_per_thread;
    AXCCL_ASSIGN_OR_RETURN(world.process, ForkProcesses(world.processes, ranks, world.page.get()));
  }
  world.page->Register(world.process, getpid());
  return world;
}

Result<World> JoinWorld(const Launched& launched, const Options& options) {
  World world;
  world.processes = launched.size;
  world.process = launched.rank;
  // If a launcher provides an address but not the number of local processes, they may be anywhere.
  const bool anywhere =
      launched.local_size == 0 && (!launched.coordinator.empty() || std::getenv("NCCL_COMM_ID") != nullptr);
  world.local_processes = launched.local_size > 0 ? launched.local_size : anywhere ? 1 : launched.size;
  if (world.local_processes == world.processes) {
    AXCCL_ASSIGN_OR_RETURN(
        world.page, MeetThroughFile(launched.key, world.process, world.processes, world.processes * options.threads));
    return world;
  }
  if (std::getenv("NCCL_COMM_ID") == nullptr) {
    if (launched.coordinator.empty()) {
      return MakeStatus(Code::kInvalidUsage,
                        "%s started %d processes, %d of them on this machine: set NCCL_COMM_ID, "
                        "or MASTER_ADDR and MASTER_PORT, to an address of process 0 that all can reach",
                        launched.launcher.c_str(), launched.size, launched.local_size);
    }
    setenv("NCCL_COMM_ID", launched.coordinator.c_str(), 0);
  }
  return world;
}

}  // namespace

// Joins a run whose processes were started by hand.
Result<World> JoinByHand(const Options& options) {
  if (options.rank >= options.ranks)
    return MakeStatus(Code::kInvalidUsage, "option --rank %d: with it, --ranks has to say of how many (%d)",
                      options.rank, options.ranks);
  if (std::getenv("NCCL_COMM_ID") == nullptr)
    return MakeStatus(Code::kInvalidUsage,
                      "option --rank: set NCCL_COMM_ID to host:port of the machine of rank 0, and "
                      "AXCCL_SECRET_FILE to a file with the same random text everywhere");
  World world;
  world.processes = options.ranks;
  world.process = options.rank;
  return world;
}

Result<World> EnterWorld(const Options& options) {
  if (options.rank >= 0) return JoinByHand(options);
  if (options.ranks == 0) {
    AXCCL_ASSIGN_OR_RETURN(std::optional<Launched> launched, DetectLauncher(&std::getenv));
    if (launched) return JoinWorld(*launched, options);
    if (!options.layout_given) AXCCL_RETURN_IF_ERROR(CheckLauncherComplete(&std::getenv));
  }
  return ForkWorld(options);
}

}  // namespace axccl::perf
