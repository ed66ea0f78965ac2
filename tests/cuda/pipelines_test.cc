// Pipelines of GPU ranks: what models do with them, chunk by chunk, by thread and by stream; and how they end early.
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "axccl/device.h"
#include "tests/cuda/words.h"
#include "tests/harness/timing.h"

namespace axccl::tests {
namespace {

using harness::AllowedNs;
using harness::Clique;
using harness::Cuda;
using harness::EnterGpu;
using harness::GpuDriver;
using harness::Layout;
using harness::NowNs;
using harness::RankContext;
using harness::RunOptions;
using harness::RunRanks;

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

  bool reduces() const { return kind == axcclPipelineAllReduce || kind == axcclPipelineReduceScatter; }
  size_t bytes() const { return type == ncclBfloat16 ? 2 : 4; }
  std::string Text() const {
    return "kind " + std::to_string(kind) + " type " + std::to_string(type) + " rows " + std::to_string(rows) +
           " width " + std::to_string(width) + " slices " + std::to_string(slices) + " order " + std::to_string(order) +
           " produced " + std::to_string(produced) + " how " + std::to_string(static_cast<int>(how));
  }
};

// One rank's end of a case, in managed memory.
class End {
 public:
  End(const Case& c, const Clique& clique, int i, axcclChannel_t channel = nullptr)
      : c_(c),
        n_(clique.nranks()),
        rank_(clique.rank(i)),
        in_blocks_(Splits() ? n_ : 1),
        out_blocks_(Joins() ? n_ : 1) {
    in_ = Buffer(in_blocks_);
    out_ = Buffer(out_blocks_);
    axcclPipelineSpec_t spec = AXCCL_PIPELINE_SPEC_INITIALIZER;
    const int64_t in_sizes[] = {c.rows, c.width * in_blocks_}, out_sizes[] = {c.rows, c.width * out_blocks_};
    spec.kind = c.kind;
    spec.in.datatype = spec.out.datatype = c.type;
    spec.in.num_dims = spec.out.num_dims = 2;
    spec.in.data = in_;
    spec.in.sizes = in_sizes;
    spec.out.data = out_;
    spec.out.sizes = out_sizes;
    spec.dim = spec.concat_dim = 1;
    spec.slice_dim = 0;
    spec.slices = c.slices;
    spec.order = c.order;
    spec.flags = c.produced ? axcclProducer : 0;
    EXPECT_OK(axcclPipelineCreate(&handle_, &spec, channel != nullptr ? channel : axcclDefaultChannel(clique.comm(i))));
    if (handle_ == nullptr) return;
    info_.size = sizeof(info_);
    EXPECT_OK(axcclPipelineGetInfo(handle_, &info_));
    EXPECT_OK(axcclPipelineGetFlags(handle_, axcclIn, &words_[axcclIn], nullptr));
    EXPECT_OK(axcclPipelineGetFlags(handle_, axcclOut, &words_[axcclOut], nullptr));
  }
  End(const End&) = delete;
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
  std::string Check(int64_t chunk) const {
    std::string wrong;
    ForEach(chunk, out_blocks_, [&](int64_t block, int64_t row, int64_t column, int64_t at) {
      int64_t wanted = 0;
      if (c_.reduces()) {
        for (int r = 0; r < n_; ++r) wanted += Value(r, Splits() ? rank_ : 0, row, column);
      } else {
        wanted = Value(static_cast<int>(Joins() ? block : 0), Splits() ? rank_ : 0, row, column);
      }
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
  char *in_ = nullptr, *out_ = nullptr;
  uint32_t* words_[2] = {};
  axcclPipeline_t handle_ = nullptr;
  axcclPipelineInfo_t info_{};
  int start_ = 0;
};

// ---- complete runs ----

void Declare(End* end, int64_t chunk, axcclStream_t stream) {
  end->Produce(chunk);
  if (end->c().how == How::kThread) {
    ASSERT_OK(axcclPipelineReady(end->handle(), chunk));
  } else if (end->c().how == How::kStream) {
    ASSERT_OK(axcclPipelineStreamReady(end->handle(), chunk, Cuda(stream)));
  } else {
    axcclDeviceReady(end->word(axcclIn, chunk));
  }
}

// What a host function of a stream finds when it runs.
struct Seen {
  const End* end;
  int64_t chunk;
  std::string wrong = "nothing was seen";
};
void Look(void* seen) {
  auto* const s = static_cast<Seen*>(seen);
  s->wrong = s->end->Check(s->chunk);
}

void Consume(const End& end, int64_t chunk, axcclStream_t stream, std::vector<std::unique_ptr<Seen>>* seen) {
  if (end.c().how == How::kThread) {
    ASSERT_OK(axcclPipelineWait(end.handle(), chunk));
    int done = 0;
    EXPECT_OK(axcclPipelineTest(end.handle(), chunk, &done));
    EXPECT_EQ(done, 1);
  } else if (end.c().how == How::kStream) {
    ASSERT_OK(axcclPipelineStreamWait(end.handle(), chunk, Cuda(stream)));
    seen->push_back(std::make_unique<Seen>(Seen{&end, chunk}));
    ASSERT_EQ(EnterGpu()->call_host(stream, Look, seen->back().get()), 0);
    return;
  } else {
    ASSERT_EQ(axcclDeviceAwait(end.word(axcclOut, chunk)), 1u);
  }
  ASSERT_EQ(end.Check(chunk), "");
}

// One rank a thread. The second stream consumes, the third produces.
void RunStart(End* end, const Clique& clique, int start) {
  end->Prepare(start);
  ASSERT_OK(axcclPipelineStart(end->handle(), Cuda(clique.stream(0, 0))));
  if (end->c().how == How::kWords) ASSERT_OK(harness::SynchronizeStream(clique.stream(0, 0)));  // words are reset
  for (int64_t p = 0; end->c().produced && p < end->info().in_chunks; ++p)
    ASSERT_NO_FATAL_FAILURE(Declare(end, end->ChunkAt(axcclIn, p), clique.stream(0, 2)));
  std::vector<std::unique_ptr<Seen>> seen;
  for (int64_t p = 0; p < end->info().out_chunks; ++p)
    ASSERT_NO_FATAL_FAILURE(Consume(*end, end->ChunkAt(axcclOut, p), clique.stream(0, 1), &seen));
  ASSERT_OK(axcclPipelineFinish(end->handle(), Cuda(clique.stream(0, 0))));
  ASSERT_OK(harness::SynchronizeStream(clique.stream(0, 0)));
  ASSERT_OK(harness::SynchronizeStream(clique.stream(0, 1)));
  for (const auto& s : seen) ASSERT_EQ(s->wrong, "");
  for (int64_t chunk = 0; chunk < end->info().out_chunks; ++chunk) {
    ASSERT_EQ(end->Check(chunk), "");
    ASSERT_EQ(*end->word(axcclOut, chunk), 1u);
  }
}

void RunCases(RankContext& context, const std::vector<Case>& cases) {
  Clique clique;
  ASSERT_TRUE(clique.Init(context, 3));
  for (const Case& c : cases) {
    SCOPED_TRACE(c.Text());
    ASSERT_TRUE(context.Step("%s", c.Text().c_str()));
    End end(c, clique, 0);
    ASSERT_NE(end.handle(), nullptr);
    EXPECT_GE(end.info().blocks, 1);
    EXPECT_STREQ(end.info().algorithm, "chunked_direct");
    for (int start = 0; start < 2; ++start) ASSERT_NO_FATAL_FAILURE(RunStart(&end, clique, start));
    end.Destroy();
    ASSERT_FALSE(testing::Test::HasFailure());
  }
  ASSERT_TRUE(context.Barrier());
}

// The shapes of a transformer whose weights are spread over the ranks: [S, D] gathered along D, sums of [S, D, 8], and
// blocks that all ranks need in turn.
std::vector<Case> Shapes(int ranks) {
  std::vector<Case> cases;
  const auto add = [&](Case c) { cases.push_back(c); };
  int n = 0;
  for (const int64_t slices : {1, 2, 7}) {
    for (const ncclDataType_t type : {ncclFloat32, ncclBfloat16, ncclInt32}) {
      const How how = static_cast<How>(n % 3);
      const bool produced = n++ % 2 != 0;
      add({axcclPipelineAllGather, type, slices, 1, slices, axcclDefaultOrder, produced, how});
      add({axcclPipelineAllReduce, type, slices, ranks * 8, slices, axcclDefaultOrder, produced, how});
      add({axcclPipelineReduceScatter, type, slices, 8, slices, axcclDefaultOrder, !produced, how});
    }
  }
  for (const axcclChunkOrder_t order : {axcclOwnFirst, axcclOwnLast, axcclByRank}) {
    add({axcclPipelineAllGather, ncclBfloat16, 2, 2048, 2, order, order == axcclOwnLast, How::kStream});
    add({axcclPipelineAllToAll, ncclInt32, 5, 64, 2, order, order != axcclOwnLast, How::kThread});
  }
  add({axcclPipelineBroadcast, ncclFloat32, 9, 500, 7, axcclDefaultOrder, true, How::kThread});
  return cases;
}

class PipelineTest : public testing::TestWithParam<Layout> {};

TEST_P(PipelineTest, ShapesOfModels) {
  const Layout layout = GetParam();
  RunOptions options;
  options.deadline = std::chrono::seconds(60);
  RunRanks(
      layout, [&](RankContext& context) { RunCases(context, Shapes(layout.nranks())); }, options);
}

INSTANTIATE_TEST_SUITE_P(Layouts, PipelineTest,
                         testing::Values(harness::Threads(2), harness::Threads(3), harness::Threads(4)),
                         [](const auto& info) { return info.param.Text(); });

}  // namespace
}  // namespace axccl::tests
