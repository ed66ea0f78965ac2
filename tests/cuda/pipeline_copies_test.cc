// Pipelines whose data copy engines move: who decides that, in what order chunks come, and what is refused.
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/cuda/graph.h"
#include "tests/cuda/pipeline_end.h"
#include "tests/cuda/words.h"
#include "tests/harness/timing.h"

namespace axccl::tests {
namespace {

using harness::Clique;
using harness::Cuda;
using harness::ExpectLastErrorHas;
using harness::RankContext;
using harness::RunRanks;

constexpr axcclPipelineKind_t kMoves[] = {axcclPipelineAllGather, axcclPipelineAllToAll};

void Finish(End* end, axcclStream_t stream) {
  ASSERT_OK(axcclPipelineFinish(end->handle(), Cuda(stream)));
  ASSERT_OK(harness::SynchronizeStream(stream));
  for (int64_t chunk = 0; chunk < end->info().out_chunks; ++chunk) ASSERT_EQ(end->Check(chunk), "");
}

// Kernels move the data as soon as one rank wants them.
TEST(PipelineEngines, DifferBetweenRanks) {
  RunRanks(harness::Threads(3), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    for (const axcclPipelineKind_t kind : kMoves) {
      for (const int kernels : {0, 1, 3}) {
        const axcclEngine_t engine = context.rank() < kernels ? axcclEngineKernel : axcclEngineCopy;
        End end({kind, ncclInt32, 5, 16, 3, axcclDefaultOrder, false, How::kThread, engine}, clique, 0);
        for (int start = 0; start < 3; ++start) {
          end.Prepare(start);
          ASSERT_OK(axcclPipelineStart(end.handle(), Cuda(clique.stream())));
          ASSERT_NO_FATAL_FAILURE(Finish(&end, clique.stream()));
        }
        EXPECT_EQ(end.engine(), kernels == 0 ? axcclEngineCopy : axcclEngineKernel);
        end.Destroy();
      }
    }
    ASSERT_TRUE(context.Barrier());
  });
}

TEST(PipelineEngines, FollowTheConfiguration) {
  RunRanks(harness::Threads(2), [](RankContext& context) {
    ncclUniqueId id;
    ASSERT_TRUE(harness::ShareUniqueId(context, &id));
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.CTAPolicy = NCCL_CTA_POLICY_ZERO;
    ncclComm_t comm = nullptr;
    ASSERT_OK(ncclCommInitRankConfig(&comm, 2, id, context.rank(), &config));
    Clique clique;
    ASSERT_TRUE(clique.Adopt(comm));
    for (const axcclPipelineKind_t kind : {axcclPipelineAllGather, axcclPipelineAllReduce}) {
      for (const axcclEngine_t engine : {axcclEngineAuto, axcclEngineKernel}) {
        End end({kind, ncclInt32, 4, 16, 2, axcclDefaultOrder, false, How::kThread, engine}, 2, context.rank());
        ASSERT_OK(end.Create(axcclDefaultChannel(comm)));
        end.Prepare(0);
        ASSERT_OK(axcclPipelineStart(end.handle(), Cuda(clique.stream())));
        ASSERT_NO_FATAL_FAILURE(Finish(&end, clique.stream()));
        const bool copies = kind == axcclPipelineAllGather && engine == axcclEngineAuto;
        EXPECT_EQ(end.engine(), copies ? axcclEngineCopy : axcclEngineKernel);
        end.Destroy();
      }
    }
    ASSERT_TRUE(context.Barrier());
  });
}

// Drivers need not take distances between rows that are none of cuMemAllocPitch.
TEST(PipelineEngines, CopyRowsAtAnyDistance) {
  harness::RunOptions options;
  options.environment = {{"SOFTGPU_PITCHES", "1"}};
  const auto body = [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    End end({axcclPipelineAllGather, ncclInt32, 5, 16, 2, axcclDefaultOrder, false, How::kThread, axcclEngineCopy},
            clique, 0);
    for (int start = 0; start < 3; ++start) {
      end.Prepare(start);
      ASSERT_OK(axcclPipelineStart(end.handle(), Cuda(clique.stream())));
      ASSERT_NO_FATAL_FAILURE(Finish(&end, clique.stream()));
    }
    EXPECT_EQ(end.engine(), axcclEngineCopy);
    end.Destroy();
    ASSERT_TRUE(context.Barrier());
  };
  RunRanks(harness::Threads(3), body, options);
}

class PipelineOrder : public testing::TestWithParam<axcclEngine_t> {};
INSTANTIATE_TEST_SUITE_P(Engines, PipelineOrder, testing::Values(axcclEngineKernel, axcclEngineCopy),
                         [](const auto& info) { return info.param == axcclEngineCopy ? "Copy" : "Kernel"; });

// The chunks of the output that come once all ranks have declared as many chunks ready as this one, up to `chunk`.
std::vector<int64_t> Enabled(const End& end, int rank, int ranks, int64_t chunk) {
  const int64_t slices = end.c().slices, slice = chunk % slices, block = chunk / slices;
  switch (end.c().kind) {
    case axcclPipelineAllToAll:
      return {(2 * rank - block + ranks) % ranks * slices + slice};
    case axcclPipelineReduceScatter:
      return block == rank ? std::vector<int64_t>{slice} : std::vector<int64_t>{};
    default:
      std::vector<int64_t> chunks;
      for (int64_t c = slice; c < end.info().out_chunks; c += slices) chunks.push_back(c);
      return chunks;
  }
}

// Every rank declares a chunk ready only after it has used what those before it have brought. If chunks were held back,
// all would wait for ever.
TEST_P(PipelineOrder, ChunkByChunk) {
  RunRanks(harness::Threads(3), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    std::vector<axcclPipelineKind_t> kinds{axcclPipelineAllGather, axcclPipelineAllToAll};
    if (GetParam() == axcclEngineKernel)
      kinds.insert(kinds.end(), {axcclPipelineAllReduce, axcclPipelineReduceScatter});
    for (const axcclPipelineKind_t kind : kinds) {
      ASSERT_TRUE(context.Step("kind %d", kind));
      End end({kind, ncclInt32, 6, 16, 4, axcclDefaultOrder, true, How::kThread, GetParam()}, clique, 0);
      end.Prepare(1);
      ASSERT_OK(axcclPipelineStart(end.handle(), Cuda(clique.stream())));
      for (int64_t p = 0; p < end.info().in_chunks; ++p) {
        const int64_t ready = end.ChunkAt(axcclIn, p);
        end.Produce(ready);
        ASSERT_OK(axcclPipelineReady(end.handle(), ready));
        for (const int64_t chunk : Enabled(end, context.rank(), context.nranks(), ready)) {
          ASSERT_OK(axcclPipelineWait(end.handle(), chunk));
          ASSERT_EQ(end.Check(chunk), "");
        }
      }
      ASSERT_NO_FATAL_FAILURE(Finish(&end, clique.stream()));
      end.Destroy();
    }
    ASSERT_TRUE(context.Barrier());
  });
}

