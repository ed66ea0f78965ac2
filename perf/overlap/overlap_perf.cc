// overlap_perf: how much of a collective hides behind a matrix product, done in one piece, with a call for each slice,
// and as a pipeline.
//
// In each round every mode runs three times: both, the products alone, the communication alone. All ranks begin
// together and the slowest rank's time counts; the medians of the rounds count. Before each step that does both, its
// output is spoiled, and behind it every row of the result is checked.

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "axccl/axccl.h"
#include "perf/common/calls.h"
#include "perf/common/exchange.h"
#include "perf/common/json_file.h"
#include "perf/common/launch.h"
#include "perf/common/median.h"
#include "perf/common/options.h"
#include "perf/overlap/gpu_steps.h"
#include "perf/overlap/host_steps.h"
#include "perf/overlap/matmul.h"
#include "perf/overlap/options.h"
#include "perf/overlap/trace.h"

namespace axccl::perf::overlap {
namespace {

// How far apart computation and communication may be after --balance, and how often sizes are changed for that.
constexpr double kBalanced = 1.25;
constexpr int kMostTrials = 8, kRoundsOfTrial = 3;

// Seconds.
struct Row {
  Mode mode;
  double compute, communicate, both;

  double efficiency() const { return std::max(compute, communicate) / both; }
};

// What a thread knows of the run.
class Measurement {
 public:
  Measurement(const OverlapOptions& options, int rank, ncclComm_t comm, Exchange* exchange)
      : options_(options), rank_(rank), comm_(comm), exchange_(exchange) {}

  const OverlapOptions& options() const { return options_; }

  // Changes the size that changes computation alone.
  void Balance() {
    for (int trial = 0; trial < kMostTrials; ++trial) {
      const std::unique_ptr<Steps> here = MakeSteps();
      std::vector<double> compute, communicate;
      (void)Time(here.get(), Mode::kBulk, Parts::kBoth);
      for (int i = 0; i < kRoundsOfTrial; ++i) {
        compute.push_back(Time(here.get(), Mode::kBulk, Parts::kCompute));
        communicate.push_back(Time(here.get(), Mode::kBulk, Parts::kCommunicate));
      }
      const double factor = Median(communicate) / Median(compute);
      if (factor < kBalanced && factor > 1 / kBalanced) return;
      const bool gathers = Gathers(options_.pattern);
      int64_t& size = gathers ? options_.n : options_.k;
      const int64_t step = gathers ? 1 : options_.ranks;
      const auto steps = static_cast<int64_t>(std::llround(static_cast<double>(size / step) * factor));
      size = std::clamp<int64_t>(steps, 1, (1 << 20) / step) * step;
    }
  }

  std::vector<Row> Measure() {
    here_ = MakeSteps();
    std::vector<std::vector<double>> times[3];
    modes_ = options_.modes;
    if (!here_->refusal().empty()) std::erase(modes_, Mode::kPipeline);
    for (auto& of_parts : times) of_parts.resize(modes_.size());
    for (int round = 0; round <= options_.rounds; ++round) {  // the first one does not count
      for (size_t i = 0; i < modes_.size(); ++i) {
        for (const Parts parts : {Parts::kBoth, Parts::kCompute, Parts::kCommunicate}) {
          const double seconds = Time(here_.get(), modes_[i], parts);
          if (round != 0) times[static_cast<size_t>(parts)][i].push_back(seconds);
        }
      }
    }
    std::vector<Row> rows;
    const auto median = [&](Parts parts, size_t i) { return Median(times[static_cast<size_t>(parts)][i]); };
    for (size_t i = 0; i < modes_.size(); ++i)
      rows.push_back({modes_[i], median(Parts::kCompute, i), median(Parts::kCommunicate, i), median(Parts::kBoth, i)});
    return rows;
  }
  // After Measure.
  const Steps& steps() const { return *here_; }

  void WriteTrace() {
    Trace trace;
    for (const Mode mode : modes_) {
      here_->Spoil();
      exchange_->Barrier();
      here_->Do(mode, Parts::kBoth, &trace);
    }
    std::vector<std::string> names;
    for (const Mode mode : {Mode::kBulk, Mode::kCalls, Mode::kPipeline}) names.emplace_back(ModeName(mode));
    trace.Write(options_.trace_path, exchange_, names);
  }
  void End() { here_.reset(); }

 private:
  std::unique_ptr<Steps> MakeSteps() const {
    if (options_.gpu) return std::make_unique<GpuSteps>(options_, rank_, comm_);
    return std::make_unique<HostSteps>(options_, rank_, comm_);
  }

  double Time(Steps* here, Mode mode, Parts parts) {
    if (parts == Parts::kBoth) here->Spoil();
    exchange_->Barrier();
    const double begin = Trace::Now();
    here->Do(mode, parts, nullptr);
    const double seconds = exchange_->Combine(Trace::Now() - begin, Average::kMax);
    if (parts == Parts::kBoth) {
      const std::string wrong = here->Check();
      if (!wrong.empty())
        Fail(kExitFailed, "%s, mode %s: %s", PatternName(options_.pattern), ModeName(mode), wrong.c_str());
    }
    return seconds;
  }

