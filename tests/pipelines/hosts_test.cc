// Random pipelines of ranks on several hosts: chunks travel in messages.
#include <gtest/gtest.h>

#include "tests/harness/test_hosts.h"
#include "tests/pipelines/random_pipelines.h"

namespace axccl::tests {
namespace {

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

INSTANTIATE_TEST_SUITE_P(Layouts, HostsPipelineTest,
                         testing::Values(OnHosts{2, {2, 1, 1}}, OnHosts{2, {2, 2, 1}}, OnHosts{2, {4, 1, 1}},
                                         OnHosts{3, {3, 1, 1}}),
                         [](const auto& info) {
                           return std::to_string(info.param.hosts) + "hosts" + info.param.layout.Text();
                         });

}  // namespace
}  // namespace axccl::tests
