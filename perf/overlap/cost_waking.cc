// pipeline_cost: how soon a thread that computes sees a chunk, a rank that comes late, and failures.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstring>
#include <thread>

#include "axccl/device.h"
#include "perf/common/shared_memory.h"
#include "perf/overlap/cost.h"

namespace axccl::perf::overlap {
namespace {

// Computes for about 5 us.
void ComputeAPiece() {
  static thread_local float values[64] = {};
  const double begin = SecondsNow();
  do {
    for (int i = 0; i < 16; ++i) {
      for (float& value : values) value = value * 0.99f + 1.0f;
    }
  } while (SecondsNow() - begin < 5e-6);
}

// ---- how soon a chunk is seen ----

constexpr int kPair = 2;
constexpr int64_t kWakeSlices = 64, kWakeChunkBytes = 4096;
constexpr double kReadyEvery = 1e-3;

struct ReadyTimes {
  std::atomic<double> of[kPair][kWakeSlices];
};

// One step. Both ranks compute all the time, declare a chunk ready now and then, and look for the other's.
void WakingStep(const CostRank& rank, const GatherPipeline& pipeline, ReadyTimes* times, std::vector<double>* delays) {
  const int peer = 1 - rank.rank;
  const uint32_t* const words = pipeline.Words(axcclOut) + peer * kWakeSlices;
  pipeline.Start();
  // Ranks do not declare at the same time.
  double last = SecondsNow() + (rank.rank == 0 ? 0 : kReadyEvery / 2);
  for (int64_t seen = 0, declared = 0; seen < kWakeSlices || declared < kWakeSlices;) {
    ComputeAPiece();
    double now = SecondsNow();
    if (declared < kWakeSlices && now - last >= kReadyEvery) {
      last = now;
      times->of[rank.rank][declared].store(now);
      PERF_CALL(axcclPipelineReady(pipeline.handle(), declared++));
      now = SecondsNow();
    }
    for (; seen < kWakeSlices; ++seen) {
      const uint32_t word = axcclDeviceLook(words + seen);
      if (word == 0) break;
      if (word != 1) Fail(kExitFailed, "chunk %d failed", static_cast<int>(seen));
      delays->push_back(SecondsNow() - times->of[peer][seen].load());
    }
  }
  pipeline.Finish();
}

}  // namespace

void MeasureWaking(int rounds) {
  static_assert(sizeof(ReadyTimes) <= kSharedBytes / 2);
  RunRanks(kPair, 1, [&](const CostRank& rank, void* shared) {
    auto* const times = static_cast<ReadyTimes*>(shared);
    auto* const all = reinterpret_cast<double*>(static_cast<char*>(shared) + kSharedBytes / 2);
    Bytes in(kWakeSlices * kWakeChunkBytes), out(kPair * kWakeSlices * kWakeChunkBytes);
    const GatherPipeline pipeline(rank, kWakeSlices, kWakeChunkBytes, axcclProducer, in.data(), out.data());
    std::vector<double> delays;
    for (int round = 0; round <= rounds; ++round) {
      rank.exchange->Barrier();
      if (round == 1) delays.clear();  // the first one does not count
      WakingStep(rank, pipeline, times, &delays);
    }
    const size_t count = std::min(delays.size(), kSharedBytes / 2 / sizeof(double) / kPair);
    std::copy_n(delays.begin(), count, all + static_cast<size_t>(rank.rank) * count);
    rank.exchange->Barrier();
    if (rank.rank != 0) return;
    delays.assign(all, all + kPair * count);
    PrintFigure("wake.median", Percentile(delays, 0.5) * 1e6, "us");
    PrintFigure("wake.99", Percentile(delays, 0.99) * 1e6, "us");
    PrintFigure("wake.longest", Percentile(delays, 1) * 1e6, "us");
  });
}

// ---- a late rank ----

void MeasureLateRank(int rounds) {
  constexpr int kRanks = 3;
  constexpr int64_t kSlices = 8, kChunkBytes = 65536;
  constexpr std::chrono::milliseconds kLate(200);
  RunRanks(kRanks, 1, [&](const CostRank& rank, void*) {
    Bytes in(kSlices * kChunkBytes), out(kRanks * kSlices * kChunkBytes);
    const GatherPipeline pipeline(rank, kSlices, kChunkBytes, 0, in.data(), out.data());
    const uint32_t* const words = pipeline.Words(axcclOut);
    pipeline.Start();
    pipeline.Finish();
    std::vector<double> times;
    for (int round = 0; round < rounds; ++round) {
      rank.exchange->Barrier();
      const double begin = SecondsNow();
      if (rank.rank == kRanks - 1) std::this_thread::sleep_for(kLate);
      pipeline.Start();
      for (int64_t c = 0; rank.rank != kRanks - 1 && c < (kRanks - 1) * kSlices; ++c) {
        while (axcclDeviceLook(words + c) == 0) ComputeAPiece();
      }
      const double usable = rank.Slowest(rank.rank == kRanks - 1 ? 0 : SecondsNow() - begin);
      pipeline.Finish();
      times.push_back(usable);
    }
    if (rank.rank != 0) return;
    PrintFigure("late.median", Percentile(times, 0.5) * 1e3, "ms");
    PrintFigure("late.longest", Percentile(times, 1) * 1e3, "ms");
  });
}

// ---- failures ----

namespace {

enum class Failure { kPeerDies, kPeerAborts, kOwnAbort };

struct Shared {
  std::atomic<bool> has_id;
  ncclUniqueId id;
  std::atomic<int> started;
  std::atomic<double> failed_at;
  std::atomic<double> known_at;
};

void RunFailing(int index, Failure failure, Shared* shared) {
  constexpr int64_t kSlices = 8, kChunkBytes = 4096;
  CostRank rank;
  rank.rank = index, rank.ranks = kPair;
  if (index == 0) {
    PERF_CALL(ncclGetUniqueId(&shared->id));
    shared->has_id = true;
  }
  while (!shared->has_id) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  PERF_CALL(ncclCommInitRank(&rank.comm, kPair, shared->id, index));
  PERF_CALL(axcclStreamCreate(&rank.stream, axcclStreamNonBlocking));
  Bytes in(kSlices * kChunkBytes), out(kPair * kSlices * kChunkBytes);
  auto* const pipeline = new GatherPipeline(rank, kSlices, kChunkBytes, axcclProducer, in.data(), out.data());
  uint32_t* const ins = pipeline->Words(axcclIn);
  uint32_t* const outs = pipeline->Words(axcclOut);
  pipeline->Start();
  ++shared->started;
  while (shared->started != kPair) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  if (index == 1 && failure != Failure::kOwnAbort) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    shared->failed_at = SecondsNow();
    if (failure == Failure::kPeerDies) (void)raise(SIGKILL);
    (void)ncclCommAbort(rank.comm);
  }
  if (index == 1) {
    while (shared->known_at == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    _exit(0);
  }
  std::thread aborts([&] {
    if (failure != Failure::kOwnAbort) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    shared->failed_at = SecondsNow();
    (void)ncclCommAbort(rank.comm);
  });
  for (int64_t c = 0; c < kSlices; ++c) {
    while (axcclDeviceLook(ins + c) == 0) ComputeAPiece();
  }
  for (int64_t c = 0; c < kPair * kSlices; ++c) {
    while (axcclDeviceLook(outs + c) == 0) ComputeAPiece();
  }
  shared->known_at = SecondsNow();
  aborts.join();
  _exit(0);
}

}  // namespace

void MeasureFailures(int rounds) {
  const char* const names[] = {"peer_dies", "peer_aborts", "own_abort"};
  for (const Failure failure : {Failure::kPeerDies, Failure::kPeerAborts, Failure::kOwnAbort}) {
    std::vector<double> times;
    for (int round = 0; round < rounds; ++round) {
      auto* const shared = new (MapShared(sizeof(Shared))) Shared();
      std::fflush(stdout);
      for (int index = 0; index < kPair; ++index) {
        const pid_t pid = fork();
        if (pid < 0) Fail(kExitFailed, "fork: %s", std::strerror(errno));
        if (pid == 0) RunFailing(index, failure, shared);
      }
      for (int index = 0; index < kPair; ++index) (void)wait(nullptr);
      if (shared->known_at == 0) Fail(kExitFailed, "rank 0 did not see all words change");
      times.push_back(shared->known_at - shared->failed_at);
    }
    const std::string name = std::string("failure.") + names[static_cast<int>(failure)];
    PrintFigure(name + ".median", Percentile(times, 0.5) * 1e3, "ms");
    PrintFigure(name + ".longest", Percentile(times, 1) * 1e3, "ms");
  }
}

}  // namespace axccl::perf::overlap
