// How pipelines of GPU ranks end early, and what is refused.
#include <gtest/gtest.h>

#include <initializer_list>
#include <string>
#include <thread>
#include <vector>

#include "axccl/device.h"
#include "tests/cuda/pipeline_end.h"
#include "tests/cuda/words.h"
#include "tests/harness/timing.h"

namespace axccl::tests {
namespace {

using harness::Clique;
using harness::Cuda;
using harness::ExpectLastErrorHas;
using harness::RankContext;
using harness::RunOptions;
using harness::RunRanks;

class PipelineFailures : public testing::TestWithParam<axcclEngine_t> {
 protected:
  axcclEngine_t engine() const { return GetParam(); }
  // All-reduce where the engine has it.
  axcclPipelineKind_t AnyKind() const {
    return engine() == axcclEngineCopy ? axcclPipelineAllToAll : axcclPipelineAllReduce;
  }
  std::vector<axcclPipelineKind_t> Kinds() const {
    if (engine() == axcclEngineCopy) return {axcclPipelineAllGather, axcclPipelineAllToAll};
    return {axcclPipelineAllGather, axcclPipelineReduceScatter, axcclPipelineAllReduce, axcclPipelineAllToAll};
  }
  // In blocks of 4 x 8.
  Case CaseOf(axcclPipelineKind_t kind, int64_t slices, bool produced = false) const {
    return {kind, ncclInt32, 4, 8, slices, axcclDefaultOrder, produced, How::kThread, engine()};
  }
  // Two ranks: threads, and processes, between which there are no copy engines.
  void RunBoth(const harness::Body& body, RunOptions options = {}) const {
    RunRanks(harness::Threads(2), body, options);
    if (engine() == axcclEngineCopy) return;
    options.environment.emplace_back("AXCCL_TEST_GPU_MEMORY", "device");
    RunRanks(harness::Processes(2), body, options);
  }
};

INSTANTIATE_TEST_SUITE_P(Engines, PipelineFailures, testing::Values(axcclEngineKernel, axcclEngineCopy),
                         [](const auto& info) { return info.param == axcclEngineCopy ? "Copy" : "Kernel"; });

void Declare(End* end, int64_t chunk) {
  end->Produce(chunk);
  EXPECT_OK(axcclPipelineReady(end->handle(), chunk));
}

// Every word of both sides is 1 or 2; of the output, 1 only where the chunk is there.
void ExpectWordsSet(const End& end) {
  for (const axcclSide_t side : {axcclIn, axcclOut}) {
    const int64_t chunks = side == axcclIn ? end.info().in_chunks : end.info().out_chunks;
    for (int64_t chunk = 0; chunk < chunks; ++chunk) {
      const uint32_t word = axcclDeviceAwait(end.word(side, chunk));
      EXPECT_TRUE(word == 1 || word == 2) << word;
      if (side == axcclOut && word == 1) {
        EXPECT_EQ(end.Check(chunk), "");
      }
    }
  }
}

// Rank 1 declares nothing ready. Rank 0 waits for its chunks in every way there is, and then gives up.
TEST_P(PipelineFailures, AbortWhileAChunkIsAwaited) {
  RunBoth([this](RankContext& context) {
    for (const axcclPipelineKind_t kind : Kinds()) {
      ASSERT_TRUE(context.Step("kind %d", kind));
      Clique clique;
      ASSERT_TRUE(clique.Init(context, 2));
      const Case c = CaseOf(kind, 2, true);
      End end(c, clique, 0);
      end.Prepare(0);
      ASSERT_OK(axcclPipelineStart(end.handle(), Cuda(clique.stream())));
      ASSERT_OK(harness::SynchronizeStream(clique.stream()));
      // The last block of rank 0 comes from rank 1. Rank 1 needs itself for its own, which comes last by rank.
      const int64_t last = end.info().out_chunks - 1;
      ASSERT_OK(axcclPipelineStreamWait(end.handle(), last, Cuda(clique.stream(0, 1))));
      ASSERT_OK(axcclPipelineFinish(end.handle(), Cuda(clique.stream())));
      if (context.rank() == 0) {
        for (int64_t chunk = 0; chunk < end.info().in_chunks; ++chunk) Declare(&end, chunk);
      }
      // What rank 1 gives never comes.
      std::thread waiter([&] { EXPECT_NE(axcclPipelineWait(end.handle(), last), ncclSuccess); });
      std::thread reader([&] { EXPECT_EQ(axcclDeviceAwait(end.word(axcclOut, last)), 2u); });
      ASSERT_TRUE(context.Barrier());
      if (context.rank() == 0) {
        ASSERT_OK(ncclCommAbort(clique.comm()));
      } else {
        EXPECT_EQ(AwaitError(clique.comm(), 2000), ncclRemoteError) << ncclGetLastError(nullptr);
      }
      waiter.join();
      reader.join();
      ExpectWordsSet(end);
      ASSERT_OK(harness::SynchronizeStream(clique.stream(0, 0)));
      ASSERT_OK(harness::SynchronizeStream(clique.stream(0, 1)));
      end.Destroy();
      ASSERT_TRUE(context.Barrier());
      if (context.rank() == 1) {
        ASSERT_OK(ncclCommAbort(clique.comm()));
      }
      clique.ForgetComms();
      ASSERT_TRUE(context.Barrier());
    }
  });
}

void ExpectFailure(RankContext& context, Clique* clique, End* end, ncclResult_t expected,
                   std::initializer_list<const char*> words) {
  EXPECT_EQ(AwaitError(clique->comm(), 3000), expected) << ncclGetLastError(nullptr);
  ExpectLastErrorHas(words);
  ExpectWordsSet(*end);
  for (int64_t chunk = 0; chunk < end->info().out_chunks; ++chunk)
    EXPECT_EQ(axcclPipelineWait(end->handle(), chunk),
              axcclDeviceLook(end->word(axcclOut, chunk)) == 1 ? ncclSuccess : expected);
  ASSERT_OK(harness::SynchronizeStream(clique->stream()));
  end->Destroy();
  ASSERT_NO_FATAL_FAILURE(AbortTogether(context, clique));
}

// Both ranks wait for a chunk of rank 1's input, and only rank 1 knows.
TEST_P(PipelineFailures, AChunkThatIsNeverReady) {
  const auto body = [this](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    const Case c = CaseOf(AnyKind(), 2, true);
    End end(c, clique, 0);
    end.Prepare(0);
    ASSERT_OK(axcclPipelineStart(end.handle(), Cuda(clique.stream())));
    for (int64_t chunk = 0; chunk < end.info().in_chunks; ++chunk) {
      if (context.rank() == 1 && chunk == end.info().in_chunks - 1) continue;
      Declare(&end, chunk);
    }
    ASSERT_NO_FATAL_FAILURE(
        ExpectFailure(context, &clique, &end, ncclTimeout, {"AXCCL_TIMEOUT", "a pipeline of axcclAll"}));
  };
  RunBoth(body, Within(Deadline()));
}

TEST_P(PipelineFailures, AChunkOfItsOwnThatIsNeverReady) {
  const auto body = [this](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    const Case c = CaseOf(axcclPipelineAllGather, 2, true);
    End end(c, clique, 0);
    end.Prepare(0);
    ASSERT_OK(axcclPipelineStart(end.handle(), Cuda(clique.stream())));
    Declare(&end, 0);
    ASSERT_OK(axcclPipelineWait(end.handle(), 0));
    ASSERT_NO_FATAL_FAILURE(ExpectFailure(
        context, &clique, &end, ncclTimeout,
        {"rank 0 waited 0.2 s for chunk 1 of its input to be declared ready, in a pipeline of axcclAllGather",
         "1 of 2 chunks of the output are there"}));
  };
  RunRanks(harness::Processes(1), body, Within("0.2"));
}

TEST_P(PipelineFailures, ARankThatNeverStarts) {
  const auto body = [this](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    const Case c = CaseOf(AnyKind(), 2);
    End end(c, clique, 0);
    if (context.rank() == 0) {
      end.Prepare(0);
      ASSERT_OK(axcclPipelineStart(end.handle(), Cuda(clique.stream())));
      ASSERT_NO_FATAL_FAILURE(ExpectFailure(context, &clique, &end, ncclTimeout, {"AXCCL_TIMEOUT", "rank 1"}));
      return;
    }
    EXPECT_EQ(AwaitError(clique.comm(), 3000), ncclTimeout) << ncclGetLastError(nullptr);
    EXPECT_EQ(axcclPipelineStart(end.handle(), Cuda(clique.stream())), ncclTimeout);
    end.Destroy();
    ASSERT_NO_FATAL_FAILURE(AbortTogether(context, &clique));
  };
  RunBoth(body, Within(Deadline()));
}

// Ranks cut the same call into different slices.
TEST_P(PipelineFailures, DifferentPipelines) {
  RunBoth([this](RankContext& context) {
    for (const axcclPipelineKind_t kind : Kinds()) {
      Clique clique;
      ASSERT_TRUE(clique.Init(context));
      const int slices = context.rank() == 0 ? 2 : 4;
      const Case c = CaseOf(kind, slices);
      End end(c, clique, 0);
      end.Prepare(0);
      const ncclResult_t started = axcclPipelineStart(end.handle(), Cuda(clique.stream()));
      EXPECT_TRUE(started == ncclSuccess || started == ncclInvalidUsage) << started;
      if (started == ncclSuccess) {
        ASSERT_NO_FATAL_FAILURE(
            ExpectFailure(context, &clique, &end, ncclInvalidUsage, {"mismatch", "a pipeline of", "slices"}));
      } else {
        end.Destroy();
        ASSERT_NO_FATAL_FAILURE(AbortTogether(context, &clique));
      }
    }
  });
}

// Pairs of a permute differ: each rank sends to itself, or to the next one.
TEST_P(PipelineFailures, DifferentPairs) {
  RunRanks(harness::Threads(3), [this](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    constexpr int64_t kSize = 8;
    const int64_t to_next[] = {0, 1, 1, 2, 2, 0}, to_self[] = {0, 0, 1, 1, 2, 2};
    Words in(kSize), out(kSize);
    axcclPipelineSpec_t spec = AXCCL_PIPELINE_SPEC_INITIALIZER;
    spec.kind = axcclPipelinePermute;
    spec.pairs = context.rank() == 2 ? to_self : to_next;
    spec.num_pairs = 3;
    spec.in.datatype = spec.out.datatype = ncclInt32;
    spec.in.num_dims = spec.out.num_dims = 1;
    spec.in.sizes = spec.out.sizes = &kSize;
    spec.in.data = in.get();
    spec.out.data = out.get();
    spec.engine = engine();
    axcclPipeline_t pipeline = nullptr;
    ASSERT_OK(axcclPipelineCreate(&pipeline, &spec, axcclDefaultChannel(clique.comm())));
    ASSERT_TRUE(context.Barrier());
    const ncclResult_t started = axcclPipelineStart(pipeline, Cuda(clique.stream()));
    EXPECT_EQ(started, ncclInvalidUsage);
    ExpectLastErrorHas({"axcclPipelineStart", "pipeline 0 on the default channel", "pairs", "same specs"});
    EXPECT_EQ(AwaitError(clique.comm(), 3000), ncclInvalidUsage);
    ASSERT_TRUE(context.Barrier());
    ASSERT_OK(axcclPipelineDestroy(pipeline));
    ASSERT_OK(ncclCommAbort(clique.comm()));
    clique.ForgetComms();
    ASSERT_TRUE(context.Barrier());
  });
}

// Two pipelines that differ, in another order on each rank.
TEST_P(PipelineFailures, CreatedInDifferentOrders) {
  RunRanks(harness::Threads(2), [this](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    const Case a = CaseOf(axcclPipelineAllGather, 2);
    const Case b = CaseOf(axcclPipelineAllToAll, 2);
    End first(context.rank() == 0 ? a : b, clique, 0), second(context.rank() == 0 ? b : a, clique, 0);
    ASSERT_TRUE(context.Barrier());
    EXPECT_EQ(axcclPipelineStart(first.handle(), Cuda(clique.stream())), ncclInvalidUsage);
    ExpectLastErrorHas({"pipeline 0 on the default channel", "axcclAllGather", "axcclAllToAll", "same order"});
    first.Destroy();
    second.Destroy();
    ASSERT_NO_FATAL_FAILURE(AbortTogether(context, &clique));
  });
}

// Rank 1 has not even created its pipeline when rank 0 starts and finishes its own.
TEST_P(PipelineFailures, ARankThatNeverCreates) {
  const auto body = [this](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    const Case c = CaseOf(AnyKind(), 2);
    if (context.rank() == 0) {
      End end(c, clique, 0);
      end.Prepare(0);
      ASSERT_OK(axcclPipelineStart(end.handle(), Cuda(clique.stream())));
      ASSERT_OK(axcclPipelineFinish(end.handle(), Cuda(clique.stream())));
      ASSERT_NO_FATAL_FAILURE(ExpectFailure(context, &clique, &end, ncclTimeout, {"AXCCL_TIMEOUT", "rank 1"}));
      return;
    }
    EXPECT_EQ(AwaitError(clique.comm(), 3000), ncclTimeout) << ncclGetLastError(nullptr);
    ASSERT_NO_FATAL_FAILURE(AbortTogether(context, &clique));
  };
  RunRanks(harness::Threads(2), body, Within(Deadline()));
}

// Two steps are on their way when rank 0 gives up. Rank 1 is behind by as many.
TEST_P(PipelineFailures, AbortOfSeveralSteps) {
  RunBoth([this](RankContext& context) {
    for (const int behind : {0, 1}) {
      ASSERT_TRUE(context.Step("behind %d", behind));
      Clique clique;
      ASSERT_TRUE(clique.Init(context));
      const Case c = CaseOf(AnyKind(), 2, true);
      End end(c, clique, 0);
      end.Prepare(0);
      for (int start = 0; start < 3 - behind * context.rank(); ++start) {
        ASSERT_OK(axcclPipelineStart(end.handle(), Cuda(clique.stream())));
        ASSERT_OK(axcclPipelineFinish(end.handle(), Cuda(clique.stream())));
      }
      ASSERT_TRUE(context.Barrier());
      if (context.rank() == 0) {
        ASSERT_OK(ncclCommAbort(clique.comm()));
      } else {
        EXPECT_EQ(AwaitError(clique.comm(), 2000), ncclRemoteError) << ncclGetLastError(nullptr);
      }
      ASSERT_OK(harness::SynchronizeStream(clique.stream()));
      ExpectWordsSet(end);
      EXPECT_EQ(end.engine(), engine());  // without the communicator, too
      end.Destroy();
      ASSERT_TRUE(context.Barrier());
      if (context.rank() == 1) {
        ASSERT_OK(ncclCommAbort(clique.comm()));
      }
      clique.ForgetComms();
      ASSERT_TRUE(context.Barrier());
    }
  });
}

// Rank 0 waits in the first of two steps.
TEST_P(PipelineFailures, TheFirstOfTwoStepsIsTooLate) {
  const auto body = [this](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    const Case c = CaseOf(AnyKind(), 2);
    End end(c, clique, 0);
    for (int start = 0; start < 2 && context.rank() == 0; ++start) {
      end.Prepare(start);
      ASSERT_OK(axcclPipelineStart(end.handle(), Cuda(clique.stream())));
      ASSERT_OK(axcclPipelineFinish(end.handle(), Cuda(clique.stream())));
    }
    EXPECT_EQ(AwaitError(clique.comm(), 3000), ncclTimeout) << ncclGetLastError(nullptr);
    ASSERT_OK(harness::SynchronizeStream(clique.stream()));
    end.Destroy();
    ASSERT_NO_FATAL_FAILURE(AbortTogether(context, &clique));
  };
  RunBoth(body, Within(Deadline()));
}

// What waits behind another pipeline is destroyed, and that other one fails.
TEST_P(PipelineFailures, DestroyWaitsForAStreamOfAnotherPipeline) {
  const auto body = [this](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context, 2));
    const Case c = CaseOf(AnyKind(), 2);
    End first(c, clique, 0), second(c, clique, 0);
    first.Prepare(0);
    ASSERT_OK(axcclPipelineStart(first.handle(), Cuda(clique.stream())));
    ASSERT_OK(axcclPipelineFinish(first.handle(), Cuda(clique.stream())));
    if (context.rank() == 0) {
      const int64_t last = second.info().out_chunks - 1;
      ASSERT_OK(axcclPipelineStart(second.handle(), Cuda(clique.stream())));
      ASSERT_OK(axcclPipelineStreamWait(second.handle(), last, Cuda(clique.stream(0, 1))));
      ASSERT_OK(axcclPipelineStreamWait(first.handle(), 0, Cuda(clique.stream(0, 1))));
    }
    first.Destroy();
    EXPECT_EQ(AwaitError(clique.comm(), 3000), ncclTimeout) << ncclGetLastError(nullptr);
    second.Destroy();
    ASSERT_NO_FATAL_FAILURE(AbortTogether(context, &clique));
  };
  RunBoth(body, Within(Deadline()));
}

// ---- refused ----

void ExpectRefused(RankContext& context) {
  Clique clique;
  ASSERT_TRUE(clique.Init(context));
  const Case c{axcclPipelineAllGather, ncclInt32, 4, 8, 2};
  End end(c, context.nranks(), context.rank());
  EXPECT_EQ(end.Create(axcclDefaultChannel(clique.comm())), ncclInvalidUsage);
  ExpectLastErrorHas({"axcclPipelineCreate", "NCCL_P2P_DISABLE", "axcclAllGather"});
  Words data(3000, 1);  // the communicator still works
  ASSERT_OK(Sum(&data, &data, clique.comm(), clique.stream()));
  ASSERT_TRUE(clique.Synchronize());
  EXPECT_TRUE(data.AreAll(2));
  ASSERT_TRUE(context.Barrier());
}

TEST(Refused, RanksThatMeetInHostMemory) {
  RunOptions options;
  options.environment = {{"NCCL_P2P_DISABLE", "1"}};
  for (const harness::Layout& layout : {harness::Threads(2), harness::Processes(2)})
    RunRanks(layout, ExpectRefused, options);
}

}  // namespace
}  // namespace axccl::tests
