// beside_perf: what communicators of one application cost each other that are at work at the same time.
//
// Every process has a thread for each communicator. A thread makes all-reduces and waits for each. In a round, first
// one communicator is at work, then all are, each for the same time; the medians of the rounds count. If threads
// outnumber the cores, a communicator cannot be faster than its share of them allows. No data is checked but the word
// that ends a round.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "axccl/axccl.h"
#include "perf/common/calls.h"
#include "perf/common/json_file.h"
#include "perf/common/launch.h"
#include "perf/common/median.h"
#include "perf/common/options.h"
#include "src/base/processors.h"

namespace axccl::perf {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kDefaultProcesses = 2;
constexpr int kDefaultComms = 3;
constexpr int kMostComms = 8;
constexpr std::chrono::milliseconds kAtWork(100);
// Clock readings would otherwise be a part of what is measured.
constexpr int kOperationsBetweenReadings = 16;

[[noreturn]] void Help() {
  std::printf(
      "USAGE: %s [--ranks processes (%d)] [-t communicators (%d), at most %d] [-b bytes] [-e bytes] [-f factor] [-N "
      "rounds] [-J file]\n"
      "Other perf options have no effect.\n",
      ProgramName().c_str(), kDefaultProcesses, kDefaultComms, kMostComms);
  std::exit(kExitOk);
}

Options Parse(int argc, char** argv) {
  BeginProgram(argc, argv);
  Result<Options> parsed = ParseOptions(argc, argv);
  if (!parsed.ok()) Fail(kExitUsage, "%s", std::string(parsed.status().message()).c_str());
  Options options = std::move(parsed).value();
  if (options.help) Help();
  if (!options.layout_given) options.threads = kDefaultComms;
  if (options.threads > kMostComms) Fail(kExitUsage, "option -t %d: at most %d", options.threads, kMostComms);
  if (options.ranks_per_thread != 1) Fail(kExitUsage, "option -g %d: has to be 1", options.ranks_per_thread);
  if (options.ranks == 0) options.ranks = kDefaultProcesses;
  if (!options.sizes_given) options.min_bytes = options.max_bytes = 8;
  options.cycles = std::max(options.cycles, 1);
  return options;
}

// One rank of one communicator, and the thread that uses it.
class Rank {
 public:
  // Collective over the processes of the communicator.
  Rank(const World& world, int comm, size_t most_bytes) : first_(world.process == 0), floats_(most_bytes / 4 + 1) {
    PERF_CALL(axcclHostSetDevice(world.process * kMostComms + comm));
    std::vector<ncclUniqueId> ids(static_cast<size_t>(world.processes));
    if (first_) PERF_CALL(ncclGetUniqueId(&ids[0]));
    const ncclUniqueId mine = ids[0];
    world.page->Meet(Room::kProcesses, world.process, &mine, sizeof(mine), ids.data());
    PERF_CALL(ncclCommInitRank(&comm_, world.processes, ids[0], world.process));
    PERF_CALL(axcclStreamCreate(&stream_, axcclStreamNonBlocking));
    PERF_CALL(ncclMemAlloc(reinterpret_cast<void**>(&in_), floats_ * 4));
    PERF_CALL(ncclMemAlloc(reinterpret_cast<void**>(&out_), floats_ * 4));
    std::memset(in_, 0, floats_ * 4);
  }
  ~Rank() {
    PERF_CALL(axcclStreamDestroy(stream_));
    PERF_CALL(ncclCommDestroy(comm_));
    PERF_CALL(ncclMemFree(in_));
    PERF_CALL(ncclMemFree(out_));
  }
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;

  // Works for kAtWork; returns the seconds of an operation. The first rank says in the data whether there is more to
  // do.
  double Work(size_t bytes) {
    const auto start = Clock::now();
    int64_t operations = 0;
    in_[0] = first_ ? 1 : 0;
    do {
      ++operations;
      if (first_ && operations % kOperationsBetweenReadings == 0 && Clock::now() - start >= kAtWork) in_[0] = 0;
      PERF_CALL(ncclAllReduce(in_, out_, std::max<size_t>(bytes / 4, 1), ncclFloat32, ncclSum, comm_,
                              axcclStreamToCuda(stream_)));
      PERF_CALL(axcclStreamSynchronize(stream_));
    } while (out_[0] != 0);
    return std::chrono::duration<double>(Clock::now() - start).count() / static_cast<double>(operations);
  }

