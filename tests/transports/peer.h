// Common parts of the tests of shared memory: addresses on the board of a run, and queries of /proc.
#pragma once

#include <sys/types.h>

#include <string>

#include "tests/harness/run_ranks.h"
#include "transports/transport.h"

namespace axccl::shm {

// Publishes an address for the other ranks of the run (before a Barrier or Set), and reads it.
void Publish(harness::RankContext& context, int slot, const transport::ProcessAddress& address);
transport::ProcessAddress Published(harness::RankContext& context, int slot);

// The number of open descriptors of this process, and of lines of /proc/self/maps that contain `text`.
int CountDescriptors();
int CountMappings(const std::string& text);

// Stops a process and returns when all its threads have stopped (kill alone does not wait for that).
void StopProcess(pid_t pid);

// Waits for a child of this process; returns its exit status, or -signal.
int AwaitChild(pid_t pid);

}  // namespace axccl::shm
