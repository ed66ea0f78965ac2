// A host rank of overlap_perf: its matrices, and a step of each mode on them.
//
// Elements are small integers, so every order of summation is exact in float.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "axccl/axccl.h"
#include "perf/overlap/steps.h"

namespace axccl::perf::overlap {

// Memory for floats, of ncclMemAlloc or aligned heap memory.
class Floats {
 public:
  Floats(int64_t count, bool on_heap);
  ~Floats();
  Floats(const Floats&) = delete;
  Floats& operator=(const Floats&) = delete;
  float* data() const { return data_; }
  void Spoil();  // NaN everywhere

 private:
  const int64_t count_;
  const bool on_heap_;
  float* data_ = nullptr;
};

class HostSteps final : public Steps {
 public:
  // Local, but all ranks must make theirs in the same order on the communicator.
  HostSteps(const OverlapOptions& options, int rank, ncclComm_t comm);
  ~HostSteps() override;
  HostSteps(const HostSteps&) = delete;
  HostSteps& operator=(const HostSteps&) = delete;

  std::string refusal() const override { return refusal_; }
  std::string multiplier() const override;
  std::string engine() const override { return "threads"; }
  void Do(Mode mode, Parts parts, Trace* trace) override;
  void Spoil() override;
  std::string Check() const override;

 private:
  void MakePipeline();
  void FillInputs();
  void FindExpected();
  void Bulk(Parts parts, Trace* trace);
  void Calls(Parts parts, Trace* trace);
  void CallSlice(int64_t slice, Trace* trace);
  void UseSlice(int64_t slice, Trace* trace);
  void Pipeline(Parts parts, Trace* trace);
  // Rows of the product, from the rows of a (or of what was gathered).
  void Multiply(int64_t first_row, int64_t rows, int64_t number, Trace* trace);

  const OverlapOptions options_;
  const ncclComm_t comm_;
  StepLayout layout_;
  Floats a_, b_, c_;              // what is multiplied here, and the product
  Floats other_;                  // the other side of the collective: the own part of a, or the reduced c
  std::vector<double> expected_;  // of each row of the result
  axcclPipeline_t pipeline_ = nullptr;
  std::string refusal_;
  axcclStream_t stream_ = nullptr;
  std::vector<axcclStream_t> streams_;  // of slices, and when their calls have ended
  std::vector<axcclEvent_t> ended_;
  axcclEvent_t begun_ = nullptr;
};

}  // namespace axccl::perf::overlap
