// RunThread and InitComms of run.h.

#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "perf/common/bench.h"
#include "perf/common/calls.h"
#include "perf/common/types.h"

namespace axccl::perf {
namespace {

std::string ProcessorName() {
  std::string name = "host";
  FILE* file = std::fopen("/proc/cpuinfo", "r");
  if (file == nullptr) return name;
  char line[512];
  while (std::fgets(line, sizeof(line), file) != nullptr) {
    const char* colon = std::strchr(line, ':');
    if (std::strncmp(line, "model name", 10) != 0 || colon == nullptr) continue;
    name = std::string("host ") + (colon + 2);
    name.erase(name.find_last_not_of('\n') + 1);
    break;
  }
  std::fclose(file);
  return name;
}

RankInfo InfoOf(const Run& run, const LocalRank& rank, const std::string& processor) {
  RankInfo info{};
  info.rank = rank.rank;
  info.group = run.group;
  info.pid = static_cast<int>(getpid());
  info.device = rank.device;
  gethostname(info.host, sizeof(info.host) - 1);
  std::snprintf(info.device_name, sizeof(info.device_name), "%s", processor.c_str());
  return info;
}

// Sends the reporting thread a description of every rank.
void ReportDevices(Run* run, int thread, Exchange* exchange) {
  std::string processor = ProcessorName();
  size_t threads = static_cast<size_t>(exchange->size());
  size_t per_thread = static_cast<size_t>(run->options.ranks_per_thread);
  std::vector<RankInfo> all(threads * per_thread);
  std::vector<RankInfo> some(threads);
  for (size_t i = 0; i < per_thread; ++i) {
    RankInfo mine = InfoOf(*run, run->ranks[static_cast<size_t>(thread) * per_thread + i], processor);
    exchange->AllGather(&mine, sizeof(mine), some.data());
    for (size_t t = 0; t < threads; ++t) all[t * per_thread + i] = some[t];
  }
  if (run->report && thread == 0) run->report->Devices(all);
}

uint64_t CommunicatorBytes(const Run& run, int thread) {
  uint64_t largest = 0;
  for (int i = 0; i < run.options.ranks_per_thread; ++i) {
    axcclCommInfo_t info{};
    info.size = sizeof(info);
    PERF_CALL(axcclCommGetInfo(run.ranks[static_cast<size_t>(thread * run.options.ranks_per_thread + i)].comm, &info));
    largest = std::max(largest, info.memory_bytes);
  }
  return largest;
}

// The values that an option selects: one, or all of 0 .. count - 1.
std::vector<int> Choices(int chosen, int all, int count) {
  if (chosen != all) return {chosen};
  std::vector<int> choices;
  for (int i = 0; i < count; ++i) choices.push_back(i);
  return choices;
}

// The sizes of the table; never empty, even where memory is too small for -b.
std::vector<size_t> TableSizes(const Options& o, size_t max_bytes) {
  std::vector<size_t> sizes;
  for (size_t size = std::min(o.min_bytes, max_bytes);;) {
    sizes.push_back(size);
    size_t next = o.step_factor > 1 ? size * o.step_factor : size + o.step_bytes;
    if (next <= size || next > max_bytes) return sizes;
    size = next;
  }
}

void WarmUpSizes(const Run& run, Bench* bench) {
  for (size_t size = std::max<size_t>(run.options.min_bytes, 1); size <= bench->max_bytes(); size *= 2) {
    bench->SetSize(size);
    bench->Warmup();
  }
}

void MeasureRow(Run* run, bool reports, Bench* bench, Outcome* outcome) {
  for (bool in_place : {false, true}) {
    IterationReport iterations;
    Measurement m = bench->Measure(in_place, &iterations);
    outcome->bus_bw_sum += m.bus_bw;
    ++outcome->bus_bw_count;
    if (reports) run->report->Half(!in_place, m, run->options.per_iteration ? &iterations : nullptr);
  }
  if (!reports) return;
  run->monitor->EndRow();
  run->report->EndRow();
}

// All rows of one type, reduction and root.
void MeasureTable(Run* run, int thread, Bench* bench, int type, int op, int root, Outcome* outcome) {
  const Options& o = run->options;
  const Collective& c = *run->collective;
  bool reports = run->report != nullptr && thread == 0;
  bench->Select(type, op, root);
  if (thread == 0) run->monitor->Describe(bench->max_bytes(), "warm-up");
  WarmUpSizes(*run, bench);
  for (int cycle = 0; o.cycles == 0 || cycle < o.cycles; ++cycle) {
    for (size_t size : TableSizes(o, bench->max_bytes())) {
      bench->SetSize(size);
      const Counts& counts = bench->counts();
      if (reports) {
        run->report->BeginRow(std::max(counts.send, counts.recv) * ElementBytes(type), counts.argument,
                              DataTypeName(type), c.reduces ? OpName(op) : c.no_op_name, c.rooted ? root : -1);
      }
      MeasureRow(run, reports, bench, outcome);
    }
  }
}

// An exchange that -T also watches: a rank that never comes to a barrier is as bad as one that never sends.
class WatchedExchange : public Exchange {
 public:
  WatchedExchange(std::unique_ptr<Exchange> inner, Monitor* monitor, int thread)
      : inner_(std::move(inner)), monitor_(monitor), thread_(thread) {}
  int size() const override { return inner_->size(); }
  int self() const override { return inner_->self(); }
  void AllGather(const void* mine, size_t bytes, void* all) override {
    WatchedWait wait(monitor_, thread_);
    inner_->AllGather(mine, bytes, all);
  }

