// A GPU rank of overlap_perf: its matrices in bfloat16, and a step of each mode on them, which the thread enqueues as a
// whole and then waits for.
//
// Elements are 0 and 1, and so few of a row are 1 that every sum is exact in bfloat16.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "perf/overlap/gpu.h"
#include "perf/overlap/steps.h"

namespace axccl::perf::overlap {

class GpuSteps final : public Steps {
 public:
  // As HostSteps.
  GpuSteps(const OverlapOptions& options, int rank, ncclComm_t comm);
  ~GpuSteps() override;
  GpuSteps(const GpuSteps&) = delete;
  GpuSteps& operator=(const GpuSteps&) = delete;

  std::string refusal() const override { return refusal_; }
  std::string multiplier() const override { return gpu_.multiplier() + ", bfloat16"; }
  std::string engine() const override;
  void Do(Mode mode, Parts parts, Trace* trace) override;
  void Spoil() override;
  std::string Check() const override;

 private:
  using Element = uint16_t;

  Element* Allocate(int64_t count);
  void FillInputs();
  void MakePipeline();
  void Multiply(int64_t first_row, int64_t rows);
  void Bulk(Parts parts);
  void Calls(Parts parts);
  void Pipeline(Parts parts);
  void UseSlice(int64_t slice);

  const OverlapOptions options_;
  const ncclComm_t comm_;
  Gpu gpu_;
  StepLayout layout_;
  std::vector<void*> memory_;
  Element *a_, *b_, *c_, *other_;
  const cudaStream_t stream_;
  std::vector<cudaStream_t> streams_;  // of slices
  std::vector<Gpu::Event> begun_, ended_;
  axcclPipeline_t pipeline_ = nullptr;
  std::string refusal_;
};

}  // namespace axccl::perf::overlap
