// Loaded into a program (LD_PRELOAD), gives it pages of its own for all memory that it asks for.
//
// Pages that a program has not written are all one page of zeros, which stays in the processor's cache. UCX's perftest
// sends such memory, and does so 1.4 times as fast as memory with data (perf/results/hosts.md).
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

__attribute__((constructor)) static void KeepResident(void) {
  if (mlockall(MCL_CURRENT | MCL_FUTURE) == 0) return;
  perror("mlockall (needs root, or a higher limit: ulimit -l)");
  exit(1);
}