// Rank 2 starts when the others have used each other's chunks.
TEST_P(PipelineOrder, ALateRankDelaysItsOwnChunksOnly) {
  RunRanks(harness::Threads(3), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    End end({axcclPipelineAllGather, ncclInt32, 6, 16, 2, axcclDefaultOrder, false, How::kThread, GetParam()}, clique,
            0);
    ASSERT_TRUE(context.Barrier());
    for (int start = 0; start < 3; ++start) {
      end.Prepare(start);
      if (context.rank() != 2) {
        ASSERT_OK(axcclPipelineStart(end.handle(), Cuda(clique.stream())));
        for (int64_t chunk = 0; chunk < 4; ++chunk) {
          ASSERT_OK(axcclPipelineWait(end.handle(), chunk));
          ASSERT_EQ(end.Check(chunk), "");
        }
        int done = 1;
        ASSERT_OK(axcclPipelineTest(end.handle(), 4, &done));
        EXPECT_EQ(done, 0);
      }
      ASSERT_TRUE(context.Barrier());
      if (context.rank() == 2) {
        ASSERT_OK(axcclPipelineStart(end.handle(), Cuda(clique.stream())));
      }
      ASSERT_NO_FATAL_FAILURE(Finish(&end, clique.stream()));
    }
    end.Destroy();
    ASSERT_TRUE(context.Barrier());
  });
}