 private:
  std::unique_ptr<Exchange> inner_;
  Monitor* monitor_;
  int thread_;
};

std::unique_ptr<Exchange> MakeExchange(Run* run, int thread) {
  const Options& o = run->options;
  if (run->world.page) {
    return std::make_unique<PageExchange>(run->world.page.get(), run->world.process * o.threads + thread,
                                          run->world.processes * o.threads);
  }
  std::vector<ncclComm_t> comms;
  size_t first = static_cast<size_t>(thread * o.ranks_per_thread);
  for (int i = 0; i < o.ranks_per_thread; ++i) comms.push_back(run->ranks[first + static_cast<size_t>(i)].comm);
  return std::make_unique<CommExchange>(comms, run->ranks[first].device);
}

void MakeChannel(const ViewOptions& views, int ranks, LocalRank* rank) {
  rank->channel = axcclDefaultChannel(rank->comm);
  if (views.groups.empty()) return;
  std::vector<int64_t> ids;
  for (const std::vector<int64_t>& group : views.groups) ids.insert(ids.end(), group.begin(), group.end());
  axcclGroupSpec_t spec = AXCCL_GROUP_SPEC_INITIALIZER;
  spec.mode = axcclFlattenedIds;
  spec.num_partitions = ranks;
  spec.ids = ids.data();
  spec.num_groups = views.groups.size();
  spec.group_size = views.groups[0].size();
  axcclGroups_t groups = nullptr;
  PERF_CALL(axcclGroupsCreate(&groups, &spec));
  PERF_CALL(axcclChannelCreate(&rank->channel, rank->comm, groups, 1, 0));
  PERF_CALL(axcclGroupsDestroy(groups));
}

}  // namespace

void InitComms(Run* run, size_t first, size_t count) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  if (run->options.cta_policy >= 0) config.CTAPolicy = run->options.cta_policy;
  PERF_CALL(ncclGroupStart());
  for (size_t i = first; i < first + count; ++i) {
    PERF_CALL(axcclHostSetDevice(run->ranks[i].device));
    PERF_CALL(ncclCommInitRankConfig(&run->ranks[i].comm, run->group_ranks, run->id, run->ranks[i].rank, &config));
  }
  PERF_CALL(ncclGroupEnd());
  for (size_t i = first; i < first + count; ++i) MakeChannel(run->options.views, run->group_ranks, &run->ranks[i]);
}

Outcome RunThread(Run* run, int thread, double init_seconds) {
  const Options& o = run->options;
  PERF_CALL(axcclHostSetDevice(run->ranks[static_cast<size_t>(thread * o.ranks_per_thread)].device));
  auto exchange = std::make_unique<WatchedExchange>(MakeExchange(run, thread), run->monitor.get(), thread);
  Outcome outcome;
  outcome.memory.init_seconds = exchange->Combine(init_seconds, Average::kMax);
  auto largest = [&](uint64_t mine) {
    return static_cast<uint64_t>(exchange->Combine(static_cast<double>(mine), Average::kMax));
  };
  outcome.memory.after_init = largest(CommunicatorBytes(*run, thread));
  ReportDevices(run, thread, exchange.get());
  Bench bench(run, thread, exchange.get());
  outcome.memory.buffers = 2 * bench.max_bytes();
  if (run->report && thread == 0) run->report->TableHeader();
  const Collective& c = *run->collective;
  for (int type : Choices(o.type, kAllTypes, kNumDataTypes)) {
    for (int op : Choices(c.reduces ? o.op : 0, kAllOps, kNumOps)) {
      for (int root : Choices(c.rooted ? o.root : 0, kAllRoots, run->data_ranks)) {
        MeasureTable(run, thread, &bench, type, op, root, &outcome);
      }
    }
  }
  outcome.failed_checks = bench.failed_checks();
  outcome.memory.after_run = largest(CommunicatorBytes(*run, thread));
  return outcome;
}

}  // namespace axccl::perf
