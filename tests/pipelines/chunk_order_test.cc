// Chunks come in the order in which what they are made of is declared ready, whatever ranks are late.
#include <gtest/gtest.h>

#include <array>
#include <string>

#include "tests/harness/client.h"
#include "tests/harness/random.h"
#include "tests/pipelines/chunk_order.h"

namespace axccl::tests {
namespace {

using harness::Clique;
using harness::Cuda;
using harness::Layout;
using harness::Memory;
using harness::OneThread;
using harness::Processes;
using harness::RankContext;
using harness::RunOptions;
using harness::RunRanks;
using harness::Scramble;
using harness::Seed;
using harness::Threads;

// Blocks of few bytes, which go through slots; small ones, of which plain memory is copied; large ones, of which plain
// memory is registered.
constexpr std::array kColumns{int64_t{3}, int64_t{100}, int64_t{1500}};

void RunAll(RankContext& context) { RunKindsInAnyOrder(context, kColumns, {Memory::kMemAlloc, Memory::kMalloc}); }

class ChunkOrderTest : public testing::TestWithParam<Layout> {};

TEST_P(ChunkOrderTest, AChunkNeedsItsOwnInputsOnly) {
  RunOptions options;
  options.deadline = std::chrono::seconds(60);
  RunRanks(GetParam(), RunAll, options);
}

INSTANTIATE_TEST_SUITE_P(Layouts, ChunkOrderTest,
                         testing::Values(Processes(2), Processes(3), Threads(3), OneThread(2), Layout{2, 1, 2}),
                         [](const auto& info) { return info.param.Text(); });

TEST(ChunkOrder, WithoutRegistrationPlainMemoryIsCopied) {
  RunOptions options;
  options.deadline = std::chrono::seconds(60);
  options.environment = {{"NCCL_LOCAL_REGISTER", "0"}};
  RunRanks(Processes(2), RunAll, options);
}

// They pass chunks from neighbour to neighbour; a rank that is late must not hold up those of others.
TEST(ChunkOrder, OfMoreThan16Ranks) {
  RunOptions options;
  options.deadline = std::chrono::seconds(60);
  RunRanks(
      Layout{1, 1, 17},
      [](RankContext& context) {
        Clique clique;
        ASSERT_TRUE(clique.Init(context, 2));
        for (const axcclPipelineKind_t kind : {axcclPipelineAllGather, axcclPipelineReduceScatter}) {
          for (int order = axcclDefaultOrder; order <= axcclByRank; ++order) {
            IntCase c = CaseOf(kind, context.nranks(), 2);
            c.order = static_cast<axcclChunkOrder_t>(order), c.columns = 100, c.produced = true;
            ASSERT_TRUE(context.Step("%s", c.Text().c_str()));
            SCOPED_TRACE(c.Text() + ", AXCCL_TEST_SEED=" + std::to_string(Seed()));
            RunInAnyOrder(context, clique, c, Scramble(Seed(), static_cast<uint64_t>(order)));
            ASSERT_FALSE(testing::Test::HasFailure());
          }
        }
      },
      options);
}

// The words of a rank that only computes: no thread of it is in the library, and its chunks come and go all the same.
TEST(ChunkOrder, ThreadsThatLookAtWordsOnlyGetThrough) {
  RunRanks(Processes(2), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    IntCase c = CaseOf(axcclPipelineAllGather, 2, 7);
    c.columns = 300, c.produced = true;
    IntPipeline pipeline(c, context.rank(), axcclDefaultChannel(clique.comm()));
    uint32_t *const in = pipeline.Words(axcclIn), *const out = pipeline.Words(axcclOut);
    const int64_t theirs = (1 - context.rank()) * c.slices;
    for (int step = 0; step < 20; ++step) {
      pipeline.Prepare(step);
      ASSERT_OK(axcclPipelineStart(pipeline.handle(), Cuda(clique.stream())));
      // A message of the one rank is the answer to one of the other.
      for (int64_t slice = 0; slice < c.slices; ++slice) {
        if (context.rank() == 1) {
          ASSERT_EQ(axcclDeviceAwait(&out[theirs + slice]), 1u);
        }
        pipeline.Produce(slice, step);
        axcclDeviceReady(&in[slice]);
        if (context.rank() == 0) {
          ASSERT_EQ(axcclDeviceAwait(&out[theirs + slice]), 1u);
        }
        ASSERT_EQ(pipeline.CheckChunk(theirs + slice, step), "");
      }
      ASSERT_OK(axcclPipelineFinish(pipeline.handle(), Cuda(clique.stream())));
      ASSERT_TRUE(clique.Synchronize());
      ASSERT_EQ(pipeline.Check(step), "");
    }
  });
}

// ---- ranks that start late ----

// The rank from which a chunk of the output comes; -1: none.
int SourceOf(const IntCase& c, int rank, int64_t chunk) {
  if (c.kind == axcclPipelineBroadcast) return c.root;
  if (c.kind == axcclPipelinePermute) return c.SourceOf(rank);
  return static_cast<int>(chunk / c.slices);
}

// One rank starts when the others have used all that comes from each other; in the first start, too.
void StartOneLate(RankContext& context, Clique& clique, const IntCase& c) {
  IntPipeline pipeline(c, context.rank(), axcclDefaultChannel(clique.comm()));
  for (int step = 0; step < c.nranks + 1; ++step) {
    const int late = (c.root + 1 + step) % c.nranks;
    pipeline.Prepare(step);
    if (context.rank() == late) {
      ASSERT_TRUE(context.Barrier(1));
    }
    ASSERT_OK(axcclPipelineStart(pipeline.handle(), Cuda(clique.stream())));
    for (int64_t p = 0; p < pipeline.out_chunks(); ++p) {
      const int64_t chunk = pipeline.ChunkAt(axcclOut, p);
      if (SourceOf(c, context.rank(), chunk) == late) continue;
      ASSERT_OK(axcclPipelineWait(pipeline.handle(), chunk));
      ASSERT_EQ(pipeline.CheckChunk(chunk, step), "");
    }
    if (context.rank() != late) {
      ASSERT_TRUE(context.Barrier(1));
    }
    ASSERT_OK(axcclPipelineFinish(pipeline.handle(), Cuda(clique.stream())));
    ASSERT_TRUE(clique.Synchronize());
    ASSERT_EQ(pipeline.Check(step), "");
    ASSERT_TRUE(context.Barrier(2));
  }
}

class LateTest : public testing::TestWithParam<Layout> {};

TEST_P(LateTest, ChunksOfOthersComeBeforeARankStarts) {
  RunRanks(GetParam(), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    for (const axcclPipelineKind_t kind :
         {axcclPipelineAllGather, axcclPipelineAllToAll, axcclPipelineBroadcast, axcclPipelinePermute}) {
      for (int order = axcclDefaultOrder; order <= (HasOrder(kind) ? axcclByRank : axcclDefaultOrder); ++order) {
        for (const int64_t columns : kColumns) {
          for (const Memory memory : {Memory::kMemAlloc, Memory::kMalloc}) {
            IntCase c = CaseOf(kind, context.nranks(), 3);
            c.order = static_cast<axcclChunkOrder_t>(order), c.columns = columns, c.memory = memory;
            if (kind == axcclPipelinePermute && columns == 3) c.pairs = {0, 1, 1, 0};
            ASSERT_TRUE(context.Step("%s", c.Text().c_str()));
            SCOPED_TRACE(c.Text());
            StartOneLate(context, clique, c);
            ASSERT_FALSE(testing::Test::HasFailure());
          }
        }
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Layouts, LateTest, testing::Values(Processes(3), Threads(3)),
                         [](const auto& info) { return info.param.Text(); });

}  // namespace
}  // namespace axccl::tests