// Rank 1 creates its pipeline when rank 0 has enqueued two steps, with nobody to look after them.
TEST_P(PipelineOrder, ARankCreatesLate) {
  RunRanks(harness::Threads(2), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    const Case c{axcclPipelineAllGather, ncclInt32, 6, 16, 2, axcclDefaultOrder, false, How::kThread, GetParam()};
    std::unique_ptr<End> end;
    if (context.rank() == 1) {
      ASSERT_TRUE(context.Barrier());
    }
    end = std::make_unique<End>(c, clique, 0);
    end->Prepare(1);
    for (int start = 0; start < 2; ++start) {
      ASSERT_OK(axcclPipelineStart(end->handle(), Cuda(clique.stream())));
      ASSERT_OK(axcclPipelineFinish(end->handle(), Cuda(clique.stream())));
    }
    if (context.rank() == 0) {
      ASSERT_TRUE(context.Barrier());
    }
    ASSERT_OK(harness::SynchronizeStream(clique.stream()));
    for (int64_t chunk = 0; chunk < end->info().out_chunks; ++chunk) ASSERT_EQ(end->Check(chunk), "");
    end->Destroy();
    ASSERT_TRUE(context.Barrier());
  });
}

// Rank 0 starts, and calls something else on the channel, before rank 1 has created its pipeline.
TEST_P(PipelineOrder, CallsFollowAStartThatWaitsForARank) {
  RunRanks(harness::Threads(2), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context, 2));
    const Case c{axcclPipelineAllGather, ncclInt32, 6, 16, 2, axcclDefaultOrder, false, How::kThread, GetParam()};
    if (context.rank() == 1) {
      ASSERT_TRUE(context.Barrier());
    }
    End end(c, clique, 0);
    if (context.rank() == 1 && GetParam() == axcclEngineCopy) {
      while (end.Refresh().blocks != 0) harness::LookLater();  // until it knows rank 0
    }
    end.Prepare(1);
    Words data(1000, 1);
    for (int start = 0; start < 2; ++start) {
      ASSERT_OK(axcclPipelineStart(end.handle(), Cuda(clique.stream())));
      ASSERT_OK(Sum(&data, &data, clique.comm(), clique.stream(0, 1)));
      ASSERT_OK(axcclPipelineFinish(end.handle(), Cuda(clique.stream())));
    }
    if (context.rank() == 0) {
      ASSERT_TRUE(context.Barrier());
    }
    ASSERT_OK(harness::SynchronizeStream(clique.stream(0, 1)));
    EXPECT_TRUE(data.AreAll(4));
    ASSERT_OK(harness::SynchronizeStream(clique.stream()));
    for (int64_t chunk = 0; chunk < end.info().out_chunks; ++chunk) ASSERT_EQ(end.Check(chunk), "");
    end.Destroy();
    ASSERT_TRUE(context.Barrier());
  });
}

// Rank 2 needs nothing of rank 1, so its end may be gone before rank 1 starts.
TEST_P(PipelineOrder, ARankIsDoneBeforeAnotherStarts) {
  RunRanks(harness::Threads(3), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    const Case c{axcclPipelineBroadcast, ncclInt32, 6, 16, 2, axcclDefaultOrder, false, How::kThread, GetParam()};
    for (int round = 0; round < 30; ++round) {
      ASSERT_TRUE(context.Step("round %d", round));
      End end(c, clique, 0);
      ASSERT_TRUE(context.Barrier());
      end.Prepare(1);
      std::this_thread::sleep_for(std::chrono::milliseconds(round % 16));  // for a look of the watchdog, or for two
      if (context.rank() != 1) {
        ASSERT_OK(axcclPipelineStart(end.handle(), Cuda(clique.stream())));
      }
      if (context.rank() == 2) {
        ASSERT_NO_FATAL_FAILURE(Finish(&end, clique.stream()));
        end.Destroy();
      }
      ASSERT_TRUE(context.Barrier());
      if (context.rank() == 1) {
        ASSERT_OK(axcclPipelineStart(end.handle(), Cuda(clique.stream())));
      }
      if (context.rank() != 2) {
        ASSERT_NO_FATAL_FAILURE(Finish(&end, clique.stream()));
        end.Destroy();
      }
      ASSERT_TRUE(context.Barrier());
    }
  });
}

// ---- ranks that do not start equally often ----

// The memory of a rank's end, which is freed with it. Each rank has a device of its own here, because freeing waits for
// all work on the device.
class Buffers {
 public:
  explicit Buffers(size_t words) : in_(words), out_(words) {}
  char* in() { return reinterpret_cast<char*>(in_.get()); }
  char* out() { return reinterpret_cast<char*>(out_.get()); }

 private:
  Words in_, out_;
};
const Case kUnequal{axcclPipelineAllGather, ncclInt32,      64, 32, 4, axcclDefaultOrder, false,
                    How::kThread,           axcclEngineCopy};

void Start(End* end, axcclStream_t stream) {
  end->Prepare(1);
  ASSERT_OK(axcclPipelineStart(end->handle(), Cuda(stream)));
}