 private:
  const bool first_;
  const size_t floats_;
  ncclComm_t comm_ = nullptr;
  axcclStream_t stream_ = nullptr;
  float* in_ = nullptr;
  float* out_ = nullptr;
};

struct Row {
  size_t bytes;
  double alone;
  std::vector<double> together;  // of each communicator

  double slowest() const { return *std::max_element(together.begin(), together.end()); }
};

class Beside {
 public:
  Beside(const Options& options, const World& world) : options_(options), world_(world) {
    for (int comm = 0; comm < options.threads; ++comm)
      ranks_.push_back(std::make_unique<Rank>(world, comm, options.max_bytes));
  }

  Row Measure(size_t bytes) {
    std::vector<double> alone;
    std::vector<std::vector<double>> together(ranks_.size());
    for (int round = 0; round <= options_.cycles; ++round) {  // the first one does not count
      const double one = Together(1, bytes)[0];
      const std::vector<double> all = Together(ranks_.size(), bytes);
      if (round == 0) continue;
      alone.push_back(one);
      for (size_t comm = 0; comm < all.size(); ++comm) together[comm].push_back(all[comm]);
    }
    Row row{bytes, Median(alone), {}};
    for (std::vector<double>& of_comm : together) row.together.push_back(Median(std::move(of_comm)));
    return row;
  }

 private:
  // The first `comms` communicators at work.
  std::vector<double> Together(size_t comms, size_t bytes) {
    world_.page->Meet(Room::kProcesses, world_.process, nullptr, 0, nullptr);
    std::vector<double> seconds(comms);
    std::vector<std::thread> threads;
    for (size_t comm = 0; comm < comms; ++comm)
      threads.emplace_back([&, comm] { seconds[comm] = ranks_[comm]->Work(bytes); });
    for (std::thread& thread : threads) thread.join();
    return seconds;
  }

  const Options& options_;
  const World& world_;
  std::vector<std::unique_ptr<Rank>> ranks_;
};

void WriteJson(const Options& options, double share, const std::vector<Row>& rows) {
  const std::unique_ptr<JsonFile> file = CreateJsonFile(options.json_path);
  JsonWriter& json = *file->json();
  json.BeginObject();
  json.Key("ranks").Int(options.ranks);
  json.Key("comms").Int(options.threads);
  json.Key("threads_per_core").Double(share);
  json.Key("results").BeginList();
  for (const Row& row : rows) {
    json.BeginObject();
    json.Key("bytes").Int(static_cast<int64_t>(row.bytes));
    json.Key("alone_us").Double(row.alone * 1e6);
    json.Key("together_us").BeginList();
    for (const double seconds : row.together) json.Double(seconds * 1e6);
    json.EndList();
    json.EndObject();
  }
}

int BesideMain(int argc, char** argv) {
  const Options options = Parse(argc, argv);
  const auto cores = static_cast<double>(AllowedProcessors().size());
  Result<World> world = EnterWorld(options);
  if (!world.ok()) Fail(kExitUsage, "%s", std::string(world.status().message()).c_str());
  if (!world.value().page) Fail(kExitUsage, "all ranks have to be on this machine");
  OnFail([&world](const std::string& message) { world.value().page->Abort(message); });
  const double share = std::max(1.0, options.ranks * options.threads / cores);
  const bool reports = world.value().process == 0;
  if (reports) {
    std::printf("# %s, %d communicators of %d ranks on %.0f cores, all_reduce, medians of %d rounds\n",
                ProgramName().c_str(), options.threads, options.ranks, cores, options.cycles);
    std::printf("# %8s %12s %18s %10s %16s\n", "bytes", "alone us", "slowest of all us", "ratio", "threads a core");
  }
  Beside beside(options, world.value());
  std::vector<Row> rows;
  const size_t factor = std::max<size_t>(options.step_factor, 2);
  for (size_t bytes = options.min_bytes; bytes <= options.max_bytes; bytes *= factor) {
    rows.push_back(beside.Measure(bytes));
    const Row& row = rows.back();
    if (reports)
      std::printf("  %8zu %12.2f %18.2f %10.2f %16.2f\n", bytes, row.alone * 1e6, row.slowest() * 1e6,
                  row.slowest() / row.alone, share);
  }
  if (reports && !options.json_path.empty()) WriteJson(options, share, rows);
  return kExitOk;
}

}  // namespace
}  // namespace axccl::perf

int main(int argc, char** argv) { return axccl::perf::BesideMain(argc, argv); }
