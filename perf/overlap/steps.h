// What overlap_perf times on a rank of either device: steps of a product and a collective, in each mode; and where the
// input and the output of the collective are, which is the same on both.
#pragma once

#include <cstdint>
#include <string>

#include "axccl/axccl.h"
#include "perf/overlap/options.h"
#include "perf/overlap/trace.h"

namespace axccl::perf::overlap {

enum class Parts { kBoth, kCompute, kCommunicate };

// Tensors [slices, blocks, rows, columns] in all patterns; only blocks and strides differ.
struct Side {
  char* data = nullptr;
  ncclDataType_t datatype = ncclFloat32;
  int64_t element = 4;  // bytes
  int64_t sizes[4] = {}, strides[4] = {};

  int64_t row_of(const void* at) const { return (static_cast<const char*>(at) - data) / element / sizes[3]; }
  // Slices from `first` on; the view refers to `view_sizes`.
  axcclView_t Slices(int64_t first, const int64_t* view_sizes) const;
  axcclView_t View() const { return Slices(0, sizes); }
};

// The matrices of a rank: a [m, own_k] times b [own_k, n] is c; `other` is its own part of a, or its part of the
// reduced c.
struct StepLayout {
  StepLayout(const OverlapOptions& options, int rank);

  // Places the two sides of the collective.
  void Place(ncclDataType_t datatype, int64_t element, void* a, void* c, void* other);
  // The row of the whole a, or result, that is row `own_row` of this rank's part.
  int64_t GlobalRow(int64_t own_row) const;
  // Without an engine. Refers to the sides.
  axcclPipelineSpec_t Spec() const;
  // The collective on `slices` slices.
  void Collective(int64_t slice, int64_t slices, ncclComm_t comm, cudaStream_t stream) const;

  OverlapOptions options;
  int rank;
  bool gathers;
  int64_t slice_rows;  // of a block
  int64_t own_k;       // columns of a, rows of b
  int64_t a_count, b_count, c_count, other_count;
  int64_t own_rows, result_rows;  // of the rank's part of a, where it gathers, or of all of a; and of the result
  Side in, out;
};

class Steps {
 public:
  virtual ~Steps() = default;
  // Why there is no pipeline; "" if there is one.
  virtual std::string refusal() const = 0;
  // What does the products, and what moves the data of the pipeline.
  virtual std::string multiplier() const = 0;
  virtual std::string engine() const = 0;
  // One step, until its end. kCompute and kCommunicate take what an earlier step left in memory. `trace` may be null.
  virtual void Do(Mode mode, Parts parts, Trace* trace) = 0;
  // What a step writes has no values any more.
  virtual void Spoil() = 0;
  // "" or the first row of the result that is wrong.
  virtual std::string Check() const = 0;
};

}  // namespace axccl::perf::overlap
