// What the tests of shared memory share: addresses on the board of a run, and looks into /proc.
#pragma once

#include <sys/types.h>

#include <string>

#include "tests/harness/run_ranks.h"
#include "transports/transport.h"

namespace axccl::shm {

// Puts an address where other ranks of the run find it (before a Barrier or Set), and gets it back.
void Publish(harness::RankContext& context, int slot, const transport::ProcessAddress& address);
transport::ProcessAddress Published(harness::RankContext& context, int slot);

// Open descriptors of this process, and lines of /proc/self/maps that contain `text`.
int CountDescriptors();
int CountMappings(const std::string& text);

// Stops a process and returns once every thread of it stands still (kill alone does not wait for that).
void StopProcess(pid_t pid);

// Waits for a child of this process; its exit status, or -signal.
int AwaitChild(pid_t pid);

}  // namespace axccl::shm
