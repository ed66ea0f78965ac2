// A case of a collective on views (tests/collectives/view_cases.h) as a pipeline of one rank: its memory, its spec, and
// what its chunks must hold.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "axccl/axccl.h"
#include "tests/collectives/tensor.h"
#include "tests/collectives/view_cases.h"
#include "tests/harness/guarded_buffer.h"

namespace axccl::tests {

// How a case is cut.
struct Cut {
  int slice_dim = 0;
  int64_t slices = 1;
  axcclChunkOrder_t order = axcclDefaultOrder;
  bool produced = false;
  axcclEngine_t engine = axcclEngineAuto;

  std::string Text() const;
};
// A legal cut of the case's blocks; the case has at least one dimension.
Cut AnyCut(const ViewCase& c, harness::Random* random);
// A random case of the kinds that pipelines have, whose blocks have a dimension.
ViewCase AnyPipelineCase(harness::Random* random, int nranks, int64_t max_elements);

class BoundCase {
 public:
  BoundCase(const ViewCase& c, const Cut& cut, int rank, harness::Memory memory);
  BoundCase(const BoundCase&) = delete;

  const axcclPipelineSpec_t& spec() const { return spec_; }
  // What a start changes: the input has its values again (or, with axcclProducer, none yet), the output has none.
  void Prepare();
  // Writes the values of an input chunk.
  void Produce(int64_t chunk);
  // The first element of an output chunk that does not have its value; "" if there is none.
  std::string CheckChunk(int64_t chunk) const;
  // Everything: all elements, and the bytes around them.
  std::string Check() const;

 private:
  template <class Visit>
  void ForEachOf(bool input, int64_t chunk, const Visit& visit) const;
  void Write(const Sizes& index);
  void Poison();
  char* InputAt(const Sizes& index) const;
  char* OutputAt(const Sizes& index) const;

  const ViewCase c_;
  const Cut cut_;
  const int rank_;
  std::unique_ptr<harness::GuardedArena> arena_;
  std::unique_ptr<Tensor> input_, output_;  // in place, the larger one of both
  Placement in_place_;                      // the smaller one
  char* in_place_data_ = nullptr;
  Sizes sizes_[2], strides_[2];
  axcclPipelineSpec_t spec_ = AXCCL_PIPELINE_SPEC_INITIALIZER;
};

}  // namespace axccl::tests
