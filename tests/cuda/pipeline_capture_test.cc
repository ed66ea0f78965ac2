// Pipelines in CUDA graphs: started, waited for, declared ready and finished in a capture, and launched many times.
//
// Streams that have a part in a captured start join its capture, and the program joins them with the first one before
// the capture ends. It orders launches of graphs with each other and with starts outside.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/cuda/graph.h"
#include "tests/cuda/pipeline_end.h"
#include "tests/cuda/words.h"

namespace axccl::tests {
namespace {

using harness::Clique;
using harness::Cuda;
using harness::EnterGpu;
using harness::ExpectLastErrorHas;
using harness::GpuDriver;
using harness::Layout;
using harness::RankContext;
using harness::RunRanks;

// What a host function of a graph finds in each launch.
struct Seen {
  const End* end;
  int64_t chunk;
  int looks = 0;
  std::string wrong;
};
void Look(void* seen) {
  auto* const s = static_cast<Seen*>(seen);
  ++s->looks;
  if (s->wrong.empty()) s->wrong = s->end->Check(s->chunk);
}

// One rank's part of a graph: a start of a pipeline whose chunks two other streams declare ready and use.
class Step {
 public:
  Step(const Case& c, const Clique& clique, int i) : end_(c, clique, i), clique_(clique), i_(i) {}

  void Capture(axcclStream_t origin) {
    const axcclStream_t ready = clique_.stream(i_, 1), used = clique_.stream(i_, 2);
    ASSERT_OK(axcclPipelineStart(end_.handle(), Cuda(origin)));
    const axcclPipelineInfo_t& info = end_.info();
    for (int64_t p = 0; end_.c().produced && p < info.in_chunks; ++p)
      ASSERT_OK(axcclPipelineStreamReady(end_.handle(), end_.ChunkAt(axcclIn, p), Cuda(ready)));
    seen_.resize(static_cast<size_t>(info.out_chunks));
    for (int64_t p = 0; p < info.out_chunks; ++p) {
      const int64_t chunk = end_.ChunkAt(axcclOut, p);
      seen_[static_cast<size_t>(p)] = {&end_, chunk, 0, ""};
      ASSERT_OK(axcclPipelineStreamWait(end_.handle(), chunk, Cuda(used)));
      ASSERT_EQ(EnterGpu()->call_host(used, Look, &seen_[static_cast<size_t>(p)]), 0);
    }
    ASSERT_OK(axcclPipelineFinish(end_.handle(), Cuda(origin)));
    if (end_.c().produced) {
      ASSERT_NO_FATAL_FAILURE(Follow(ready, origin));
    }
    ASSERT_NO_FATAL_FAILURE(Follow(used, origin));
  }
  void Prepare(int launch) {
    end_.Prepare(launch);
    for (int64_t chunk = 0; end_.c().produced && chunk < end_.info().in_chunks; ++chunk) end_.Produce(chunk);
  }
  void Check(int launches) {
    for (const Seen& seen : seen_) {
      ASSERT_EQ(seen.wrong, "");
      ASSERT_EQ(seen.looks, launches);
    }
    for (int64_t chunk = 0; chunk < end_.info().out_chunks; ++chunk) {
      ASSERT_EQ(end_.Check(chunk), "");
      ASSERT_EQ(*end_.word(axcclOut, chunk), 1u);
    }
  }
  End& end() { return end_; }

 private:
  End end_;
  const Clique& clique_;
  const int i_;
  std::vector<Seen> seen_;
};

// Outside of captures.
void RunOutside(End* end, int start, axcclStream_t stream) {
  end->Prepare(start);
  ASSERT_OK(axcclPipelineStart(end->handle(), Cuda(stream)));
  for (int64_t chunk = 0; end->c().produced && chunk < end->info().in_chunks; ++chunk) {
    end->Produce(chunk);
    ASSERT_OK(axcclPipelineReady(end->handle(), chunk));
  }
  ASSERT_OK(axcclPipelineFinish(end->handle(), Cuda(stream)));
}

class PipelineCaptureTest : public testing::TestWithParam<Layout> {};

// Between the launches, the thread starts the pipelines itself.
TEST_P(PipelineCaptureTest, TwoPipelinesInOneGraph) {
  RunRanks(GetParam(), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context, 3));
    const Case gather{axcclPipelineAllGather, ncclInt32, 6, 16, 3, axcclDefaultOrder, true};
    const Case scatter{axcclPipelineReduceScatter, ncclFloat32, 7, 8, 7};
    std::vector<std::unique_ptr<Step>> steps;
    std::vector<std::unique_ptr<Graph>> graphs;
    for (int i = 0; i < clique.size(); ++i) {
      for (const Case& c : {gather, scatter}) steps.push_back(std::make_unique<Step>(c, clique, i));
      const axcclStream_t stream = clique.stream(i);
      graphs.push_back(std::make_unique<Graph>());
      ASSERT_NO_FATAL_FAILURE(graphs.back()->Capture(stream, [&] {
        for (size_t of_rank : {0, 1})
          ASSERT_NO_FATAL_FAILURE(steps[2 * static_cast<size_t>(i) + of_rank]->Capture(stream));
      }));
    }
    for (int launch = 1; launch <= 3; ++launch) {
      ASSERT_TRUE(context.Step("launch %d", launch));
      for (const auto& step : steps) step->Prepare(launch);
      for (int i = 0; i < clique.size(); ++i)
        ASSERT_NO_FATAL_FAILURE(graphs[static_cast<size_t>(i)]->Launch(clique.stream(i)));
      ASSERT_TRUE(clique.Synchronize());
      for (const auto& step : steps) ASSERT_NO_FATAL_FAILURE(step->Check(launch));
      for (size_t i = 0; i < steps.size(); ++i) {
        const axcclStream_t stream = clique.stream(static_cast<int>(i / 2));
        ASSERT_NO_FATAL_FAILURE(RunOutside(&steps[i]->end(), launch + 10, stream));
      }
      for (const auto& step : steps) {
        for (int64_t chunk = 0; chunk < step->end().info().out_chunks; ++chunk) {
          ASSERT_OK(axcclPipelineWait(step->end().handle(), chunk));
          ASSERT_EQ(step->end().Check(chunk), "");
        }
      }
      ASSERT_TRUE(clique.Synchronize());
    }
    graphs.clear();
    for (const auto& step : steps) step->end().Destroy();
    ASSERT_TRUE(context.Barrier());
  });
}

