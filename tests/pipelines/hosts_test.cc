// Pipelines of ranks on several hosts: chunks travel in messages.
#include <gtest/gtest.h>

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

INSTANTIATE_TEST_SUITE_P(Layouts, HostsPipelineTest,
                         testing::Values(OnHosts{2, {2, 1, 1}}, OnHosts{2, {2, 2, 1}}, OnHosts{2, {4, 1, 1}},
                                         OnHosts{3, {3, 1, 1}}),
                         [](const auto& info) {
                           return std::to_string(info.param.hosts) + "hosts" + info.param.layout.Text();
                         });

}  // namespace
}  // namespace axccl::tests
