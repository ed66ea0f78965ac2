// PerfMain: from the command line to the exit status.

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "perf/common/calls.h"
#include "perf/common/fail.h"
#include "perf/common/operands.h"
#include "perf/common/run.h"
#include "perf/common/split.h"
#include "perf/common/types.h"

namespace axccl::perf {
namespace {

// Returns the value, or ends the program with its usage status.
template <class T>
T OrUsage(Result<T> result) {
  if (!result.ok())
    Fail(kExitUsage, "%.*s", static_cast<int>(result.status().message().size()), result.status().message().data());
  return std::move(result).value();
}

int GroupOf(int process) {
  return OrUsage(SplitGroup(std::getenv("NCCL_TESTS_SPLIT_MASK"), std::getenv("NCCL_TESTS_SPLIT"), process));
}

// Finds the processes of this process's group, and its place among them.
void FormGroup(Run* run) {
  int per_process = run->options.threads * run->options.ranks_per_thread;
  run->group = GroupOf(run->world.process);
  int members = 0;
  for (int p = 0; p < run->world.processes; ++p) {
    if (GroupOf(p) != run->group) continue;
    if (p == run->world.process) run->group_first = members * per_process;
    ++members;
  }
  run->group_ranks = members * per_process;
  if (run->world.page == nullptr && members != run->world.processes) {
    Fail(kExitUsage, "NCCL_TESTS_SPLIT needs all processes on one machine");
  }
  const ViewOptions& views = run->options.views;
  run->data_ranks = views.RanksTogether(run->group_ranks);
  std::string refusal = RefuseViews(run->collective->name, run->collective->views.kind, views, run->group_ranks);
  if (refusal.empty() && run->options.root >= run->data_ranks) {
    refusal = "option -r " + std::to_string(run->options.root) + ": " +
              (views.groups.empty() ? "the communicator has " : "every list of --groups has ") +
              std::to_string(run->data_ranks) + " ranks";
  }
  if (refusal.empty()) refusal = run->collective->refuses(run->data_ranks);
  if (refusal.empty()) return;
  // All processes of the group find the same error; one prints it.
  if (run->group_first != 0) Fail(kExitPeerFailed, "%s", "");
  Fail(kExitUsage, "%s: %s", run->collective->name, refusal.c_str());
}

// With shapes, these determine the size of the buffers.
void TakeSizeFromShapes(Run* run) {
  Options& o = run->options;
  if (o.views.shapes.empty()) return;
  Operands operands(run->collective->views.kind, o.views, o.views.shapes, run->data_ranks, 0, false);
  size_t element = 1;
  for (int type = 0; type < kNumDataTypes; ++type) {
    if (o.type == kAllTypes || o.type == type) element = std::max(element, ElementBytes(type));
  }
  o.min_bytes = o.max_bytes = std::max(operands.send_span(), operands.recv_span()) * element;
}

// Every group uses the id of its first process. Without a page, NCCL_COMM_ID gives all processes the same id.
void AgreeOnId(Run* run) {
  struct Record {
    int group;
    int first;
    ncclUniqueId id;
  };
  Record mine{run->group, run->group_first, {}};
  if (run->group_first == 0 || run->world.page == nullptr) PERF_CALL(ncclGetUniqueId(&mine.id));
  run->id = mine.id;
  if (run->world.page == nullptr) return;
  std::vector<Record> all(static_cast<size_t>(run->world.processes));
  run->world.page->Meet(Room::kProcesses, run->world.process, &mine, sizeof(mine), all.data());
  for (const Record& record : all) {
    if (record.group == run->group && record.first == 0) run->id = record.id;
  }
}

void FindPlace(const ViewOptions& views, LocalRank* rank) {
  rank->place = rank->rank;
  for (size_t list = 0; list < views.groups.size(); ++list) {
    const std::vector<int64_t>& group = views.groups[list];
    const auto found = std::find(group.begin(), group.end(), rank->rank);
    if (found == group.end()) continue;
    rank->list = static_cast<int>(list);
    rank->place = static_cast<int>(found - group.begin());
  }
}

void NumberRanks(Run* run) {
  const char* base = std::getenv("NCCL_TESTS_DEVICE");
  int first_device = base ? std::atoi(base) : 0;
  run->ranks.resize(static_cast<size_t>(run->options.threads * run->options.ranks_per_thread));
  for (size_t i = 0; i < run->ranks.size(); ++i) {
    run->ranks[i].rank = run->group_first + static_cast<int>(i);
    FindPlace(run->options.views, &run->ranks[i]);
    run->ranks[i].device = first_device + static_cast<int>(i);
  }
  std::string who = "rank " + std::to_string(run->group_first);
  if (run->ranks.size() > 1) {
    who = "ranks " + std::to_string(run->group_first) + "-" + std::to_string(run->ranks.back().rank);
  }
  SetWho(run->group == 0 ? who : "group " + std::to_string(run->group) + " " + who);
}

double Seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// Runs all threads; the calling one is thread 0.
Outcome RunThreads(Run* run) {
  const Options& o = run->options;
  size_t per_thread = static_cast<size_t>(o.ranks_per_thread);
  if (run->world.page) run->world.page->Meet(Room::kProcesses, run->world.process, nullptr, 0, nullptr);
  double start = Seconds();
  {
    WatchedWait wait(run->monitor.get(), 0);
    AgreeOnId(run);
    if (!o.parallel_init) InitComms(run, 0, run->ranks.size());
  }
  auto body = [run, &o, per_thread, start](int thread) {
    if (o.parallel_init) {
      WatchedWait wait(run->monitor.get(), thread);
      InitComms(run, static_cast<size_t>(thread) * per_thread, per_thread);
    }
    return RunThread(run, thread, Seconds() - start);
  };
  std::vector<std::thread> threads;
  for (int t = 1; t < o.threads; ++t) threads.emplace_back([&body, t] { body(t); });
  Outcome outcome = body(0);
  for (std::thread& thread : threads) thread.join();
  return outcome;
}

void DestroyComms(Run* run) {
  if (!run->options.views.groups.empty()) {
    for (LocalRank& rank : run->ranks) PERF_CALL(axcclChannelDestroy(rank.channel));
  }
  PERF_CALL(ncclGroupStart());
  for (LocalRank& rank : run->ranks) PERF_CALL(ncclCommDestroy(rank.comm));
  PERF_CALL(ncclGroupEnd());
}

// In GB/s; negative: none. A limit that cannot be read must not pass for one that is reached.
Result<double> MinBandwidth() {
  const char* const text = std::getenv("NCCL_TESTS_MIN_BW");
  if (text == nullptr) return -1.0;
  char* end = nullptr;
  const double limit = std::strtod(text, &end);
  if (end != text && *end == '\0' && std::isfinite(limit)) return limit;
  return MakeStatus(Code::kInvalidArgument, "NCCL_TESTS_MIN_BW '%s' is not a bus bandwidth in GB/s such as 12.5", text);
}

int Conclude(Run* run, const Outcome& outcome, double min_bandwidth) {
  double average = outcome.bus_bw_count > 0 ? outcome.bus_bw_sum / outcome.bus_bw_count : 0;
  if (run->report) {
    run->report->Footer(outcome.failed_checks, average, min_bandwidth);
    if (run->options.memory_report) run->report->Memory(outcome.memory);
    run->report->End(outcome.failed_checks > 0 ? ncclGetLastError(nullptr) : "");
  }
  bool slow = average < min_bandwidth * 0.9;
  return outcome.failed_checks > 0 || slow ? kExitFailed : kExitOk;
}

}  // namespace

int PerfMain(const Collective& collective, int argc, char** argv) {
  BeginProgram(argc, argv);
  setenv("AXCCL_DEVICE", "host", 0);  // its buffers and streams are the host's
  Run run;
  run.collective = &collective;
  run.options = OrUsage(ParseOptions(argc, argv));
  if (run.options.help) {
    std::fputs(UsageText(ProgramName()).c_str(), stdout);
    return kExitOk;
  }
  const double min_bandwidth = OrUsage(MinBandwidth());
  run.world = OrUsage(EnterWorld(run.options));
  OnFail([&run](const std::string& message) {
    if (run.world.page) run.world.page->Abort(message);
    if (run.report) (void)run.report->CloseJson(message);
  });
  FormGroup(&run);
  TakeSizeFromShapes(&run);
  NumberRanks(&run);
  bool reports = run.world.process == 0;
  int version = 0;
  PERF_CALL(ncclGetVersion(&version));
  run.monitor = std::make_unique<Monitor>(run.options.threads, run.options.timeout_seconds,
                                          reports && isatty(STDERR_FILENO) == 1);
  if (reports) {
    run.report = std::make_unique<Report>(run.options, argc, argv, version);
    run.report->Start();
  }
  Outcome outcome = RunThreads(&run);
  DestroyComms(&run);
  run.monitor.reset();
  return Conclude(&run, outcome, min_bandwidth);
}

}  // namespace axccl::perf
