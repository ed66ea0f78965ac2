// How long a process has been kept from running by others. A test that waits for it may be stuck, or its processes may
// only get few of the cores' time; the kernel counts how long threads that could run have waited for a core.
#pragma once

#include <sys/types.h>

#include <chrono>

namespace axccl::harness {

// The sum over the threads that the process has now; 0 where the kernel does not count it (CONFIG_SCHED_INFO).
std::chrono::nanoseconds WaitedForCores(pid_t process);

}  // namespace axccl::harness
