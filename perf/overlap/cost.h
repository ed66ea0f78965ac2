// What the measures of pipeline_cost share: ranks, memory, pipelines of small all_gathers, and how figures are printed.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "axccl/axccl.h"
#include "perf/common/calls.h"
#include "perf/common/exchange.h"

namespace axccl::perf::overlap {

struct CostRank {
  int rank = 0, ranks = 0;
  ncclComm_t comm = nullptr;
  axcclStream_t stream = nullptr;
  Exchange* exchange = nullptr;

  cudaStream_t cuda() const { return axcclStreamToCuda(stream); }
  // The slowest rank's figure.
  double Slowest(double mine) const { return exchange->Combine(mine, Average::kMax); }
};

// Runs `body` on `processes` x `threads` ranks, which have memory in common that is zeroed. Ends the program in the
// process that supervises the others.
void RunRanks(int processes, int threads, const std::function<void(const CostRank&, void* shared)>& body);
constexpr size_t kSharedBytes = 1 << 20;

double SecondsNow();                                          // CLOCK_MONOTONIC, the same in all processes
double Percentile(std::vector<double> values, double share);  // 0.5: the median
void PrintFigure(const std::string& name, double figure, const char* unit);

// Memory of ncclMemAlloc, filled with zeros.
class Bytes {
 public:
  explicit Bytes(int64_t count);
  ~Bytes();
  Bytes(const Bytes&) = delete;
  Bytes& operator=(const Bytes&) = delete;
  char* data() const { return data_; }

 private:
  char* data_ = nullptr;
};

// Chunks of `chunk_bytes` bytes: an all_gather of [slices, chunk_bytes] from each rank.
class GatherPipeline {
 public:
  GatherPipeline(const CostRank& rank, int64_t slices, int64_t chunk_bytes, unsigned int flags, char* in, char* out);
  ~GatherPipeline();
  GatherPipeline(const GatherPipeline&) = delete;
  GatherPipeline& operator=(const GatherPipeline&) = delete;

  axcclPipeline_t handle() const { return handle_; }
  void Start() const { PERF_CALL(axcclPipelineStart(handle_, rank_.cuda())); }
  void Finish() const {
    PERF_CALL(axcclPipelineFinish(handle_, rank_.cuda()));
    PERF_CALL(axcclStreamSynchronize(rank_.stream));
  }
  axcclPipelineInfo_t Info() const;
  uint32_t* Words(axcclSide_t side) const;

 private:
  const CostRank& rank_;
  axcclPipeline_t handle_ = nullptr;
};

// The measures.
void MeasureChunks(int rounds);
void MeasureCalls(int rounds);
void MeasureCreation(int rounds);
void MeasureMemory();
void MeasureWaking(int rounds);
void MeasureLateRank(int rounds);
void MeasureFailures(int rounds);
void MeasureAllocations();

}  // namespace axccl::perf::overlap
