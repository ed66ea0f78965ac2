#include "perf/loops/field.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "perf/common/calls.h"
#include "perf/common/median.h"
#include "perf/common/shared_memory.h"
#include "perf/common/types.h"

namespace axccl::perf {
namespace {

constexpr unsigned char kStale = 0xa5;
// Operations of a round: as many as fit in this time.
constexpr double kRoundSeconds = 0.05;
constexpr int kLeastIterations = 3;
constexpr int kMostIterations = 50;

double Seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

char* Allocate(size_t bytes) {
  void* memory = nullptr;
  PERF_CALL(ncclMemAlloc(&memory, std::max<size_t>(bytes, 64)));
  std::memset(memory, 0x3f, bytes);
  return static_cast<char*>(memory);
}

}  // namespace

char* Field::MapForLoops(const FieldSizes& sizes, int ranks) {
  return MapShared((sizes.loop_in + sizes.loop_out) * static_cast<size_t>(ranks));
}

Field::Field(SharedPage* page, int rank, int ranks, const FieldSizes& sizes, char* for_loops)
    : rank_(rank), ranks_(ranks), sizes_(sizes), for_loops_(for_loops), exchange_(page, rank, ranks) {
  ncclUniqueId id{};
  std::vector<ncclUniqueId> ids(static_cast<size_t>(ranks));
  if (rank == 0) PERF_CALL(ncclGetUniqueId(&id));
  exchange_.AllGather(&id, sizeof(id), ids.data());
  PERF_CALL(ncclCommInitRank(&comm_, ranks, ids[0], rank));
  PERF_CALL(axcclStreamCreate(&stream_, axcclStreamNonBlocking));
  in_ = Allocate(sizes.in);
  out_ = Allocate(sizes.out);
  staging_ = Allocate(sizes.staging);
  std::memset(loop_in(rank), 0x3f, sizes.loop_in);  // touched by its owner, as in a real run
  std::memset(loop_out(rank), 0x3f, sizes.loop_out);
}

Field::~Field() {
  for (char* memory : {in_, out_, staging_}) PERF_CALL(ncclMemFree(memory));
  PERF_CALL(axcclStreamDestroy(stream_));
  PERF_CALL(ncclCommDestroy(comm_));
}

char* Field::loop_in(int rank) const { return for_loops_ + sizes_.loop_in * static_cast<size_t>(rank); }

char* Field::loop_out(int rank) const {
  return for_loops_ + sizes_.loop_in * static_cast<size_t>(ranks_) + sizes_.loop_out * static_cast<size_t>(rank);
}

void Field::Synchronize() { PERF_CALL(axcclStreamSynchronize(stream_)); }

double Field::TimeHere(const std::function<void()>& run) {
  exchange_.Barrier();
  double start = Seconds();
  run();
  return Seconds() - start;
}

double Field::TimeOnce(const std::function<void()>& run) { return exchange_.Combine(TimeHere(run), Average::kMax); }

size_t Field::Fastest(size_t count, const std::function<void(size_t way)>& run) {
  size_t fastest = 0;
  double least = 0;
  for (size_t way = 0; way < count; ++way) {
    auto this_way = [&] { run(way); };
    TimeOnce(this_way);
    double seconds = Median({TimeOnce(this_way), TimeOnce(this_way), TimeOnce(this_way)});
    if (way > 0 && seconds >= least) continue;
    least = seconds;
    fastest = way;
  }
  return fastest;
}

void Field::Check(const std::string& what, const Contestant& contestant, const Sequence& sequence) {
  if (!contestant.expected) return;
  const axcclView_t* out = contestant.expected->out();
  std::memset(out->data, kStale, contestant.expected->recv_span() * ElementBytes(sequence.type));
  exchange_.Barrier();
  contestant.run();
  exchange_.Barrier();
  uint64_t wrong = exchange_.Sum(contestant.expected->CountWrongOutputs(sequence, 0));
  if (wrong == 0) return;
  Fail(rank_ == 0 ? kExitFailed : kExitPeerFailed, rank_ == 0 ? "%s, %s: %llu elements are wrong" : "", what.c_str(),
       contestant.name.c_str(), static_cast<unsigned long long>(wrong));
}

std::vector<double> Field::Compete(const std::vector<Contestant>& contestants, int rounds) {
  std::vector<int> iterations;
  for (const Contestant& c : contestants) {
    TimeOnce(c.run);
    int fit = static_cast<int>(kRoundSeconds / TimeOnce(c.run));  // of the slowest rank, thus the same on all
    iterations.push_back(std::clamp(fit, kLeastIterations, kMostIterations));
  }
  std::vector<std::vector<double>> medians(contestants.size());
  for (int round = 0; round < rounds; ++round) {
    for (size_t c = 0; c < contestants.size(); ++c) {
      TimeOnce(contestants[c].run);  // the contestant before has left its data in the caches
      std::vector<double> times;
      for (int i = 0; i < iterations[c]; ++i) {
        times.push_back(contestants[c].alone ? TimeHere(contestants[c].run) : TimeOnce(contestants[c].run));
      }
      medians[c].push_back(exchange_.Combine(Median(std::move(times)), Average::kMax));
      if (contestants[c].after) contestants[c].after();
    }
  }
  std::vector<double> result;
  for (auto& of_rounds : medians) result.push_back(Median(std::move(of_rounds)));
  return result;
}

}  // namespace axccl::perf