// Rank 0 has begun, so what it will read must stay. Rank 1 may still start.
TEST(PipelineCopies, StayWhileAnotherRankHasBegun) {
  RunRanks(harness::Threads(2), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    End end(kUnequal, clique, 0);
    Words sum(1);
    const auto call = [&] {
      return ncclAllReduce(sum.get(), sum.get(), 1, ncclInt32, ncclSum, clique.comm(), Cuda(clique.stream()));
    };
    ASSERT_TRUE(context.Barrier());
    for (int round = 0; round < 2; ++round) {
      if (context.rank() == 0) {
        ASSERT_NO_FATAL_FAILURE(Start(&end, clique.stream()));
        while (end.Refresh().blocks != 0) harness::LookLater();  // until the ranks have met
        ASSERT_OK(call());  // comes behind the start, so it returns after the start's copies have been enqueued
      }
      ASSERT_TRUE(context.Barrier());
      if (context.rank() == 1) {
        EXPECT_EQ(axcclPipelineDestroy(end.handle()), ncclInvalidUsage);
        ExpectLastErrorHas({"axcclPipelineDestroy", round == 0 ? "rank 0 is in start 1" : "rank 0 is in start 2",
                            "AllGather", "rank 1 has not started it so often"});
        ASSERT_NO_FATAL_FAILURE(Start(&end, clique.stream()));
        ASSERT_OK(call());
      }
      ASSERT_NO_FATAL_FAILURE(Finish(&end, clique.stream()));
    }
    end.Destroy();
    ASSERT_TRUE(context.Barrier());
  });
}

// Rank 1 has gone in order, with its memory. Rank 0 begins a start that will never end.
TEST(PipelineCopies, DoNotReadARankThatHasLeft) {
  RunRanks(harness::Threads(2), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    for (const int starts : {0, 2}) {
      auto buffers = std::make_unique<Buffers>(64 * 32 * 2);
      End end(kUnequal, 2, context.rank(), buffers->in(), buffers->out());
      ASSERT_OK(end.Create(axcclDefaultChannel(clique.comm())));
      ASSERT_TRUE(context.Barrier());
      for (int start = 0; start < starts; ++start) {
        ASSERT_NO_FATAL_FAILURE(Start(&end, clique.stream()));
        ASSERT_NO_FATAL_FAILURE(Finish(&end, clique.stream()));
      }
      ASSERT_TRUE(context.Barrier());
      if (context.rank() == 1 || starts == 0) {
        end.Destroy();
        buffers.reset();
      }
      ASSERT_TRUE(context.Barrier());
      if (context.rank() == 1 || starts == 0) continue;
      end.Prepare(1);
      EXPECT_EQ(axcclPipelineStart(end.handle(), Cuda(clique.stream())), ncclInvalidUsage);
      ExpectLastErrorHas({"axcclPipelineStart", "start 3 of the pipeline", "on rank 0", "rank 1 has destroyed it"});
    }
    ASSERT_NO_FATAL_FAILURE(AbortTogether(context, &clique));
  });
}

// Rank 1 never starts; it gives up its communicator, its pipeline and then its memory.
TEST(PipelineCopies, LetGoBeforeMemoryIsFreed) {
  for (const bool abort : {true, false}) {
    RunRanks(harness::Threads(2), [abort](RankContext& context) {
      Clique clique;
      ASSERT_TRUE(clique.Init(context));
      auto buffers = std::make_unique<Buffers>(64 * 32 * 2);
      End end(kUnequal, 2, context.rank(), buffers->in(), buffers->out());
      ASSERT_OK(end.Create(axcclDefaultChannel(clique.comm())));
      ASSERT_TRUE(context.Barrier());
      if (context.rank() == 0) {
        ASSERT_NO_FATAL_FAILURE(Start(&end, clique.stream()));
        while (end.Refresh().blocks != 0) harness::LookLater();
      }
      ASSERT_TRUE(context.Barrier());
      if (context.rank() == 1) {
        EXPECT_OK(abort ? ncclCommAbort(clique.comm()) : ncclCommDestroy(clique.comm()));
        clique.ForgetComms();
        end.Destroy();
        buffers.reset();
      } else {
        EXPECT_NE(axcclPipelineWait(end.handle(), 7), ncclSuccess);
      }
      ASSERT_TRUE(context.Barrier());
      if (context.rank() == 0) {
        EXPECT_OK(ncclCommAbort(clique.comm()));
        clique.ForgetComms();
        end.Destroy();
      }
      ASSERT_TRUE(context.Barrier());
    });
  }
}