  OverlapOptions options_;
  const int rank_;
  const ncclComm_t comm_;
  Exchange* const exchange_;
  std::unique_ptr<Steps> here_;
  std::vector<Mode> modes_;
};

const Row* BulkOf(const std::vector<Row>& rows) {
  for (const Row& row : rows) {
    if (row.mode == Mode::kBulk) return &row;
  }
  return nullptr;
}

void Print(const OverlapOptions& o, const std::vector<Row>& rows, const Steps& steps) {
  std::printf("# %s %s: %d ranks (%s), m %lld, k %lld, n %lld, %lld slices, %s; products by %s, pipeline by %s\n",
              ProgramName().c_str(), PatternName(o.pattern), o.ranks, o.threads > 1 ? "threads" : "processes",
              static_cast<long long>(o.m), static_cast<long long>(o.k), static_cast<long long>(o.n),
              static_cast<long long>(o.slices), o.malloc ? "heap memory" : "ncclMemAlloc", steps.multiplier().c_str(),
              steps.engine().c_str());
  std::printf("# medians of %d rounds, ms of the slowest rank; overlap = the longer part alone / both\n", o.rounds);
  std::printf("# %8s %12s %15s %12s %9s %9s\n", "mode", "computation", "communication", "both", "overlap", "x bulk");
  const Row* const bulk = BulkOf(rows);
  for (const Row& row : rows) {
    char ratio[32] = "-";
    if (bulk != nullptr) std::snprintf(ratio, sizeof(ratio), "%.3f", row.both / bulk->both);
    std::printf("  %8s %12.3f %15.3f %12.3f %8.1f%% %9s\n", ModeName(row.mode), row.compute * 1e3,
                row.communicate * 1e3, row.both * 1e3, row.efficiency() * 100, ratio);
  }
  if (!steps.refusal().empty()) std::printf("# pipeline is left out: %s\n", steps.refusal().c_str());
  std::printf("# every row of every result is correct\n");
}

void WriteJson(const OverlapOptions& o, const std::vector<Row>& rows, const Steps& steps) {
  const std::unique_ptr<JsonFile> file = CreateJsonFile(o.json_path);
  JsonWriter& json = *file->json();
  json.BeginObject();
  json.Key("pattern").String(PatternName(o.pattern));
  json.Key("ranks").Int(o.ranks);
  json.Key("m").Int(o.m);
  json.Key("k").Int(o.k);
  json.Key("n").Int(o.n);
  json.Key("slices").Int(o.slices);
  json.Key("matmul").String(steps.multiplier());
  json.Key("engine").String(steps.engine());
  json.Key("results").BeginList();
  for (const Row& row : rows) {
    json.BeginObject();
    json.Key("mode").String(ModeName(row.mode));
    json.Key("compute_ms").Double(row.compute * 1e3);
    json.Key("communicate_ms").Double(row.communicate * 1e3);
    json.Key("both_ms").Double(row.both * 1e3);
    json.Key("overlap").Double(row.efficiency());
    json.EndObject();
  }
}

void RunRank(const OverlapOptions& options, const World& world, const ncclUniqueId& id, int thread) {
  const int rank = world.process * options.threads + thread;
  ncclComm_t comm = nullptr;
  if (options.gpu) {
    const Gpu enter(rank, true);
  } else {
    PERF_CALL(axcclHostSetDevice(thread));
  }
  PERF_CALL(ncclCommInitRank(&comm, options.ranks, id, rank));
  std::unique_ptr<Exchange> exchange;
  if (world.page != nullptr) {
    exchange = std::make_unique<PageExchange>(world.page.get(), rank, options.ranks);
  } else {
    exchange = std::make_unique<CommExchange>(std::vector<ncclComm_t>{comm}, thread);
  }
  Measurement measurement(options, rank, comm, exchange.get());
  if (options.balance) measurement.Balance();
  const std::vector<Row> rows = measurement.Measure();
  if (rank == 0) {
    Print(measurement.options(), rows, measurement.steps());
    if (!options.json_path.empty()) WriteJson(measurement.options(), rows, measurement.steps());
  }
  if (!options.trace_path.empty()) measurement.WriteTrace();
  measurement.End();
  exchange.reset();
  PERF_CALL(ncclCommDestroy(comm));
}

int OverlapMain(int argc, char** argv) {
  BeginProgram(argc, argv);
  const OverlapOptions options = ParseOverlapOptions(argc, argv);
  setenv("AXCCL_DEVICE", options.gpu ? "cuda" : "host", options.gpu);
  UseOneThread();
  Options places;
  places.ranks = options.ranks / options.threads;
  places.rank = options.rank;
  places.threads = options.threads;
  Result<World> world = EnterWorld(places);
  if (!world.ok()) Fail(kExitUsage, "%s", std::string(world.status().message()).c_str());
  const SharedPage* const page = world.value().page.get();
  SetWho("rank " + std::to_string(world.value().process));
  OnFail([&world, page](const std::string& message) {
    if (page != nullptr) world.value().page->Abort(message);
  });
  UseOneThread();
  std::vector<ncclUniqueId> ids(static_cast<size_t>(world.value().processes));
  if (world.value().process == 0 || page == nullptr) PERF_CALL(ncclGetUniqueId(&ids[0]));
  const ncclUniqueId mine = ids[0];
  if (page != nullptr)
    world.value().page->Meet(Room::kProcesses, world.value().process, &mine, sizeof(mine), ids.data());
  std::vector<std::thread> threads;
  for (int t = 1; t < options.threads; ++t)
    threads.emplace_back([&, t] { RunRank(options, world.value(), ids[0], t); });
  RunRank(options, world.value(), ids[0], 0);
  for (std::thread& thread : threads) thread.join();
  return kExitOk;
}

}  // namespace
}  // namespace axccl::perf::overlap

int main(int argc, char** argv) { return axccl::perf::overlap::OverlapMain(argc, argv); }