INSTANTIATE_TEST_SUITE_P(Layouts, PipelineCaptureTest,
                         testing::Values(harness::Threads(2), harness::Threads(4), harness::OneThread(3)),
                         [](const auto& info) { return info.param.Text(); });

// A pipeline started twice in one capture: the second start comes after the end of the first.
TEST(PipelineCapture, TwoStartsInOneGraph) {
  RunRanks(harness::Threads(2), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context, 3));
    const Case c{axcclPipelineAllReduce, ncclInt32, 4, 8, 2};
    Step step(c, clique, 0);
    Graph graph;
    ASSERT_NO_FATAL_FAILURE(graph.Capture(clique.stream(), [&] {
      ASSERT_OK(axcclPipelineStart(step.end().handle(), Cuda(clique.stream())));
      ASSERT_OK(axcclPipelineFinish(step.end().handle(), Cuda(clique.stream())));
      ASSERT_NO_FATAL_FAILURE(step.Capture(clique.stream()));
    }));
    for (int launch = 1; launch <= 3; ++launch) {
      step.Prepare(launch);
      ASSERT_NO_FATAL_FAILURE(graph.Launch(clique.stream()));
      ASSERT_TRUE(clique.Synchronize());
      ASSERT_NO_FATAL_FAILURE(step.Check(launch));
    }
    graph.Destroy();
    step.end().Destroy();
    ASSERT_TRUE(context.Barrier());
  });
}

// ---- refused ----

void ExpectUsable(Clique* clique, End* end) {
  ASSERT_NO_FATAL_FAILURE(RunOutside(end, 5, clique->stream()));
  ASSERT_TRUE(clique->Synchronize());
  for (int64_t chunk = 0; chunk < end->info().out_chunks; ++chunk) ASSERT_EQ(end->Check(chunk), "");
}

