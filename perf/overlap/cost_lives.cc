// pipeline_cost: creation, memory, and allocations.
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>

#include "perf/overlap/cost.h"

namespace {

std::atomic<bool> g_counts{false};
std::atomic<long> g_allocations{0};

#ifdef AXCCL_PERF_COUNT_MALLOC
void Count() {
  if (g_counts.load(std::memory_order_relaxed)) g_allocations.fetch_add(1, std::memory_order_relaxed);
}
#endif

}  // namespace

#ifdef AXCCL_PERF_COUNT_MALLOC
extern "C" {
void* __libc_malloc(size_t bytes);                 // NOLINT: glibc's names
void* __libc_calloc(size_t count, size_t bytes);   // NOLINT
void* __libc_realloc(void* memory, size_t bytes);  // NOLINT
void* malloc(size_t bytes) {
  Count();
  return __libc_malloc(bytes);
}
void* calloc(size_t count, size_t bytes) {
  Count();
  return __libc_calloc(count, bytes);
}
void* realloc(void* memory, size_t bytes) {
  Count();
  return __libc_realloc(memory, bytes);
}
}
#endif

namespace axccl::perf::overlap {
namespace {

constexpr int64_t kSlices = 8, kChunkBytes = 4096;

double ResidentBytes() {
  long pages = 0;
  const std::unique_ptr<FILE, int (*)(FILE*)> file(std::fopen("/proc/self/statm", "r"), &std::fclose);
  if (file == nullptr || std::fscanf(file.get(), "%*d %ld", &pages) != 1) Fail(kExitFailed, "cannot read statm");
  return static_cast<double>(pages) * static_cast<double>(sysconf(_SC_PAGESIZE));
}

}  // namespace

void MeasureCreation(int rounds) {
  constexpr int kRanks = 8, kRoundsBefore = 10;
  RunRanks(1, kRanks, [&](const CostRank& rank, void*) {
    Bytes in(kSlices * kChunkBytes), out(kRanks * kSlices * kChunkBytes);
    std::vector<double> create, destroy, first_step;
    for (int round = 0; round < rounds + kRoundsBefore; ++round) {
      rank.exchange->Barrier();
      double begin = SecondsNow();
      auto pipeline = std::make_unique<GatherPipeline>(rank, kSlices, kChunkBytes, 0, in.data(), out.data());
      const double created = rank.Slowest(SecondsNow() - begin);
      begin = SecondsNow();
      pipeline->Start();
      pipeline->Finish();
      const double stepped = rank.Slowest(SecondsNow() - begin);
      begin = SecondsNow();
      pipeline.reset();
      const double destroyed = rank.Slowest(SecondsNow() - begin);
      if (round < kRoundsBefore) continue;
      create.push_back(created), first_step.push_back(stepped), destroy.push_back(destroyed);
    }
    if (rank.rank != 0) return;
    PrintFigure("create.create", Percentile(create, 0.5) * 1e3, "ms");
    PrintFigure("create.first_step", Percentile(first_step, 0.5) * 1e3, "ms");
    PrintFigure("create.destroy", Percentile(destroy, 0.5) * 1e3, "ms");
  });
}

void MeasureMemory() {
  constexpr int kRanks = 8, kPipelines = 500;
  RunRanks(1, kRanks, [&](const CostRank& rank, void*) {
    Bytes in(kSlices * kChunkBytes), out(kRanks * kSlices * kChunkBytes);
    std::vector<std::unique_ptr<GatherPipeline>> pipelines;
    const auto make = [&](int count) {
      for (int i = 0; i < count; ++i)
        pipelines.push_back(std::make_unique<GatherPipeline>(rank, kSlices, kChunkBytes, 0, in.data(), out.data()));
    };
    const auto resident = [&] {
      rank.exchange->Barrier();
      const double bytes = ResidentBytes();
      rank.exchange->Barrier();
      return bytes;
    };
    pipelines.reserve(kPipelines + 1);
    make(1);
    pipelines[0]->Start();
    pipelines[0]->Finish();
    const double before = resident();
    make(kPipelines);
    const double created = resident();
    for (const auto& pipeline : pipelines) {
      pipeline->Start();
      pipeline->Finish();
    }
    const double started = resident();
    if (rank.rank != 0) return;
    const axcclPipelineInfo_t info = pipelines.back()->Info();
    PrintFigure("memory.created", (created - before) / kPipelines / kRanks, "B");
    PrintFigure("memory.idle", (started - before) / kPipelines / kRanks, "B");
    PrintFigure("memory.info", static_cast<double>(info.memory_bytes), "B");
    PrintFigure("memory.bar", 16384 + 8.0 * static_cast<double>(info.in_chunks + info.out_chunks), "B");
  });
}

void MeasureAllocations() {
#ifdef AXCCL_PERF_COUNT_MALLOC
  constexpr int kRanks = 2, kStarts = 50;
  RunRanks(1, kRanks, [&](const CostRank& rank, void*) {
    Bytes in(kSlices * kChunkBytes), out(kRanks * kSlices * kChunkBytes);
    const GatherPipeline pipeline(rank, kSlices, kChunkBytes, axcclProducer, in.data(), out.data());
    const auto step = [&] {
      pipeline.Start();
      for (int64_t s = 0; s < kSlices; ++s) PERF_CALL(axcclPipelineReady(pipeline.handle(), s));
      for (int64_t c = 0; c < kRanks * kSlices; ++c) PERF_CALL(axcclPipelineWait(pipeline.handle(), c));
      pipeline.Finish();
    };
    step();
    // What the creation of the communicator has left behind is none of the starts': the progress thread takes a name,
    // and the rendezvous ends. On a busy machine both threads may get a core late.
    usleep(300000);
    rank.exchange->Barrier();
    if (rank.rank == 0) g_counts = true;
    rank.exchange->Barrier();
    for (int i = 0; i < kStarts; ++i) step();
    rank.exchange->Barrier();
    if (rank.rank == 0) g_counts = false;
    rank.exchange->Barrier();
    if (rank.rank == 0) PrintFigure("allocations.starts_2_to_51", static_cast<double>(g_allocations.load()), "calls");
  });
#else
  Fail(kExitUsage, "allocations: not counted in a build with a sanitizer");
#endif
}

}  // namespace axccl::perf::overlap
