// One perf run as a process sees it: its ranks and what all its threads share.
//
// Made by PerfMain before threads start; afterwards the threads only read it, each touching its own ranks.
#pragma once

#include <memory>
#include <vector>

#include "axccl/axccl.h"
#include "nccl.h"
#include "perf/common/collective.h"
#include "perf/common/launch.h"
#include "perf/common/monitor.h"
#include "perf/common/options.h"
#include "perf/common/report.h"

namespace axccl::perf {

// One local rank. Each buffer holds max_bytes (and -u elements more).
struct LocalRank {
  int rank = 0;   // in its communicator
  int list = 0;   // of --groups, which holds it
  int place = 0;  // in that list; without --groups, its rank
  int device = 0;
  ncclComm_t comm = nullptr;
  axcclChannel_t channel = nullptr;  // of calls on views
  axcclStream_t stream = nullptr;
  char* send = nullptr;
  char* recv = nullptr;
  void* registrations[2] = {nullptr, nullptr};
};

struct Run {
  Options options;
  const Collective* collective = nullptr;
  World world;
  int group = 0;        // this process' colour under NCCL_TESTS_SPLIT
  int group_ranks = 1;  // ranks of the communicator
  int data_ranks = 1;   // ranks that take part in one operation: of a list of --groups, or of the communicator
  int group_first = 0;  // rank of the first local rank
  ncclUniqueId id;
  std::vector<LocalRank> ranks;  // thread-major
  std::unique_ptr<Monitor> monitor;
  std::unique_ptr<Report> report;  // in process 0 only
};

// The results of a thread; the same in all threads of all processes, except for init_seconds.
struct Outcome {
  int failed_checks = 0;
  double bus_bw_sum = 0;
  int bus_bw_count = 0;
  MemoryReport memory;
};

// Makes the communicators of ranks[first .. first + count) in one group, and their channels.
void InitComms(Run* run, size_t first, size_t count);

// Everything a thread does between initialization and destruction. `init_seconds`: what initialization took here.
Outcome RunThread(Run* run, int thread, double init_seconds);

}  // namespace axccl::perf
