// Pipelines of ranks on several hosts: chunks travel in messages.
#include <gtest/gtest.h>

#include <string>
#include <thread>

#include "tests/harness/test_hosts.h"
#include "tests/harness/timing.h"
#include "tests/pipelines/chunk_order.h"
#include "tests/pipelines/random_pipelines.h"

namespace axccl::tests {
namespace {

using harness::Clique;
using harness::Layout;
using harness::RankContext;

struct OnHosts {
  int hosts;
  Layout layout;
};

class HostsPipelineTest : public testing::TestWithParam<OnHosts> {};

TEST_P(HostsPipelineTest, EveryChunkHasItsValueWhenItIsThere) {
  const auto hosts = harness::TestHosts::Create(GetParam().hosts);
  ASSERT_NE(hosts, nullptr);
  const int cases = harness::FullTests() ? 200 : 30;
  harness::RunOptions options;
  options.deadline = std::chrono::seconds(60);
  options.hosts = hosts.get();
  harness::RunRanks(
      GetParam().layout, [cases](RankContext& context) { RunRandomPipelines(context, cases); }, options);
}

TEST_P(HostsPipelineTest, AChunkNeedsItsOwnInputsOnly) {
  const auto hosts = harness::TestHosts::Create(GetParam().hosts);
  ASSERT_NE(hosts, nullptr);
  harness::RunOptions options;
  options.deadline = std::chrono::seconds(60);
  options.hosts = hosts.get();
  harness::RunRanks(
      GetParam().layout,
      [](RankContext& context) {
        const int64_t columns[] = {100};
        RunKindsInAnyOrder(context, columns, {harness::Memory::kMalloc});
      },
      options);
}

// Each rank waits for its input, and learns late that the next one waits, too. That is no circle of ranks that wait for
// each other, however long it lasts.
TEST_P(HostsPipelineTest, APermuteThatStandsStillForLong) {
  const auto hosts = harness::TestHosts::Create(GetParam().hosts);
  ASSERT_NE(hosts, nullptr);
  harness::RunOptions options;
  options.hosts = hosts.get();
  harness::RunRanks(
      GetParam().layout,
      [](RankContext& context) {
        Clique clique;
        ASSERT_TRUE(clique.Init(context));
        IntCase c = CaseOf(axcclPipelinePermute, context.nranks(), 2);
        c.columns = 100, c.produced = true;
        IntPipeline pipeline(c, context.rank(), axcclDefaultChannel(clique.comm()));
        for (int step = 0; step < 2; ++step) {
          pipeline.Prepare(step);
          ASSERT_OK(axcclPipelineStart(pipeline.handle(), harness::Cuda(clique.stream())));
          for (int64_t chunk = 0; chunk < pipeline.in_chunks(); ++chunk) {
            ASSERT_OK(pipeline.Declare(chunk, step));
            ASSERT_OK(axcclPipelineWait(pipeline.handle(), chunk));
            // Longer than after which ranks look whether they wait for each other.
            int done = 0;
            for (const uint64_t until = harness::NowNs() + 200'000'000; harness::NowNs() < until;)
              ASSERT_OK(axcclPipelineTest(pipeline.handle(), chunk, &done));
          }
          ASSERT_OK(axcclPipelineFinish(pipeline.handle(), harness::Cuda(clique.stream())));
          ASSERT_TRUE(clique.Synchronize());
          ASSERT_EQ(pipeline.Check(step), "");
        }
      },
      options);
}

// Every rank learns of it, although the messages of a permute are of two ranks only.
TEST_P(HostsPipelineTest, PairsDifferOnTheLastRank) {
  const auto hosts = harness::TestHosts::Create(GetParam().hosts);
  ASSERT_NE(hosts, nullptr);
  harness::RunOptions options;
  options.hosts = hosts.get();
  harness::RunRanks(
      GetParam().layout,
      [](RankContext& context) {
        Clique clique;
        ASSERT_TRUE(clique.Init(context));
        const int n = context.nranks();
        IntCase c = CaseOf(axcclPipelinePermute, n, 2);
        if (context.rank() == n - 1) c.pairs = ShiftPairs(n, 0);
        IntPipeline pipeline(c, context.rank(), axcclDefaultChannel(clique.comm()));
        ncclResult_t ended = ncclSuccess;
        while (ended == ncclSuccess) {
          ASSERT_TRUE(context.Step("another start"));
          pipeline.Prepare(0);
          ASSERT_OK(axcclPipelineStart(pipeline.handle(), harness::Cuda(clique.stream())));
          ASSERT_OK(axcclPipelineFinish(pipeline.handle(), harness::Cuda(clique.stream())));
          ended = axcclStreamSynchronize(clique.stream());
        }
        EXPECT_EQ(ended, ncclInvalidUsage);
        harness::ExpectLastErrorHas(
            {"mismatch: pipeline 0 on the default channel is a pipeline of axcclCollectivePermute", "other pairs",
             "same order"});
        for (int chunk = 0; chunk < 2; ++chunk) EXPECT_EQ(axcclDeviceAwait(&pipeline.Words(axcclOut)[chunk]), 2u);
        ASSERT_TRUE(context.Barrier());
        EXPECT_OK(ncclCommAbort(clique.comm()));
        clique.ForgetComms();
      },
      options);
}

// ---- ranks that go ----

// Every rank has seen the first chunks and waits for the last ones when the last rank goes.
void LoseTheLast(RankContext& context, axcclPipelineKind_t kind, bool dies) {
  Clique clique;
  ASSERT_TRUE(clique.Init(context));
  const int n = context.nranks();
  const cudaStream_t stream = harness::Cuda(clique.stream());
  IntCase c = CaseOf(kind, n, 3);
  c.columns = 100, c.produced = true;
  IntPipeline pipeline(c, context.rank(), axcclDefaultChannel(clique.comm()));
  const uint32_t* const words = pipeline.Words(axcclOut);
  ASSERT_OK(pipeline.Step(0, stream));
  ASSERT_TRUE(clique.Synchronize());
  pipeline.Prepare(1);
  ASSERT_OK(axcclPipelineStart(pipeline.handle(), stream));
  for (int64_t chunk = 0; chunk < pipeline.in_chunks(); ++chunk) {
    if (chunk % c.slices == c.slices - 1) continue;
    ASSERT_OK(pipeline.Declare(chunk, 1));
  }
  for (int64_t chunk = 0; chunk < pipeline.out_chunks(); chunk += c.slices)
    ASSERT_OK(axcclPipelineWait(pipeline.handle(), chunk));
  std::thread poller([&] {
    for (int64_t chunk = 0; chunk < pipeline.out_chunks(); ++chunk) {
      const uint32_t word = axcclDeviceAwait(&words[chunk]);
      if (chunk % c.slices == c.slices - 1) {
        EXPECT_EQ(word, 2u);
      } else if (word == 1) {
        EXPECT_EQ(pipeline.CheckChunk(chunk, 1), "");
      }
    }
  });
  EXPECT_TRUE(context.Barrier());
  const bool goes = context.rank() == n - 1;
  if (goes && dies) context.Die();
  if (goes) {
    EXPECT_OK(ncclCommAbort(clique.comm()));
  }
  poller.join();
  if (!goes) {
    EXPECT_OK(axcclPipelineFinish(pipeline.handle(), stream));
    EXPECT_EQ(axcclStreamSynchronize(clique.stream()), ncclRemoteError);
    EXPECT_TRUE(context.Barrier(1, n - 1));
    EXPECT_OK(ncclCommAbort(clique.comm()));
  }
  clique.ForgetComms();
}

TEST_P(HostsPipelineTest, EveryWordEndsWhenARankGoes) {
  const auto hosts = harness::TestHosts::Create(GetParam().hosts);
  ASSERT_NE(hosts, nullptr);
  harness::RunOptions options;
  options.hosts = hosts.get();
  for (const auto kind : {axcclPipelineAllGather, axcclPipelineAllReduce, axcclPipelinePermute}) {
    for (const bool dies : {false, true}) {
      if (dies && GetParam().layout.threads > 1) continue;
      SCOPED_TRACE(std::string(KindName(kind)) + (dies ? ", dies" : ", aborts"));
      harness::RunRanks(
          GetParam().layout, [&](RankContext& context) { LoseTheLast(context, kind, dies); }, options);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, HostsPipelineTest,
                         testing::Values(OnHosts{2, {2, 1, 1}}, OnHosts{2, {2, 2, 1}}, OnHosts{2, {4, 1, 1}},
                                         OnHosts{3, {3, 1, 1}}),
                         [](const auto& info) {
                           return std::to_string(info.param.hosts) + "hosts" + info.param.layout.Text();
                         });

}  // namespace
}  // namespace axccl::tests
