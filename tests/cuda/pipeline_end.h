// One rank's end of a pipeline on a GPU, with memory of its own and an oracle of its chunks.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <string>

#include "axccl/axccl.h"
#include "tests/harness/client.h"
#include "tests/harness/gpu.h"

namespace axccl::tests {

// How chunks are awaited and declared ready.
enum class How { kThread, kStream, kWords };

struct Case {
  axcclPipelineKind_t kind = axcclPipelineAllGather;
  ncclDataType_t type = ncclFloat32;
  // Of a block, which follow each other along the second dimension, and are cut along the first.
  int64_t rows = 7, width = 8;
  int64_t slices = 7;
  axcclChunkOrder_t order = axcclDefaultOrder;
  bool produced = false;
  How how = How::kThread;
  axcclEngine_t engine = axcclEngineAuto;

  bool reduces() const { return kind == axcclPipelineAllReduce || kind == axcclPipelineReduceScatter; }
  size_t bytes() const { return type == ncclBfloat16 ? 2 : 4; }
  std::string Text() const {
    return "kind " + std::to_string(kind) + " type " + std::to_string(type) + " rows " + std::to_string(rows) +
           " width " + std::to_string(width) + " slices " + std::to_string(slices) + " order " + std::to_string(order) +
           " produced " + std::to_string(produced) + " how " + std::to_string(static_cast<int>(how)) + " engine " +
           std::to_string(engine);
  }
};

// In memory that the test can access, too (harness/gpu.h). Used by one thread, apart from what the library may do.
class End {
 public:
  // Creates nothing yet. Null: in memory of its own, which stays.
  End(const Case& c, int nranks, int rank, char* in = nullptr, char* out = nullptr)
      : c_(c), n_(nranks), rank_(rank), in_blocks_(Splits() ? n_ : 1), out_blocks_(Joins() ? n_ : 1) {
    in_ = in != nullptr ? in : Buffer(in_blocks_);
    out_ = out != nullptr ? out : Buffer(out_blocks_);
    spec_.kind = c.kind;
    spec_.in.datatype = spec_.out.datatype = c.type;
    spec_.in.num_dims = spec_.out.num_dims = 2;
    spec_.in.data = in_;
    spec_.in.sizes = in_sizes_;
    spec_.out.data = out_;
    spec_.out.sizes = out_sizes_;
    spec_.dim = spec_.concat_dim = 1;
    spec_.slice_dim = 0;
    spec_.slices = c.slices;
    spec_.order = c.order;
    spec_.flags = c.produced ? axcclProducer : 0;
    spec_.engine = c.engine;
  }
  // On the default channel, unless there is another one.
  End(const Case& c, const harness::Clique& clique, int i, axcclChannel_t channel = nullptr)
      : End(c, clique.nranks(), clique.rank(i)) {
    EXPECT_OK(Create(channel != nullptr ? channel : axcclDefaultChannel(clique.comm(i))));
  }
  ncclResult_t Create(axcclChannel_t channel) {
    const ncclResult_t created = axcclPipelineCreate(&handle_, &spec_, channel);
    if (created != ncclSuccess) return created;
    info_.size = sizeof(info_);
    EXPECT_OK(axcclPipelineGetInfo(handle_, &info_));
    EXPECT_OK(axcclPipelineGetFlags(handle_, axcclIn, &words_[axcclIn], nullptr));
    EXPECT_OK(axcclPipelineGetFlags(handle_, axcclOut, &words_[axcclOut], nullptr));
    return created;
  }
  End(const End&) = delete;
  // As of now: the engine is known once all ranks have begun.
  const axcclPipelineInfo_t& Refresh() {
    EXPECT_OK(axcclPipelineGetInfo(handle_, &info_));
    return info_;
  }
  axcclEngine_t engine() { return Refresh().engine; }
  // The memory stays: to free it waits for kernels.
  void Destroy() { EXPECT_OK(axcclPipelineDestroy(handle_)); }

  axcclPipeline_t handle() const { return handle_; }
  const axcclPipelineInfo_t& info() const { return info_; }
  const Case& c() const { return c_; }
  uint32_t* word(axcclSide_t side, int64_t chunk) const { return words_[side] + chunk; }
  int64_t ChunkAt(axcclSide_t side, int64_t position) const {
    axcclChunk_t chunk = AXCCL_CHUNK_INITIALIZER;
    EXPECT_OK(axcclPipelineGetChunk(handle_, side, position, &chunk));
    return chunk.number;
  }

