#include "perf/overlap/cost.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <thread>

#include "perf/common/launch.h"
#include "perf/common/options.h"
#include "perf/common/shared_memory.h"

namespace axccl::perf::overlap {

void RunRanks(int processes, int threads, const std::function<void(const CostRank&, void* shared)>& body) {
  Options places;
  places.ranks = processes;
  places.threads = threads;
  void* const shared = MapShared(kSharedBytes);
  Result<World> entered = EnterWorld(places);
  if (!entered.ok()) Fail(kExitUsage, "%s", std::string(entered.status().message()).c_str());
  const World& world = entered.value();
  SetWho("rank " + std::to_string(world.process * threads));
  OnFail([&world](const std::string& message) { world.page->Abort(message); });
  std::vector<ncclUniqueId> ids(static_cast<size_t>(processes));
  if (world.process == 0) PERF_CALL(ncclGetUniqueId(&ids[0]));
  const ncclUniqueId mine = ids[0];
  world.page->Meet(Room::kProcesses, world.process, &mine, sizeof(mine), ids.data());
  const auto run = [&](int thread) {
    CostRank rank;
    rank.rank = world.process * threads + thread, rank.ranks = processes * threads;
    PageExchange exchange(world.page.get(), rank.rank, rank.ranks);
    rank.exchange = &exchange;
    PERF_CALL(axcclHostSetDevice(thread));
    PERF_CALL(ncclCommInitRank(&rank.comm, rank.ranks, ids[0], rank.rank));
    PERF_CALL(axcclStreamCreate(&rank.stream, axcclStreamNonBlocking));
    body(rank, shared);
    exchange.Barrier();
    PERF_CALL(axcclStreamDestroy(rank.stream));
    PERF_CALL(ncclCommDestroy(rank.comm));
  };
  std::vector<std::thread> others;
  for (int t = 1; t < threads; ++t) others.emplace_back(run, t);
  run(0);
  for (std::thread& other : others) other.join();
}

double SecondsNow() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double Percentile(std::vector<double> values, double share) {
  std::sort(values.begin(), values.end());
  return values[std::min(values.size() - 1, static_cast<size_t>(static_cast<double>(values.size()) * share))];
}

void PrintFigure(const std::string& name, double figure, const char* unit) {
  std::printf("%s %.4g %s\n", name.c_str(), figure, unit);
}

Bytes::Bytes(int64_t count) {
  const auto bytes = static_cast<size_t>(count);
  PERF_CALL(ncclMemAlloc(reinterpret_cast<void**>(&data_), bytes));
  std::memset(data_, 0, bytes);
}

Bytes::~Bytes() { PERF_CALL(ncclMemFree(data_)); }

GatherPipeline::GatherPipeline(const CostRank& rank, int64_t slices, int64_t chunk_bytes, unsigned int flags, char* in,
                               char* out)
    : rank_(rank) {
  const int64_t in_sizes[] = {slices, chunk_bytes}, out_sizes[] = {slices * rank.ranks, chunk_bytes};
  axcclPipelineSpec_t spec = AXCCL_PIPELINE_SPEC_INITIALIZER;
  spec.kind = axcclPipelineAllGather;
  spec.in.data = in, spec.in.sizes = in_sizes;
  spec.out.data = out, spec.out.sizes = out_sizes;
  spec.in.datatype = spec.out.datatype = ncclInt8;
  spec.in.num_dims = spec.out.num_dims = 2;
  spec.slice_dim = 0, spec.slices = slices, spec.flags = flags;
  PERF_CALL(axcclPipelineCreate(&handle_, &spec, axcclDefaultChannel(rank.comm)));
}

GatherPipeline::~GatherPipeline() { PERF_CALL(axcclPipelineDestroy(handle_)); }

axcclPipelineInfo_t GatherPipeline::Info() const {
  axcclPipelineInfo_t info{};
  info.size = sizeof(info);
  PERF_CALL(axcclPipelineGetInfo(handle_, &info));
  return info;
}

uint32_t* GatherPipeline::Words(axcclSide_t side) const {
  uint32_t* words = nullptr;
  PERF_CALL(axcclPipelineGetFlags(handle_, side, &words, nullptr));
  return words;
}

}  // namespace axccl::perf::overlap
