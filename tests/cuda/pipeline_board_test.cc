// What the op board shows of the starts of pipelines on GPUs: whether they have begun and ended, and how many chunks
// are ready and there. Monitors read it in every process, also of a rank that is stopped or dead.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <functional>
#include <string>

#include "axccl/device.h"
#include "tests/cuda/graph.h"
#include "tests/cuda/pipeline_end.h"
#include "tests/harness/op_board.h"

namespace axccl::tests {
namespace {

using harness::BoardTexts;
using harness::Clique;
using harness::Cuda;
using harness::Layout;
using harness::Processes;
using harness::RankContext;
using harness::Texts;
using harness::Threads;

constexpr int64_t kSlices = 4;

Case GatherOf(axcclEngine_t engine, bool produced = true) {
  return {axcclPipelineAllGather, ncclInt32, 8, 16, kSlices, axcclDefaultOrder, produced, How::kThread, engine};
}

struct Way {
  Layout layout;
  axcclEngine_t engine;
};

class PipelineBoard : public testing::TestWithParam<Way> {
 protected:
  Case Gather(bool produced = true) const { return GatherOf(GetParam().engine, produced); }
  void Run(const std::function<void(RankContext&, Clique&)>& body) const {
    RunCliques(GetParam().layout, body, {.environment = {{"AXCCL_TEST_GPU_MEMORY", "device"}}});
  }
};

// Copy engines are for ranks of one process; otherwise a kernel does their work.
INSTANTIATE_TEST_SUITE_P(Ways, PipelineBoard,
                         testing::Values(Way{Threads(2), axcclEngineKernel}, Way{Threads(2), axcclEngineCopy},
                                         Way{Processes(2), axcclEngineKernel}, Way{Processes(2), axcclEngineCopy}),
                         [](const auto& info) {
                           return (info.param.engine == axcclEngineCopy ? "Copy" : "Kernel") + info.param.layout.Text();
                         });

// Expects the newest operation of both ranks, as each of them sees it. Collective.
void ExpectBoards(RankContext& context, const Clique& clique, const std::string& of_0, const std::string& of_1) {
  ASSERT_TRUE(context.Barrier());
  EXPECT_EQ(BoardTexts(clique.comm(), 0).at(0), of_0);
  EXPECT_EQ(BoardTexts(clique.comm(), 1).at(0), of_1);
  ASSERT_TRUE(context.Barrier());
}

// What the device does shows some time after the call.
void AwaitBoard(const RankContext& context, const Clique& clique, const std::string& text) {
  Texts texts;
  do texts = BoardTexts(clique.comm(), context.rank());
  while ((texts.empty() || texts[0] != text) && !context.AnyFailed());
}

void Start(const End& end, const Clique& clique) { ASSERT_OK(axcclPipelineStart(end.handle(), Cuda(clique.stream()))); }

void FinishAndCheck(const End& end, const Clique& clique) {
  ASSERT_OK(axcclPipelineFinish(end.handle(), Cuda(clique.stream())));
  ASSERT_OK(harness::SynchronizeStream(clique.stream()));
  for (int64_t chunk = 0; chunk < end.info().out_chunks; ++chunk) ASSERT_EQ(end.Check(chunk), "");
}

// The rank declares slices from `begin` to `end`, and both ranks wait until they have come.
void DeclareAndAwait(RankContext& context, int of_rank, End* end, int64_t begin, int64_t stop) {
  for (int64_t s = begin; s < stop; ++s) {
    if (context.rank() == of_rank) {
      end->Produce(s);
      ASSERT_OK(axcclPipelineReady(end->handle(), s));
    }
    ASSERT_OK(axcclPipelineWait(end->handle(), of_rank * kSlices + s));
  }
}

TEST_P(PipelineBoard, CountsTheChunksOfAStart) {
  Run([this](RankContext& context, Clique& clique) {
    End end(Gather(), clique, 0);
    ASSERT_TRUE(context.Barrier());  // allocating may wait for kernels
    for (int start = 0; start < 3; ++start) {
      const std::string starts = " #" + std::to_string(start) + " start ";
      const std::string under_way = "under way" + starts, done = "done" + starts;
      end.Prepare(start);
      ASSERT_NO_FATAL_FAILURE(Start(end, clique));
      AwaitBoard(context, clique, under_way + "0/4 in 0/8 out");
      ExpectBoards(context, clique, under_way + "0/4 in 0/8 out", under_way + "0/4 in 0/8 out");
      ASSERT_NO_FATAL_FAILURE(DeclareAndAwait(context, 0, &end, 0, 2));
      ExpectBoards(context, clique, under_way + "2/4 in 2/8 out", under_way + "0/4 in 2/8 out");
      ASSERT_NO_FATAL_FAILURE(DeclareAndAwait(context, 0, &end, 2, 3));
      ExpectBoards(context, clique, under_way + "3/4 in 3/8 out", under_way + "0/4 in 3/8 out");
      ASSERT_NO_FATAL_FAILURE(DeclareAndAwait(context, 1, &end, 0, 4));
      ExpectBoards(context, clique, under_way + "3/4 in 7/8 out", under_way + "4/4 in 7/8 out");
      ASSERT_NO_FATAL_FAILURE(DeclareAndAwait(context, 0, &end, 3, 4));
      ASSERT_NO_FATAL_FAILURE(FinishAndCheck(end, clique));
      ExpectBoards(context, clique, done + "4/4 in 8/8 out", done + "4/4 in 8/8 out");
    }
    // Starts before the last one have ended, whatever it counts.
    end.Prepare(3);
    ASSERT_NO_FATAL_FAILURE(Start(end, clique));
    AwaitBoard(context, clique, "under way #3 start 0/4 in 0/8 out");
    ASSERT_TRUE(context.Barrier());
    for (const int rank : {0, 1})
      EXPECT_EQ(BoardTexts(clique.comm(), rank),
                Texts({"under way #3 start 0/4 in 0/8 out", "done #2 start 4/4 in 8/8 out",
                       "done #1 start 4/4 in 8/8 out", "done #0 start 4/4 in 8/8 out"}));
    ASSERT_TRUE(context.Barrier());
    for (const int rank : {0, 1}) ASSERT_NO_FATAL_FAILURE(DeclareAndAwait(context, rank, &end, 0, 4));
    ASSERT_NO_FATAL_FAILURE(FinishAndCheck(end, clique));
    end.Destroy();
    ASSERT_TRUE(context.Barrier());
    EXPECT_EQ(BoardTexts(clique.comm(), 0), Texts()) << "of a pipeline that was destroyed";
    ASSERT_TRUE(context.Barrier());
  });
}

// Without a producer, the whole input is ready.
TEST_P(PipelineBoard, ShowsAStartThatWaitsForALateRank) {
  Run([this](RankContext& context, Clique& clique) {
    End end(Gather(false), clique, 0);
    ASSERT_TRUE(context.Barrier());
    end.Prepare(0);
    if (context.rank() == 0) {
      ASSERT_NO_FATAL_FAILURE(Start(end, clique));
      for (int64_t s = 0; s < kSlices; ++s) ASSERT_OK(axcclPipelineWait(end.handle(), s));
    }
    ASSERT_TRUE(context.Barrier());
    EXPECT_EQ(BoardTexts(clique.comm(), 0), Texts({"under way #0 start 4/4 in 4/8 out"}));
    EXPECT_EQ(BoardTexts(clique.comm(), 1), Texts());
    ASSERT_TRUE(context.Barrier());
    if (context.rank() == 1) {
      ASSERT_NO_FATAL_FAILURE(Start(end, clique));
    }
    ASSERT_NO_FATAL_FAILURE(FinishAndCheck(end, clique));
    ExpectBoards(context, clique, "done #0 start 4/4 in 8/8 out", "done #0 start 4/4 in 8/8 out");
    end.Destroy();
  });
}

// The counts stay as they were, although copy engines are let go then.
TEST_P(PipelineBoard, ShowsHowFarAStartWasThatFailed) {
  Run([this](RankContext& context, Clique& clique) {
    End end(Gather(), clique, 0);
    ASSERT_TRUE(context.Barrier());  // allocating may wait for kernels
    end.Prepare(0);
    ASSERT_NO_FATAL_FAILURE(Start(end, clique));
    ASSERT_NO_FATAL_FAILURE(DeclareAndAwait(context, 0, &end, 0, 3));
    ASSERT_NO_FATAL_FAILURE(DeclareAndAwait(context, 1, &end, 0, 1));
    ASSERT_OK(axcclPipelineFinish(end.handle(), Cuda(clique.stream())));
    ExpectBoards(context, clique, "under way #0 start 3/4 in 4/8 out", "under way #0 start 1/4 in 4/8 out");
    if (context.rank() == 1) {
      AwaitBoard(context, clique, "failed #0 start 1/4 in 4/8 out");
      ASSERT_OK(harness::SynchronizeStream(clique.stream()));
      EXPECT_EQ(BoardTexts(clique.comm(), 1), Texts({"failed #0 start 1/4 in 4/8 out"}));
    }
    EXPECT_OK(ncclCommAbort(clique.comm()));
    clique.ForgetComms();
    end.Destroy();
  });
}

TEST(PipelineBoardOfProcesses, ShowsARankThatIsStoppedAndThenDies) {
  const auto body = [](RankContext& context, Clique& clique) {
    constexpr int kPid = 1;
    End end(GatherOf(axcclEngineKernel), clique, 0);
    end.Prepare(0);
    ASSERT_NO_FATAL_FAILURE(Start(end, clique));
    ASSERT_NO_FATAL_FAILURE(DeclareAndAwait(context, 1, &end, 0, 2));
    if (context.rank() == 1) {
      context.Set(kPid, static_cast<uint64_t>(getpid()));
      context.Freeze();
    }
    const auto victim = static_cast<pid_t>(context.Await(kPid));
    ASSERT_NE(victim, 0);
    harness::AwaitStop(context, victim);
    EXPECT_EQ(BoardTexts(clique.comm(), 1), Texts({"under way #0 start 2/4 in 2/8 out"}));
    kill(victim, SIGKILL);
    Texts texts;
    do texts = BoardTexts(clique.comm(), 1);
    while (texts == Texts{"under way #0 start 2/4 in 2/8 out"} && !context.AnyFailed());
    EXPECT_EQ(texts, Texts({"failed #0 start 2/4 in 2/8 out"}));
    EXPECT_OK(ncclCommAbort(clique.comm()));
    clique.ForgetComms();
  };
  RunCliques(Processes(2), body, {.environment = {{"AXCCL_TEST_GPU_MEMORY", "device"}}});
}

// Then the stamps are in memory of the process alone, and everything else works.
TEST(PipelineBoardOfProcesses, ShowsNoCountsWhereSharedMemoryCannotBePinned) {
  const auto body = [](RankContext& context, Clique& clique) {
    End end(GatherOf(axcclEngineKernel), clique, 0);
    for (int start = 0; start < 2; ++start) {
      end.Prepare(start);
      ASSERT_NO_FATAL_FAILURE(Start(end, clique));
      for (const int rank : {0, 1}) ASSERT_NO_FATAL_FAILURE(DeclareAndAwait(context, rank, &end, 0, kSlices));
      ASSERT_NO_FATAL_FAILURE(FinishAndCheck(end, clique));
      const std::string text = "enqueued #" + std::to_string(start) + " start -1/4 in -1/8 out";
      ExpectBoards(context, clique, text, text);
    }
    end.Destroy();
    ASSERT_TRUE(context.Barrier());
  };
  RunCliques(Processes(2), body,
             {.environment = {{"AXCCL_TEST_GPU_MEMORY", "device"}, {"SOFTGPU_HOST_REGISTER", "0"}}});
}

// A start in a graph has one record, which shows the last launch.
TEST(PipelineBoardOfGraphs, ShowsTheLastLaunch) {
  const auto body = [](RankContext& context, Clique& clique) {
    End end(GatherOf(axcclEngineKernel), clique, 0);
    Graph graph;
    ASSERT_NO_FATAL_FAILURE(graph.Capture(clique.stream(), [&] {
      ASSERT_NO_FATAL_FAILURE(Start(end, clique));
      ASSERT_OK(axcclPipelineFinish(end.handle(), Cuda(clique.stream())));
    }));
    EXPECT_EQ(BoardTexts(clique.comm(), context.rank()), Texts({"enqueued #0 start 0/4 in 0/8 out"}));
    for (int launch = 0; launch < 3; ++launch) {
      end.Prepare(launch);
      ASSERT_NO_FATAL_FAILURE(graph.Launch(clique.stream()));
      AwaitBoard(context, clique, "under way #0 start 0/4 in 0/8 out");
      ExpectBoards(context, clique, "under way #0 start 0/4 in 0/8 out", "under way #0 start 0/4 in 0/8 out");
      for (const int64_t stop : {2, 4}) {
        for (int64_t s = stop - 2; s < stop; ++s) {
          end.Produce(s);
          axcclDeviceReady(end.word(axcclIn, s));
        }
        if (stop == 4) break;
        AwaitBoard(context, clique, "under way #0 start 2/4 in 4/8 out");
        ExpectBoards(context, clique, "under way #0 start 2/4 in 4/8 out", "under way #0 start 2/4 in 4/8 out");
      }
      ASSERT_OK(harness::SynchronizeStream(clique.stream()));
      ExpectBoards(context, clique, "done #0 start 4/4 in 8/8 out", "done #0 start 4/4 in 8/8 out");
    }
    graph.Destroy();
    // Outside of the graph, starts have numbers of their own.
    end.Prepare(3);
    ASSERT_NO_FATAL_FAILURE(Start(end, clique));
    AwaitBoard(context, clique, "under way #1 start 0/4 in 0/8 out");
    ASSERT_TRUE(context.Barrier());
    for (const int rank : {0, 1})
      EXPECT_EQ(BoardTexts(clique.comm(), rank),
                Texts({"under way #1 start 0/4 in 0/8 out", "done #0 start 4/4 in 8/8 out"}));
    ASSERT_TRUE(context.Barrier());
    for (const int rank : {0, 1}) ASSERT_NO_FATAL_FAILURE(DeclareAndAwait(context, rank, &end, 0, 4));
    ASSERT_NO_FATAL_FAILURE(FinishAndCheck(end, clique));
    ASSERT_TRUE(context.Barrier());
    end.Destroy();
  };
  RunCliques(Threads(2), body);
}

}  // namespace
}  // namespace axccl::tests
