// A pipeline of one rank over dense int32 operands of {rows, columns} blocks that follow each other along dimension 0,
// cut along dimension 0, and what its chunks must hold in every step. A chunk is contiguous memory. Used by one thread
// at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "axccl/axccl.h"
#include "axccl/device.h"
#include "tests/harness/client.h"
#include "tests/harness/guarded_buffer.h"

namespace axccl::tests {

inline constexpr axcclPipelineKind_t kPipelineKinds[] = {axcclPipelineAllGather, axcclPipelineReduceScatter,
                                                         axcclPipelineAllReduce, axcclPipelineAllToAll,
                                                         axcclPipelineBroadcast, axcclPipelinePermute};
const char* KindName(axcclPipelineKind_t kind);
bool HasOrder(axcclPipelineKind_t kind);

struct IntCase {
  axcclPipelineKind_t kind = axcclPipelineAllGather;
  int nranks = 1;
  int64_t rows = 7, columns = 4;  // of a block
  int64_t slices = 1;
  axcclChunkOrder_t order = axcclDefaultOrder;
  bool produced = false;
  harness::Memory memory = harness::Memory::kMalloc;
  int root = 0;
  std::vector<int64_t> pairs;  // of a permute; ShiftPairs makes some

  int InBlocks(int rank) const;
  int OutBlocks(int rank) const;
  // The rank that a permute's output comes from; -1: none.
  int SourceOf(int rank) const;
  std::string Text() const;
};
// Every rank r sends to r + shift.
std::vector<int64_t> ShiftPairs(int nranks, int shift);
// A case of that kind with what it needs.
IntCase CaseOf(axcclPipelineKind_t kind, int nranks, int64_t slices);

class IntPipeline {
 public:
  // Memory and spec; no pipeline yet.
  IntPipeline(const IntCase& c, int rank);
  // Creates it, too; a failure is a GoogleTest failure.
  IntPipeline(const IntCase& c, int rank, axcclChannel_t channel);
  // Destroys the pipeline, unless it was taken.
  ~IntPipeline();
  IntPipeline(const IntPipeline&) = delete;

  // May be changed before Create().
  axcclPipelineSpec_t& spec() { return spec_; }
  ncclResult_t Create(axcclChannel_t channel) { return axcclPipelineCreate(&handle_, &spec_, channel); }
  axcclPipeline_t handle() const { return handle_; }
  axcclPipeline_t Take();
  int rank() const { return rank_; }
  int64_t in_chunks() const { return c_.InBlocks(rank_) * c_.slices; }
  int64_t out_chunks() const { return c_.OutBlocks(rank_) * c_.slices; }
  // The number of the chunk at that position in the order.
  int64_t ChunkAt(axcclSide_t side, int64_t position) const;
  uint32_t* Words(axcclSide_t side) const;

  // The values of a step; the output has none then.
  void Prepare(int step);
  // Writes the values of an input chunk.
  void Produce(int64_t chunk, int step);
  // And declares it ready, by the call.
  ncclResult_t Declare(int64_t chunk, int step);
  // All chunks of the input, in their order.
  ncclResult_t DeclareAll(int step);
  // Writes them and stores their words, `in`.
  void DeclareByWords(uint32_t* in, int step);
  // "" if the chunk has its value.
  std::string CheckChunk(int64_t chunk, int step) const;
  // All of the output, and what is around the buffers.
  std::string Check(int step) const;
  bool Poisoned(int64_t chunk) const;

  // Starts, declares all input ready if that is to be done, and finishes.
  ncclResult_t Step(int step, cudaStream_t stream);

 private:
  uint32_t InputValue(int step, int rank, int64_t block, int64_t element) const;
  uint32_t OutputValue(int step, int64_t block, int64_t element) const;
  // The elements of a slice in its block.
  int64_t Begin(int64_t slice) const { return c_.rows * slice / c_.slices * c_.columns; }
  int64_t BlockElements() const { return c_.rows * c_.columns; }

  const IntCase c_;
  const int rank_;
  std::unique_ptr<harness::GuardedArena> arena_;
  uint32_t *in_ = nullptr, *out_ = nullptr;
  int64_t in_sizes_[2], out_sizes_[2];
  axcclPipelineSpec_t spec_ = AXCCL_PIPELINE_SPEC_INITIALIZER;
  axcclPipeline_t handle_ = nullptr;
};

}  // namespace axccl::tests
