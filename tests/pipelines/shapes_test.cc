// Matrix products that overlap with collectives: the cases of nvFuser's overlap tests (1 to 11), and column- and
// row-parallel linear layers whose activations are sharded along the sequence, forward and backward (12 to 17). Every
// chunk is checked when it is there, and every product against that of the whole tensors, bit for bit.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/harness/client.h"
#include "tests/harness/random.h"
#include "tests/harness/run_ranks.h"
#include "tests/pipelines/shapes.h"

namespace axccl::tests {
namespace {

using harness::Clique;
using harness::Cuda;
using harness::Layout;
using harness::Memory;
using harness::Processes;
using harness::Random;
using harness::RankContext;
using harness::RunRanks;
using harness::Scramble;
using harness::Seed;
using harness::Threads;

// One rank of a case: its tensors and its pipeline.
class ShapeRun {
 public:
  ShapeRun(const ShapeCase& c, RankContext* context, const Clique& clique)
      : c_(c), context_(*context), rank_(clique.rank(0)), stream_(clique.stream()), random_(Scramble(c.seed, Salt())) {
    const Shape& shape = *c.shape;
    in_ = Hold(c.Collected(), c.CollectedBox(axcclIn, rank_), c.memory);
    out_ = Hold(c.Collected(), c.CollectedBox(axcclOut, rank_), c.memory);
    if (!c.b.empty()) b_ = Hold(c.b, c.Part(shape.b.sharded, rank_), Memory::kMalloc);
    if (shape.flow == Flow::kMultiplyFirst) {
      a_ = Hold(c.a, c.Part(shape.a.sharded, rank_), Memory::kMalloc);
    } else {
      product_ = Hold(c.c, c.Part(shape.c.sharded, rank_), Memory::kMalloc);
    }
    MakePipeline(axcclDefaultChannel(clique.comm()));
  }
  ~ShapeRun() {
    if (pipeline_ != nullptr) {
      EXPECT_OK(axcclPipelineDestroy(pipeline_));
    }
  }

  void Step(int start) {
    truth_ = std::make_unique<Truth>(c_, start);
    const bool multiplies_first = c_.shape->flow == Flow::kMultiplyFirst;
    in_->Poison();
    out_->Poison();
    if (b_ != nullptr) b_->Fill(b_->box(), [&](const Point& p) { return truth_->b(p); });
    if (multiplies_first) a_->Fill(a_->box(), [&](const Point& p) { return truth_->a(p); });
    if (!multiplies_first) product_->Fill(product_->box(), [](const Point&) { return 0; });
    if (!c_.shape->produced) Compute(in_->box());
    ASSERT_OK(axcclPipelineStart(pipeline_, Cuda(stream_)));
    if (c_.shape->strict) {
      ChunkAfterChunk();
    } else {
      if (c_.shape->produced) ProduceAll();
      ConsumeAll();
    }
    if (testing::Test::HasFatalFailure()) return;
    ASSERT_OK(axcclPipelineFinish(pipeline_, Cuda(stream_)));
    ASSERT_OK(axcclStreamSynchronize(stream_));
    CheckAll();
  }

 private:
  uint64_t Salt() const { return 100 + static_cast<uint64_t>(rank_); }

  std::unique_ptr<Held> Hold(const std::string& labels, const Box& box, Memory memory) {
    return std::make_unique<Held>(labels, box, c_.type, memory, &random_);
  }

  void MakePipeline(axcclChannel_t channel) {
    const Shape& shape = *c_.shape;
    axcclPipelineSpec_t spec = AXCCL_PIPELINE_SPEC_INITIALIZER;
    spec.kind = shape.kind;
    spec.in = in_->View();
    spec.out = out_->View();
    if (shape.HasBlocks()) spec.dim = static_cast<int>(c_.Collected().find(shape.dim));
    spec.slice_dim = static_cast<int>(c_.Collected().find(c_.slice_label));
    spec.slices = c_.slices;
    spec.order = c_.order;
    spec.flags = shape.produced ? axcclProducer : 0;
    ASSERT_OK(axcclPipelineCreate(&pipeline_, &spec, channel));
    info_.size = sizeof(info_);
    ASSERT_OK(axcclPipelineGetInfo(pipeline_, &info_));
    // Peers reach these buffers, so data is in no other memory of the library, but that few bytes go through slots.
    const bool few = std::string(info_.algorithm) == "chunked_staged";
    if (!few && (c_.memory == Memory::kMemAlloc || context_.layout().processes == 1)) {
      EXPECT_EQ(info_.scratch_bytes, 0u);
    }
  }

