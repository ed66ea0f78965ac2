// enqueue_perf: the host's cost of enqueueing an all-reduce of few bytes, without waiting for it.
//
// All ranks are in one thread. Measured are ncclGroupStart to ncclGroupEnd around a call for each of them, and calls
// without a group: those of one rank, then those of the next. A round is `-n` operations, few enough for every queue on
// the way, and ends with a wait that is not counted; the median of the rounds counts. On GPUs that is the host's part
// of an operation. On host ranks enqueueing starts the operation, so the call of the last rank may do all the work. No
// data is checked.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "perf/common/calls.h"
#include "perf/common/json_file.h"
#include "perf/common/median.h"
#include "perf/common/options.h"
#include "perf/common/place.h"

namespace axccl::perf {
namespace {

constexpr size_t kDefaultBytes = 8;
// Without a group, the kernels of one rank wait for those of the next, whose streams must not share a queue of the
// device with it. There are 32 queues.
constexpr int kMostRanks = 12;
constexpr const char* kQueues = "32";
// The driver queues 1024 kernels of a stream before a launch waits. An operation may need a few.
constexpr int kMostIterations = 200;

[[noreturn]] void Help() {
  std::printf(
      "USAGE: %s [-g ranks] [-b bytes] [-n operations of a round, at most %d] [-N rounds] [-w rounds before] [-J "
      "file]\n"
      "Other perf options have no effect. AXCCL_DEVICE=host: ranks on the host, also where there are GPUs.\n",
      ProgramName().c_str(), kMostIterations);
  std::exit(kExitOk);
}

Options Parse(int argc, char** argv) {
  BeginProgram(argc, argv);
  Result<Options> parsed = ParseOptions(argc, argv);
  if (!parsed.ok()) Fail(kExitUsage, "%s", std::string(parsed.status().message()).c_str());
  Options options = std::move(parsed).value();
  if (options.help) Help();
  if (options.ranks_per_thread > kMostRanks)
    Fail(kExitUsage, "option -g %d: at most %d", options.ranks_per_thread, kMostRanks);
  if (options.iterations < 1 || options.iterations > kMostIterations)
    Fail(kExitUsage, "option -n %d: from 1 to %d, as more would fill the launch queue", options.iterations,
         kMostIterations);
  if (!options.sizes_given) options.min_bytes = kDefaultBytes;
  return options;
}

struct Rank {
  ncclComm_t comm = nullptr;
  int device = 0;
  cudaStream_t stream = nullptr;
  void* in = nullptr;
  void* out = nullptr;
};

class Ranks {
 public:
  Ranks(int count, size_t bytes) : ranks_(static_cast<size_t>(count)), elements_(std::max<size_t>(bytes / 4, 1)) {
    std::vector<int> devices;
    std::vector<ncclComm_t> comms(ranks_.size());
    for (int i = 0; i < count; ++i) devices.push_back(place_.Device(i));
    PERF_CALL(ncclCommInitAll(comms.data(), count, devices.data()));
    for (size_t i = 0; i < ranks_.size(); ++i) {
      Rank& rank = ranks_[i];
      rank.comm = comms[i];
      rank.device = devices[i];
      place_.Use(rank.device);
      rank.stream = place_.NewStream();
      PERF_CALL(ncclMemAlloc(&rank.in, elements_ * 4));
      PERF_CALL(ncclMemAlloc(&rank.out, elements_ * 4));
    }
  }
  ~Ranks() {
    for (const Rank& rank : ranks_) {
      PERF_CALL(ncclCommDestroy(rank.comm));
      PERF_CALL(ncclMemFree(rank.in));
      PERF_CALL(ncclMemFree(rank.out));
    }
  }
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  const char* Where() const { return place_.on_gpus() ? "GPU" : "host"; }

  // Seconds of a call: `operations` groups of a call for each rank.
  double InGroups(int operations) {
    const double seconds = SecondsOf([&] {
      for (int i = 0; i < operations; ++i) {
        PERF_CALL(ncclGroupStart());
        for (const Rank& rank : ranks_) Call(rank);
        PERF_CALL(ncclGroupEnd());
      }
    });
    Wait();
    return seconds / operations / static_cast<double>(ranks_.size());
  }

  // The same without groups.
  double OneByOne(int operations) {
    double seconds = 0;
    for (const Rank& rank : ranks_) {
      place_.Use(rank.device);
      seconds += SecondsOf([&] {
        for (int i = 0; i < operations; ++i) Call(rank);
      });
    }
    Wait();
    return seconds / operations / static_cast<double>(ranks_.size());
  }

 private:
  static double SecondsOf(const std::function<void()>& work) {
    const auto start = std::chrono::steady_clock::now();
    work();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }

  void Call(const Rank& rank) const {
    PERF_CALL(ncclAllReduce(rank.in, rank.out, elements_, ncclFloat32, ncclSum, rank.comm, rank.stream));
  }

  void Wait() const {
    for (const Rank& rank : ranks_) {
      place_.Use(rank.device);
      place_.Wait(rank.stream);
    }
  }

  Place place_;
  std::vector<Rank> ranks_;
  size_t elements_;
};

double MedianOf(int warmup, int rounds, const std::function<double()>& round) {
  for (int i = 0; i < warmup; ++i) round();
  std::vector<double> seconds;
  for (int i = 0; i < rounds; ++i) seconds.push_back(round());
  return Median(std::move(seconds));
}

struct Row {
  std::string key;
  double seconds;
};

void WriteJson(const Options& options, const char* where, const std::vector<Row>& rows) {
  const std::unique_ptr<JsonFile> file = CreateJsonFile(options.json_path);
  JsonWriter& json = *file->json();
  json.BeginObject();
  json.Key("ranks").Int(options.ranks_per_thread);
  json.Key("where").String(where);
  json.Key("bytes").Int(static_cast<int64_t>(options.min_bytes));
  json.Key("results").BeginList();
  for (const Row& row : rows) {
    json.BeginObject();
    json.Key("case").String(row.key);
    json.Key("median_us").Double(row.seconds * 1e6);
    json.EndObject();
  }
}

int EnqueueMain(int argc, char** argv) {
  const Options options = Parse(argc, argv);
  const int rounds = std::max(options.cycles, 1);
  Ranks ranks(options.ranks_per_thread, options.min_bytes);
  const std::vector<Row> rows = {
      {"group", MedianOf(options.warmup, rounds, [&] { return ranks.InGroups(options.iterations); })},
      {"call", MedianOf(options.warmup, rounds, [&] { return ranks.OneByOne(options.iterations); })}};
  std::printf("# %s, %d ranks (%s), all_reduce of %zu bytes, medians of %d rounds of %d operations\n",
              ProgramName().c_str(), options.ranks_per_thread, ranks.Where(), options.min_bytes, rounds,
              options.iterations);
  for (const Row& row : rows) std::printf("  %12.2f us a call  %s\n", row.seconds * 1e6, row.key.c_str());
  if (!options.json_path.empty()) WriteJson(options, ranks.Where(), rows);
  return kExitOk;
}

}  // namespace
}  // namespace axccl::perf

int main(int argc, char** argv) {
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", axccl::perf::kQueues, 1);  // of the device's queues it uses 8 by default
  return axccl::perf::EnqueueMain(argc, argv);
}