  // Of a start. Without a producer, writes the input.
  void Prepare(int start) {
    start_ = start;
    std::memset(in_, 0xd1, static_cast<size_t>(in_blocks_) * BlockBytes());
    std::memset(out_, 0xd1, static_cast<size_t>(out_blocks_) * BlockBytes());
    for (int64_t chunk = 0; !c_.produced && chunk < info_.in_chunks; ++chunk) Produce(chunk);
  }
  void Produce(int64_t chunk) {
    ForEach(chunk, in_blocks_, [&](int64_t block, int64_t row, int64_t column, int64_t at) {
      Store(in_, at, Value(rank_, Splits() ? block : 0, row, column));
    });
  }
  // An element of a block of the output.
  int64_t Wanted(int64_t block, int64_t row, int64_t column) const {
    if (!c_.reduces()) return Value(static_cast<int>(Joins() ? block : 0), Splits() ? rank_ : 0, row, column);
    int64_t sum = 0;
    for (int r = 0; r < n_; ++r) sum += Value(r, Splits() ? rank_ : 0, row, column);
    return sum;
  }
  std::string Check(int64_t chunk) const {
    std::string wrong;
    ForEach(chunk, out_blocks_, [&](int64_t block, int64_t row, int64_t column, int64_t at) {
      const int64_t wanted = Wanted(block, row, column);
      if (wrong.empty() && Load(out_, at) != wanted)
        wrong = "chunk " + std::to_string(chunk) + " at row " + std::to_string(row) + " column " +
                std::to_string(column) + ": " + std::to_string(Load(out_, at)) + " instead of " +
                std::to_string(wanted);
    });
    return wrong;
  }

 private:
  bool Splits() const { return c_.kind == axcclPipelineReduceScatter || c_.kind == axcclPipelineAllToAll; }
  bool Joins() const { return c_.kind == axcclPipelineAllGather || c_.kind == axcclPipelineAllToAll; }
  size_t BlockBytes() const { return static_cast<size_t>(c_.rows * c_.width) * c_.bytes(); }
  char* Buffer(int64_t blocks) const {
    return static_cast<char*>(harness::GpuAllocate(static_cast<size_t>(blocks) * BlockBytes() + 64));
  }
  // Small, so that sums are exact in every type.
  int64_t Value(int rank, int64_t block, int64_t row, int64_t column) const {
    return (7 * rank + 5 * block + 3 * row + column + 11 * start_) % 32;
  }
  template <class Visit>
  void ForEach(int64_t chunk, int64_t blocks, const Visit& visit) const {
    const int64_t block = chunk / c_.slices, slice = chunk % c_.slices;
    for (int64_t row = c_.rows * slice / c_.slices; row < c_.rows * (slice + 1) / c_.slices; ++row) {
      for (int64_t column = 0; column < c_.width; ++column)
        visit(block, row, column, (row * blocks + block) * c_.width + column);
    }
  }
  void Store(char* to, int64_t at, int64_t value) const {
    const auto number = static_cast<float>(value);
    const auto integer = static_cast<int32_t>(value);
    uint32_t bits;
    std::memcpy(&bits, &number, 4);
    const auto half = static_cast<uint16_t>(bits >> 16);
    const void* const from = c_.type == ncclInt32      ? static_cast<const void*>(&integer)
                             : c_.type == ncclBfloat16 ? static_cast<const void*>(&half)
                                                       : &number;
    std::memcpy(to + at * static_cast<int64_t>(c_.bytes()), from, c_.bytes());
  }
  int64_t Load(const char* from, int64_t at) const {
    uint32_t bits = 0;
    std::memcpy(&bits, from + at * static_cast<int64_t>(c_.bytes()), c_.bytes());
    if (c_.type == ncclInt32) return static_cast<int32_t>(bits);
    if (c_.type == ncclBfloat16) bits <<= 16;
    float number;
    std::memcpy(&number, &bits, 4);
    return static_cast<int64_t>(number);
  }

  const Case c_;
  const int n_, rank_;
  const int64_t in_blocks_, out_blocks_;
  const int64_t in_sizes_[2] = {c_.rows, c_.width*in_blocks_}, out_sizes_[2] = {c_.rows, c_.width*out_blocks_};
  axcclPipelineSpec_t spec_ = AXCCL_PIPELINE_SPEC_INITIALIZER;
  char *in_ = nullptr, *out_ = nullptr;
  uint32_t* words_[2] = {};
  axcclPipeline_t handle_ = nullptr;
  axcclPipelineInfo_t info_{};
  int start_ = 0;
};

}  // namespace axccl::tests