  // A chunk by its position, whose view must be where the test expects the chunk.
  Box ChunkAt(axcclSide_t side, int64_t position, int64_t* number) {
    axcclChunk_t chunk = AXCCL_CHUNK_INITIALIZER;
    EXPECT_OK(axcclPipelineGetChunk(pipeline_, side, position, &chunk));
    *number = chunk.number;
    const Box box = c_.ChunkBox(side, rank_, chunk.number);
    const Held& held = side == axcclIn ? *in_ : *out_;
    Point first;
    for (size_t d = 0; d < held.labels().size(); ++d) {
      const char label = held.labels()[d];
      first[label] = box[label].begin;
      EXPECT_EQ(chunk.view.sizes[d], box[label].size()) << label;
    }
    EXPECT_EQ(chunk.view.data, held.AddressOf(first));
    return box;
  }

  // The values of a part of the input.
  void Compute(const Box& box) {
    if (c_.shape->flow == Flow::kCollectFirst) {
      in_->Fill(box, [&](const Point& p) { return truth_->a(p); });
    } else {
      in_->Fill(box, [](const Point&) { return 0; });
      MultiplyAdd(c_, *a_, b_.get(), box, in_.get());
    }
  }

  void ProduceAll() {
    for (int64_t position = 0; position < info_.in_chunks; ++position) {
      int64_t chunk = 0;
      Compute(ChunkAt(axcclIn, position, &chunk));
      ASSERT_OK(axcclPipelineReady(pipeline_, chunk));
      if (!c_.follows) continue;
      // What this rank gets because of it.
      const int64_t block = chunk / c_.slices, slice = chunk % c_.slices;
      if (c_.shape->kind == axcclPipelineReduceScatter && block != rank_) continue;
      const int64_t own_block = c_.shape->kind == axcclPipelineAllGather ? rank_ : 0;
      ASSERT_OK(axcclPipelineWait(pipeline_, own_block * c_.slices + slice));
    }
  }

  // A chunk of the output is there.
  void Consume(const Box& box, int64_t chunk) {
    ASSERT_EQ(out_->FirstWrong(box, [&](const Point& p) { return truth_->collected(p); }), "") << "chunk " << chunk;
    if (product_ != nullptr) MultiplyAdd(c_, *out_, b_.get(), box, product_.get());
  }

  void ConsumeAll() {
    for (int64_t position = 0; position < info_.out_chunks; ++position) {
      int64_t chunk = 0;
      const Box box = ChunkAt(axcclOut, position, &chunk);
      ASSERT_OK(axcclPipelineWait(pipeline_, chunk));
      ASSERT_NO_FATAL_FAILURE(Consume(box, chunk));
    }
  }

  // The owner of a chunk declares it ready when all ranks have used the one before, so none is there too early.
  void ChunkAfterChunk() {
    for (int64_t position = 0; position < info_.out_chunks; ++position) {
      int64_t chunk = 0;
      const Box box = ChunkAt(axcclOut, position, &chunk);
      ASSERT_EQ(chunk, position);
      for (int64_t later = chunk; later < info_.out_chunks; ++later) {
        int done = 1;
        ASSERT_OK(axcclPipelineTest(pipeline_, later, &done));
        ASSERT_EQ(done, 0) << "chunk " << later << " before " << chunk;
      }
      ASSERT_TRUE(context_.Barrier(1));
      const int64_t slice = chunk % c_.slices;
      if (chunk / c_.slices == rank_) {
        Compute(c_.ChunkBox(axcclIn, rank_, slice));
        ASSERT_OK(axcclPipelineReady(pipeline_, slice));
      }
      ASSERT_OK(axcclPipelineWait(pipeline_, chunk));
      ASSERT_NO_FATAL_FAILURE(Consume(box, chunk));
    }
  }

