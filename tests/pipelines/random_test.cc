// Random pipelines of every kind against an independent oracle, element by element, chunk by chunk.
#include <gtest/gtest.h>

#include "tests/pipelines/random_pipelines.h"

namespace axccl::tests {
namespace {

using harness::Layout;
using harness::OneThread;
using harness::Processes;
using harness::RankContext;
using harness::Threads;

class RandomPipelineTest : public testing::TestWithParam<Layout> {};

TEST_P(RandomPipelineTest, EveryChunkHasItsValueWhenItIsThere) {
  const int cases = (harness::FullTests()       ? 400
                     : harness::TimeScale() > 1 ? 20
                                                : 60) /
                    (GetParam().nranks() > 16 ? 3 : 1);
  harness::RunOptions options;
  options.deadline = std::chrono::seconds(60);
  harness::RunRanks(
      GetParam(), [cases](RankContext& context) { RunRandomPipelines(context, cases); }, options);
}

INSTANTIATE_TEST_SUITE_P(Layouts, RandomPipelineTest,
                         testing::Values(Processes(1), Processes(2), Processes(3), Threads(2), Threads(4), OneThread(3),
                                         Layout{2, 2, 2}, Processes(8), Layout{3, 2, 3}),
                         [](const auto& info) { return info.param.Text(); });

}  // namespace
}  // namespace axccl::tests