// A start of one side of the border of a capture goes on at the other side.
TEST(PipelineCapture, RefusesWhatCrossesItsBorder) {
  RunRanks(harness::OneThread(1), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context, 3));
    const Case c{axcclPipelineAllGather, ncclInt32, 4, 8, 2, axcclDefaultOrder, true};
    End end(c, clique, 0);
    const axcclPipeline_t p = end.handle();
    ASSERT_OK(axcclPipelineStart(p, Cuda(clique.stream(0, 1))));
    Graph graph;
    Words data(100, 1);
    ASSERT_NO_FATAL_FAILURE(graph.Capture(clique.stream(), [&] {
      const cudaStream_t captured = Cuda(clique.stream());
      EXPECT_EQ(axcclPipelineStreamWait(p, 0, captured), ncclInvalidUsage);
      ExpectLastErrorHas({"axcclPipelineStreamWait", "is being captured", "started outside"});
      EXPECT_EQ(axcclPipelineStreamReady(p, 0, captured), ncclInvalidUsage);
      ExpectLastErrorHas({"axcclPipelineStreamReady", "is being captured", "started outside"});
      EXPECT_EQ(axcclPipelineFinish(p, captured), ncclInvalidUsage);
      ExpectLastErrorHas({"axcclPipelineFinish", "is being captured", "started outside"});
      EXPECT_EQ(axcclPipelineStart(p, captured), ncclInvalidUsage);
      ExpectLastErrorHas({"axcclPipelineStart", "not finished"});
      ASSERT_OK(Sum(&data, &data, clique.comm(), clique.stream()));  // the capture is whole
    }));
    for (int64_t chunk = 0; chunk < 2; ++chunk) ASSERT_OK(axcclPipelineReady(p, chunk));
    ASSERT_OK(axcclPipelineFinish(p, Cuda(clique.stream())));
    ASSERT_TRUE(clique.Synchronize());
    Graph second, third;
    ASSERT_NO_FATAL_FAILURE(second.Capture(clique.stream(), [&] {
      const cudaStream_t captured = Cuda(clique.stream());
      ASSERT_OK(axcclPipelineStart(p, captured));
      EXPECT_EQ(axcclPipelineWait(p, 0), ncclInvalidUsage);
      ExpectLastErrorHas({"axcclPipelineWait", "was captured", "axcclPipelineStreamWait"});
      EXPECT_EQ(axcclPipelineReady(p, 0), ncclInvalidUsage);
      ExpectLastErrorHas({"axcclPipelineReady", "was captured", "axcclPipelineStreamReady"});
      int done = 0;
      EXPECT_EQ(axcclPipelineTest(p, 0, &done), ncclInvalidUsage);
      EXPECT_EQ(axcclPipelineFinish(p, nullptr), ncclInvalidUsage);
      ExpectLastErrorHas({"axcclPipelineFinish", "legacy"});
      ASSERT_NO_FATAL_FAILURE(third.Capture(clique.stream(0, 1), [&] {
        EXPECT_EQ(axcclPipelineStreamWait(p, 0, Cuda(clique.stream(0, 1))), ncclInvalidUsage);
        ExpectLastErrorHas({"axcclPipelineStreamWait", "another graph"});
        ASSERT_OK(Sum(&data, &data, clique.comm(), clique.stream(0, 1)));
      }));
      for (int64_t chunk = 0; chunk < 2; ++chunk) ASSERT_OK(axcclPipelineStreamReady(p, chunk, captured));
      ASSERT_OK(axcclPipelineFinish(p, captured));
    }));
    ASSERT_NO_FATAL_FAILURE(ExpectUsable(&clique, &end));
    end.Destroy();
  });
}

// A capture that ends before the finish is an error of the driver, and the pipeline can be used again.
TEST(PipelineCapture, EndsWithoutAFinish) {
  RunRanks(harness::OneThread(1), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    const Case c{axcclPipelineAllGather, ncclInt32, 4, 8, 2, axcclDefaultOrder, true};
    End end(c, clique, 0);
    const GpuDriver* const driver = EnterGpu();
    for (const bool starts_again : {true, false}) {
      ASSERT_EQ(driver->begin_capture(clique.stream(), 1), 0);
      ASSERT_OK(axcclPipelineStart(end.handle(), Cuda(clique.stream())));
      void* graph = nullptr;
      constexpr int kUnjoined = 904;
      EXPECT_EQ(driver->end_capture(clique.stream(), &graph), kUnjoined);
      EXPECT_EQ(axcclPipelineFinish(end.handle(), Cuda(clique.stream())), ncclInvalidUsage);
      ExpectLastErrorHas({"axcclPipelineFinish", "capture", "has ended without axcclPipelineFinish"});
      if (starts_again) {
        ASSERT_NO_FATAL_FAILURE(ExpectUsable(&clique, &end));
      }
    }
    end.Destroy();
  });
}

// Rank 1 leaves instead of launching its graph.
TEST(PipelineCapture, EndsWithItsCommunicator) {
  RunRanks(harness::Threads(2), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    const Case c{axcclPipelineAllReduce, ncclInt32, 4, 8, 2};
    End end(c, clique, 0);
    end.Prepare(0);
    Graph graph;
    ASSERT_NO_FATAL_FAILURE(graph.Capture(clique.stream(), [&] {
      ASSERT_OK(axcclPipelineStart(end.handle(), Cuda(clique.stream())));
      ASSERT_OK(axcclPipelineStreamWait(end.handle(), 1, Cuda(clique.stream())));
      ASSERT_OK(axcclPipelineFinish(end.handle(), Cuda(clique.stream())));
    }));
    if (context.rank() == 0) {
      ASSERT_NO_FATAL_FAILURE(graph.Launch(clique.stream()));
      ASSERT_TRUE(context.Barrier());
      EXPECT_EQ(AwaitError(clique.comm(), 3000), ncclRemoteError) << ncclGetLastError(nullptr);
      ASSERT_OK(harness::SynchronizeStream(clique.stream()));
      for (int64_t chunk = 0; chunk < 2; ++chunk) EXPECT_EQ(*end.word(axcclOut, chunk), 2u);
    } else {
      ASSERT_TRUE(context.Barrier());
    }
    ASSERT_OK(ncclCommAbort(clique.comm()));
    clique.ForgetComms();
    ASSERT_TRUE(context.Barrier());
    graph.Destroy();
    end.Destroy();
  });
}

}  // namespace
}  // namespace axccl::tests