  void CheckAll() {
    EXPECT_EQ(out_->Check([&](const Point& p) { return truth_->collected(p); }), "") << "output";
    if (product_ != nullptr) {
      EXPECT_EQ(product_->Check([&](const Point& p) { return truth_->product(p); }), "") << "product";
      EXPECT_EQ(in_->Check([&](const Point& p) { return truth_->a(p); }), "") << "input";
    } else {
      const Box own = c_.Part(c_.shape->a.sharded, rank_);
      EXPECT_EQ(in_->Check([&](const Point& p) { return truth_->Sum(p, own); }), "") << "partial sums";
    }
  }

  const ShapeCase& c_;
  RankContext& context_;
  const int rank_;
  const axcclStream_t stream_;
  Random random_;
  std::unique_ptr<Truth> truth_;
  std::unique_ptr<Held> a_, b_;     // with the collective after the product
  std::unique_ptr<Held> in_, out_;  // of the collective
  std::unique_ptr<Held> product_;   // with the collective before it
  axcclPipeline_t pipeline_ = nullptr;
  axcclPipelineInfo_t info_{};
};

// All values of a grid, of which the short form takes some for each shape and order.
struct GridPoint {
  const Shape* shape;
  axcclChunkOrder_t order;
  int64_t slices;
  ncclDataType_t type;
};

std::vector<GridPoint> Grid(Random random) {
  std::vector<GridPoint> grid;
  for (const Shape& shape : AllShapes()) {
    for (const axcclChunkOrder_t order : shape.orders) {
      std::vector<GridPoint> points;
      for (const int64_t slices : {1, 2, 7, 8}) {
        for (const ncclDataType_t type : {ncclFloat32, ncclBfloat16, ncclInt32})
          points.push_back({&shape, order, slices, type});
      }
      const size_t wanted = harness::FullTests() ? points.size() : 3;
      for (size_t i = 0; i < wanted; ++i) {
        std::swap(points[i], points[i + random.Below(points.size() - i)]);
        grid.push_back(points[i]);
      }
    }
  }
  return grid;
}

class ShapesTest : public testing::TestWithParam<Layout> {};

TEST_P(ShapesTest, ProductsAreThoseOfTheWholeTensors) {
  harness::RunOptions options;
  options.deadline = std::chrono::seconds(harness::FullTests() ? 300 : 60);
  const auto ranks = static_cast<uint64_t>(GetParam().nranks());
  const std::vector<GridPoint> grid = Grid(Random(Scramble(Seed(), ranks, static_cast<uint64_t>(GetParam().threads))));
  RunRanks(
      GetParam(),
      [&](RankContext& context) {
        SCOPED_TRACE("AXCCL_TEST_SEED=" + std::to_string(Seed()));
        Clique clique;
        ASSERT_TRUE(clique.Init(context));
        for (size_t i = 0; i < grid.size() && !testing::Test::HasFailure(); ++i) {
          const GridPoint& g = grid[i];
          const ShapeCase c = MakeCase(*g.shape, context.nranks(), g.slices, g.type, g.order, Scramble(Seed(), i));
          SCOPED_TRACE(c.Text());
          ShapeRun run(c, &context, clique);
          const int starts = i % 4 == 0 ? 3 : 2;
          for (int start = 0; start < starts && !testing::Test::HasFailure(); ++start) {
            ASSERT_TRUE(context.Step("start %d: %s", start, c.Text().c_str()));
            run.Step(start);
          }
        }
      },
      options);
}

INSTANTIATE_TEST_SUITE_P(Layouts, ShapesTest,
                         testing::Values(Processes(2), Processes(3), Processes(4), Processes(8), Threads(2), Threads(3),
                                         Threads(4), Threads(8)),
                         [](const auto& info) { return info.param.Text(); });

}  // namespace
}  // namespace axccl::tests
