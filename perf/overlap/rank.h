// One rank of overlap_perf: its matrices, and a step of each mode on them.
//
// Elements are small integers, so every order of summation is exact in float. The input and output of the collective
// are tensors [slices, blocks, rows, columns] in all patterns; only blocks and strides differ.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "axccl/axccl.h"
#include "perf/overlap/options.h"
#include "perf/overlap/trace.h"

namespace axccl::perf::overlap {

enum class Parts { kBoth, kCompute, kCommunicate };

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

class OverlapRank {
 public:
  // Local, but all ranks must make theirs in the same order on the communicator.
  OverlapRank(const OverlapOptions& options, int rank, ncclComm_t comm, axcclStream_t stream);
  ~OverlapRank();
  OverlapRank(const OverlapRank&) = delete;
  OverlapRank& operator=(const OverlapRank&) = delete;

  // Why there is no pipeline; "" if there is one.
  const std::string& refusal() const { return refusal_; }
  // One step, until its end. kCompute and kCommunicate take what an earlier step left in memory. `trace` may be null.
  void Do(Mode mode, Parts parts, Trace* trace);
  // What a step writes has no values any more.
  void Spoil();
  // "" or the first row of the result that is wrong.
  std::string Check() const;

 private:
  // Input or output of the collective.
  struct Side {
    float* data = nullptr;
    int64_t sizes[4] = {}, strides[4] = {};
    int64_t row_of(const void* at) const { return (static_cast<const float*>(at) - data) / sizes[3]; }
    axcclView_t View() const { return Slices(0, sizes); }
    axcclView_t Slices(int64_t first, const int64_t* view_sizes) const;
  };

  bool gathers() const { return options_.pattern == Pattern::kAgMatmul || options_.pattern == Pattern::kAgMatmulOwn; }
  void PlaceSides();
  void MakePipeline();
  void FillInputs();
  int64_t GlobalRow(int64_t own_row) const;
  void FindExpected();
  void Collective(const Side& in, const Side& out, int64_t slice, int64_t slices, axcclStream_t stream);
  void Bulk(Parts parts, Trace* trace);
  void Calls(Parts parts, Trace* trace);
  void CallSlice(int64_t slice, Trace* trace);
  void UseSlice(int64_t slice, Trace* trace);
  void Pipeline(Parts parts, Trace* trace);
  // Rows of the product, from the rows of a (or of what was gathered).
  void Multiply(int64_t first_row, int64_t rows, int64_t number, Trace* trace);

  const OverlapOptions options_;
  const int rank_;
  const ncclComm_t comm_;
  const axcclStream_t stream_;
  const int64_t slice_rows_;  // of a block
  const int64_t own_k_;       // columns of a, rows of b
  Floats a_, b_, c_;          // what is multiplied here, and the product
  Floats other_;              // the other side of the collective: the own part of a, or the reduced c
  Side in_, out_;
  std::vector<double> expected_;  // of each row of the result
  axcclPipeline_t pipeline_ = nullptr;
  std::string refusal_;
  std::vector<axcclStream_t> streams_;  // of slices, and when their calls have ended
  std::vector<axcclEvent_t> ended_;
  axcclEvent_t begun_ = nullptr;
};

}  // namespace axccl::perf::overlap
