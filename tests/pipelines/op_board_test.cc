// The op board counts the chunks of a start: those declared ready, and those that are there. So does the error of a
// start that a deadline ends.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/harness/channels.h"
#include "tests/harness/client.h"
#include "tests/harness/op_board.h"
#include "tests/pipelines/int_pipeline.h"

namespace axccl::tests {
namespace {

using harness::BoardTexts;
using harness::Clique;
using harness::Cuda;
using harness::Layout;
using harness::Memory;
using harness::Processes;
using harness::RankContext;
using harness::RunCliques;
using harness::Sorted;
using harness::Texts;
using harness::Threads;

constexpr int kRanks = 2;
constexpr int64_t kSlices = 4;

IntCase ProducedGather(Memory memory, int64_t columns = 100) {
  IntCase c = CaseOf(axcclPipelineAllGather, kRanks, kSlices);
  c.produced = true, c.memory = memory, c.columns = columns;
  return c;
}

class PipelineBoardTest : public testing::TestWithParam<Layout> {};

// Expects the boards of both ranks, as each of them sees them. Collective.
void ExpectBoards(RankContext& context, const Clique& clique, const std::string& of_0, const std::string& of_1) {
  ASSERT_TRUE(context.Barrier());
  EXPECT_EQ(BoardTexts(clique.comm(), 0).at(0), of_0);
  EXPECT_EQ(BoardTexts(clique.comm(), 1).at(0), of_1);
  ASSERT_TRUE(context.Barrier());
}

// Rank 0 declares the slices from `begin` to `end`, and both ranks wait until they have come.
void DeclareAndAwait(RankContext& context, IntPipeline* pipeline, int step, int64_t begin, int64_t end) {
  for (int64_t s = begin; s < end; ++s) {
    if (context.rank() == 0) {
      ASSERT_OK(pipeline->Declare(s, step));
    }
    ASSERT_OK(axcclPipelineWait(pipeline->handle(), s));
  }
}

// A start is on the board once the stream has come to it, which is not necessarily before axcclPipelineStart returns.
void AwaitStart(RankContext& context, const Clique& clique, const std::string& start) {
  for (Texts texts; texts.empty() || texts[0] != start; texts = BoardTexts(clique.comm(), context.rank()))
    ASSERT_FALSE(context.AnyFailed());
}

void ShowEveryChunk(RankContext& context, const Clique& clique, const IntCase& c, axcclChannel_t channel) {
  const std::string on = channel == axcclDefaultChannel(clique.comm()) ? "" : " on 5";
  IntPipeline pipeline(c, context.rank(), channel);
  for (const int step : {0, 1, 2}) {
    const std::string starts = " #" + std::to_string(step) + " start" + on + " ";
    pipeline.Prepare(step);
    ASSERT_OK(axcclPipelineStart(pipeline.handle(), Cuda(clique.stream())));
    ASSERT_NO_FATAL_FAILURE(AwaitStart(context, clique, "under way" + starts + "0/4 in 0/8 out"));
    ExpectBoards(context, clique, "under way" + starts + "0/4 in 0/8 out", "under way" + starts + "0/4 in 0/8 out");
    ASSERT_NO_FATAL_FAILURE(DeclareAndAwait(context, &pipeline, step, 0, 2));
    ExpectBoards(context, clique, "under way" + starts + "2/4 in 2/8 out", "under way" + starts + "0/4 in 2/8 out");
    ASSERT_NO_FATAL_FAILURE(DeclareAndAwait(context, &pipeline, step, 2, 3));
    ExpectBoards(context, clique, "under way" + starts + "3/4 in 3/8 out", "under way" + starts + "0/4 in 3/8 out");
    if (context.rank() == 1) {
      pipeline.DeclareByWords(pipeline.Words(axcclIn), step);
    }
    for (int64_t s = 0; s < kSlices; ++s) ASSERT_OK(axcclPipelineWait(pipeline.handle(), kSlices + s));
    ExpectBoards(context, clique, "under way" + starts + "3/4 in 7/8 out", "under way" + starts + "4/4 in 7/8 out");
    ASSERT_NO_FATAL_FAILURE(DeclareAndAwait(context, &pipeline, step, 3, 4));
    ASSERT_OK(axcclPipelineFinish(pipeline.handle(), Cuda(clique.stream())));
    ASSERT_OK(axcclStreamSynchronize(clique.stream()));
    EXPECT_EQ(pipeline.Check(step), "");
    ExpectBoards(context, clique, "done" + starts + "4/4 in 8/8 out", "done" + starts + "4/4 in 8/8 out");
  }
}

TEST_P(PipelineBoardTest, CountsTheChunksOfAStart) {
  RunCliques(GetParam(), [](RankContext& context, Clique& clique) {
    axcclChannel_t created = harness::MakeChannel(clique.comm(), kRanks, {}, 5);
    for (const axcclChannel_t channel : {axcclDefaultChannel(clique.comm()), created}) {
      for (const Memory memory : {Memory::kMalloc, Memory::kMemAlloc}) {
        ASSERT_NO_FATAL_FAILURE(ShowEveryChunk(context, clique, ProducedGather(memory), channel));
        ASSERT_TRUE(context.Barrier());
        EXPECT_EQ(BoardTexts(clique.comm(), 0), Texts()) << "of a pipeline that was destroyed";
        ASSERT_TRUE(context.Barrier());
      }
      // Through slots.
      ASSERT_NO_FATAL_FAILURE(ShowEveryChunk(context, clique, ProducedGather(Memory::kMalloc, 1), channel));
      ASSERT_TRUE(context.Barrier());
    }
    EXPECT_OK(axcclChannelDestroy(created));
  });
}

TEST_P(PipelineBoardTest, ShowsAStartThatWaitsForALateRank) {
  RunCliques(GetParam(), [](RankContext& context, Clique& clique) {
    IntCase c = ProducedGather(Memory::kMalloc);
    c.produced = false;
    IntPipeline pipeline(c, context.rank(), axcclDefaultChannel(clique.comm()));
    pipeline.Prepare(0);
    ASSERT_TRUE(context.Barrier());
    if (context.rank() == 0) {
      ASSERT_OK(axcclPipelineStart(pipeline.handle(), Cuda(clique.stream())));
      for (int64_t s = 0; s < kSlices; ++s) ASSERT_OK(axcclPipelineWait(pipeline.handle(), s));
    }
    ASSERT_TRUE(context.Barrier());
    EXPECT_EQ(BoardTexts(clique.comm(), 0), Texts({"under way #0 start 4/4 in 4/8 out"}));
    EXPECT_EQ(BoardTexts(clique.comm(), 1), Texts());
    ASSERT_TRUE(context.Barrier());
    if (context.rank() == 1) {
      ASSERT_OK(axcclPipelineStart(pipeline.handle(), Cuda(clique.stream())));
    }
    ASSERT_OK(axcclPipelineFinish(pipeline.handle(), Cuda(clique.stream())));
    ASSERT_TRUE(clique.Synchronize());
    ExpectBoards(context, clique, "done #0 start 4/4 in 8/8 out", "done #0 start 4/4 in 8/8 out");
  });
}

// Chunks that are declared ready before the stream has come to the start, too.
TEST_P(PipelineBoardTest, CountsWhatWasDeclaredBeforeTheStart) {
  RunCliques(GetParam(), [](RankContext& context, Clique& clique) {
    IntPipeline pipeline(ProducedGather(Memory::kMalloc), context.rank(), axcclDefaultChannel(clique.comm()));
    float value = 1;
    // It ends when rank 1 has called it, too.
    const auto call = [&] {
      ASSERT_OK(ncclAllReduce(&value, &value, 1, ncclFloat, ncclSum, clique.comm(), Cuda(clique.stream())));
    };
    if (context.rank() == 0) call();
    pipeline.Prepare(0);
    if (context.rank() == 0) {
      ASSERT_OK(axcclPipelineStart(pipeline.handle(), Cuda(clique.stream())));
      for (int64_t s = 1; s < 3; ++s) ASSERT_OK(pipeline.Declare(s, 0));
      EXPECT_EQ(BoardTexts(clique.comm(), 0), Texts({"under way #0"}));
    }
    ASSERT_TRUE(context.Barrier());
    if (context.rank() == 1) {
      call();
      ASSERT_OK(axcclPipelineStart(pipeline.handle(), Cuda(clique.stream())));
    }
    // As soon as the start is seen, although the run does not get to them before slice 0.
    if (context.rank() == 0) {
      axcclOpInfo_t op{};
      while (op.use != axcclOpOfPipeline && !context.AnyFailed()) op = harness::ReadBoard(clique.comm(), 0).at(0);
      EXPECT_EQ(op.in_ready, 2);
      ASSERT_OK(pipeline.Declare(0, 0));
    }
    for (int64_t s = 0; s < 3; ++s) ASSERT_OK(axcclPipelineWait(pipeline.handle(), s));
    ExpectBoards(context, clique, "under way #0 start 3/4 in 3/8 out", "under way #0 start 0/4 in 3/8 out");
    ASSERT_NO_FATAL_FAILURE(DeclareAndAwait(context, &pipeline, 0, 3, 4));
    if (context.rank() == 1) {
      ASSERT_OK(pipeline.DeclareAll(0));
    }
    ASSERT_OK(axcclPipelineFinish(pipeline.handle(), Cuda(clique.stream())));
    ASSERT_TRUE(clique.Synchronize());
  });
}

TEST_P(PipelineBoardTest, APermuteHasAMessageInEachDirection) {
  RunCliques({GetParam().processes > 1 ? 3 : 1, GetParam().processes > 1 ? 1 : 3, 1},
             [](RankContext& context, Clique& clique) {
               const IntCase c = CaseOf(axcclPipelinePermute, 3, kSlices);
               IntPipeline pipeline(c, context.rank(), axcclDefaultChannel(clique.comm()));
               pipeline.Prepare(0);
               ASSERT_OK(pipeline.Step(0, Cuda(clique.stream())));
               ASSERT_TRUE(clique.Synchronize());
               EXPECT_EQ(pipeline.Check(0), "");
               ASSERT_TRUE(context.Barrier());
               Texts expected;
               for (size_t i = 0; i < c.pairs.size(); i += 2) {
                 if (c.pairs[i] == 0)
                   expected.push_back("done #0 start with " + std::to_string(c.pairs[i + 1]) + " 4/4 in 0/0 out");
                 if (c.pairs[i + 1] == 0)
                   expected.push_back("done #0 start with " + std::to_string(c.pairs[i]) + " 0/0 in 4/4 out");
               }
               EXPECT_EQ(Sorted(BoardTexts(clique.comm(), 0)), Sorted(expected));
               ASSERT_TRUE(context.Barrier());
             });
}

TEST_P(PipelineBoardTest, ADeadlineSaysHowManyChunksAreThere) {
  RunCliques(GetParam(),
             [](RankContext& context, Clique& clique) {
               IntPipeline pipeline(ProducedGather(Memory::kMalloc), context.rank(),
                                    axcclDefaultChannel(clique.comm()));
               pipeline.Prepare(0);
               ASSERT_OK(axcclPipelineStart(pipeline.handle(), Cuda(clique.stream())));
               ASSERT_NO_FATAL_FAILURE(DeclareAndAwait(context, &pipeline, 0, 0, 3));
               ASSERT_OK(axcclPipelineFinish(pipeline.handle(), Cuda(clique.stream())));
               EXPECT_NE(axcclStreamSynchronize(clique.stream()), ncclSuccess);
               harness::ExpectLastErrorHas({"AXCCL_TIMEOUT", "3 of 8 chunks of the output are there"});
               ExpectBoards(context, clique, "failed #0 start 3/4 in 3/8 out", "failed #0 start 0/4 in 3/8 out");
               EXPECT_OK(ncclCommAbort(clique.comm()));
               clique.ForgetComms();
             },
             {.environment = {{"AXCCL_TIMEOUT", "2"}}});
}

INSTANTIATE_TEST_SUITE_P(Layouts, PipelineBoardTest, testing::Values(Threads(kRanks), Processes(kRanks)),
                         [](const auto& layout) { return layout.param.Text(); });

}  // namespace
}  // namespace axccl::tests
