// floor_perf: the time the memory system alone needs for a collective, in the same process layout.
//
// Every rank is a process; buffers lie in a shared memfd. Per iteration all ranks leave a barrier together and do their
// share of the reading and writing (jobs.h); the slowest rank's time counts, the barrier does not. Of several ways to
// move the bytes (movement.h) the one with the lowest median is reported.

#include <algorithm>
#include <chrono>
#include <cstring>

#include "perf/common/exchange.h"
#include "perf/common/fail.h"
#include "perf/common/launch.h"
#include "perf/common/shared_memory.h"
#include "perf/common/yardstick.h"
#include "perf/floor/jobs.h"
#include "perf/floor/movement.h"

namespace axccl::perf {
namespace {

double Seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// An input and an output buffer of every rank.
struct Buffers {
  std::vector<char*> in;
  std::vector<char*> out;
};

Buffers MapBuffers(size_t bytes_each, int ranks) {
  size_t each = (bytes_each + 4095) / 4096 * 4096 + 4096;
  char* base = MapShared(2 * each * static_cast<size_t>(ranks));
  Buffers buffers;
  for (size_t r = 0; r < static_cast<size_t>(ranks); ++r) {
    buffers.in.push_back(base + 2 * r * each);
    buffers.out.push_back(base + (2 * r + 1) * each);
  }
  return buffers;
}

struct Time {
  double mean;
  double median;
};

// The slowest rank of each iteration.
Time Measure(Exchange* exchange, const std::vector<Job>& jobs, Way way, int warmup, int iterations) {
  std::vector<double> mine;
  for (int i = -warmup; i < iterations; ++i) {
    exchange->Barrier();
    double start = Seconds();
    for (const Job& job : jobs) DoJob(job, way);
    if (i >= 0) mine.push_back(Seconds() - start);
  }
  std::vector<std::vector<double>> rows = exchange->AllGatherRows(mine);
  std::vector<double> slowest(mine.size(), 0);
  double sum = 0;
  for (size_t i = 0; i < slowest.size(); ++i) {
    for (const auto& row : rows) slowest[i] = std::max(slowest[i], row[i]);
    sum += slowest[i];
  }
  std::sort(slowest.begin(), slowest.end());
  return {sum / static_cast<double>(slowest.size()), slowest[slowest.size() / 2]};
}

int FloorMain(int argc, char** argv) {
  YardstickTask task = ParseYardstick(argc, argv,
                                      "What the memory system allows: every input byte read once, every "
                                      "output byte written once.");
  int ranks = task.options.ranks > 0 ? task.options.ranks : 2;
  if (ranks > 64) Fail(kExitUsage, "option --ranks %d: at most 64", ranks);
  std::vector<YardstickSize> sizes = SizesOf(task, ranks);
  auto page = SharedPage::CreateAnonymous(ranks, ranks);
  if (!page.ok()) Fail(kExitFailed, "%s", std::string(page.status().message()).c_str());
  Buffers buffers = MapBuffers(sizes.back().bytes, ranks);
  Result<int> rank = ForkProcesses(ranks, 1, page.value().get());
  if (!rank.ok()) Fail(kExitFailed, "%s", std::string(rank.status().message()).c_str());
  SetWho("rank " + std::to_string(rank.value()));
  PageExchange exchange(page.value().get(), rank.value(), ranks);
  size_t r = static_cast<size_t>(rank.value());
  std::memset(buffers.in[r], 0x3f, sizes.back().bytes);  // touched by its owner, as in a real run
  std::memset(buffers.out[r], 0, sizes.back().bytes);
  std::unique_ptr<YardstickReport> report;
  if (r == 0) report = std::make_unique<YardstickReport>(task, ranks, argc, argv);
  for (const YardstickSize& size : sizes) {
    std::vector<Job> jobs = JobsOf(task.rule->name, rank.value(), size.bytes, buffers.in, buffers.out);
    Time best{};
    Way best_way = Way::kLoop;
    for (int w = 0; w < static_cast<int>(Way::kNumWays); ++w) {
      Time time = Measure(&exchange, jobs, static_cast<Way>(w), task.options.warmup, task.options.iterations);
      if (w != 0 && time.median >= best.median) continue;
      best = time;
      best_way = static_cast<Way>(w);
    }
    if (report) report->Row(size, best.mean, best.median, WayName(best_way));
  }
  return kExitOk;
}

}  // namespace
}  // namespace axccl::perf

int main(int argc, char** argv) { return axccl::perf::FloorMain(argc, argv); }