// ---- refused ----

// Each rank's strides need few pieces, but rows of one are not rows of the other.
TEST(PipelineCopies, MoveFewPiecesBetweenStridesOfTwoRanks) {
  RunRanks(harness::Threads(2), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    constexpr int64_t kSizes[] = {70, 70, 70, 2}, kGathered[] = {140, 70, 70, 2};
    constexpr int64_t kStrides[2][4] = {{70 * 144, 144, 2, 1}, {70 * 210 + 10, 210, 3, 1}};
    Words in(70 * kStrides[1][0]), out(140 * kStrides[1][0]);
    axcclPipelineSpec_t spec = AXCCL_PIPELINE_SPEC_INITIALIZER;
    spec.in.datatype = spec.out.datatype = ncclInt32;
    spec.in.num_dims = spec.out.num_dims = 4;
    spec.in.sizes = kSizes;
    spec.out.sizes = kGathered;
    spec.in.strides = spec.out.strides = kStrides[context.rank()];
    spec.in.data = in.get();
    spec.out.data = out.get();
    spec.engine = axcclEngineCopy;
    axcclPipeline_t pipeline = nullptr;
    ASSERT_OK(axcclPipelineCreate(&pipeline, &spec, axcclDefaultChannel(clique.comm())));
    ASSERT_TRUE(context.Barrier());
    // Whichever rank comes first finds out.
    if (axcclPipelineStart(pipeline, Cuda(clique.stream())) == ncclSuccess) {
      EXPECT_NE(AwaitError(clique.comm(), 5000), ncclSuccess);
    }
    ExpectLastErrorHas({"4900 pieces", "strides of rank", "axcclEngineKernel"});
    ASSERT_NO_FATAL_FAILURE(AbortTogether(context, &clique));
    EXPECT_OK(axcclPipelineDestroy(pipeline));
  });
}

TEST(PipelineCopies, AreRefused) {
  RunRanks(harness::OneThread(1), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    const axcclChannel_t channel = axcclDefaultChannel(clique.comm());
    for (const axcclPipelineKind_t kind : {axcclPipelineAllReduce, axcclPipelineReduceScatter}) {
      End end({kind, ncclInt32, 4, 8, 2, axcclDefaultOrder, false, How::kThread, axcclEngineCopy}, 1, 0);
      EXPECT_EQ(end.Create(channel), ncclInvalidArgument);
      ExpectLastErrorHas({"axcclPipelineCreate", "axcclEngineCopy", "do not reduce", "axcclEngineKernel"});
    }
    // Elements one by one, in three dimensions.
    constexpr int64_t kSizes[] = {3, 40, 40, 40}, kStrides[] = {1, 6600, 164, 4};
    Words in(270000), out(200000);
    axcclPipelineSpec_t spec = AXCCL_PIPELINE_SPEC_INITIALIZER;
    spec.in.datatype = spec.out.datatype = ncclInt32;
    spec.in.num_dims = spec.out.num_dims = 4;
    spec.in.sizes = spec.out.sizes = kSizes;
    spec.in.strides = kStrides;
    spec.in.data = in.get();
    spec.out.data = out.get();
    spec.slice_dim = 3;
    spec.engine = axcclEngineCopy;
    axcclPipeline_t pipeline = nullptr;
    EXPECT_EQ(axcclPipelineCreate(&pipeline, &spec, channel), ncclInvalidArgument);
    ExpectLastErrorHas({"axcclPipelineCreate", "pieces", "strides of rank 0", "axcclEngineKernel"});
    EXPECT_EQ(pipeline, nullptr);
    End end({axcclPipelineAllGather, ncclInt32, 4, 8, 2, axcclDefaultOrder, false, How::kThread, axcclEngineCopy},
            clique, 0);
    Words data(100, 1);
    Graph graph;
    ASSERT_NO_FATAL_FAILURE(graph.Capture(clique.stream(), [&] {
      EXPECT_EQ(axcclPipelineStart(end.handle(), Cuda(clique.stream())), ncclInvalidUsage);
      ExpectLastErrorHas({"axcclPipelineStart", "captured", "copy engines", "axcclEngineKernel"});
      ASSERT_OK(Sum(&data, &data, clique.comm(), clique.stream()));
    }));
    end.Prepare(0);
    ASSERT_OK(axcclPipelineStart(end.handle(), Cuda(clique.stream())));
    ASSERT_NO_FATAL_FAILURE(Finish(&end, clique.stream()));
    end.Destroy();
  });
}

}  // namespace
}  // namespace axccl::tests
