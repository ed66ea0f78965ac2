// Ranks that start pipelines in another order relative to each other, or to calls on the same channel, are told so.
#include <gtest/gtest.h>

#include "tests/harness/channels.h"
#include "tests/harness/client.h"
#include "tests/pipelines/int_pipeline.h"

namespace axccl::tests {
namespace {

using harness::Clique;
using harness::Cuda;
using harness::Layout;
using harness::Processes;
using harness::RankContext;
using harness::RunRanks;
using harness::Threads;

constexpr int kRanks = 2;

// An all-gather of a few integers.
class SmallPipeline : public IntPipeline {
 public:
  SmallPipeline(axcclChannel_t channel, int rank)
      : IntPipeline(CaseOf(axcclPipelineAllGather, kRanks, 2), rank, channel) {}
};

class OrderTest : public testing::TestWithParam<Layout> {};

TEST_P(OrderTest, APipelineBeforeACallOnOneRankAndBehindItOnAnother) {
  RunRanks(GetParam(), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context, 2));
    SmallPipeline pipeline(axcclDefaultChannel(clique.comm()), context.rank());
    ASSERT_OK(pipeline.Step(0, Cuda(clique.stream())));
    ASSERT_TRUE(clique.Synchronize());
    ASSERT_EQ(pipeline.Check(0), "");
    int value = 1;
    const auto call = [&] {
      EXPECT_OK(ncclAllReduce(&value, &value, 1, ncclInt32, ncclSum, clique.comm(), Cuda(clique.stream(0, 1))));
    };
    if (context.rank() == 0) call();
    ASSERT_OK(pipeline.Step(1, Cuda(clique.stream())));
    if (context.rank() == 1) call();
    clique.ExpectMismatch(
        {"mismatch", "a pipeline of axcclAllGather", "ncclAllReduce", "in 2 slices along dimension 0"});
  });
}

TEST_P(OrderTest, TwoPipelinesInOppositeOrder) {
  RunRanks(GetParam(), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context, 2));
    SmallPipeline a(axcclDefaultChannel(clique.comm()), context.rank());
    SmallPipeline b(axcclDefaultChannel(clique.comm()), context.rank());
    ASSERT_OK((context.rank() == 0 ? a : b).Step(0, Cuda(clique.stream())));
    ASSERT_OK((context.rank() == 0 ? b : a).Step(0, Cuda(clique.stream(0, 1))));
    clique.ExpectMismatch({"mismatch", "called pipeline 0 on the default channel, a pipeline of axcclAllGather",
                           "called pipeline 1 on the default channel, a pipeline", "waits for rank", "same order"});
  });
}

TEST_P(OrderTest, OnChannelsOfTheirOwnTheyDoNotBlockEachOther) {
  RunRanks(GetParam(), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context, 2));
    axcclChannel_t channels[2] = {};
    for (int i = 0; i < 2; ++i) ASSERT_OK(axcclChannelCreate(&channels[i], clique.comm(), nullptr, i + 1, 0));
    {
      SmallPipeline a(channels[0], context.rank()), b(channels[1], context.rank());
      for (int step = 0; step < 3; ++step) {
        ASSERT_OK((context.rank() == 0 ? a : b).Step(step, Cuda(clique.stream())));
        ASSERT_OK((context.rank() == 0 ? b : a).Step(step, Cuda(clique.stream(0, 1))));
        ASSERT_TRUE(clique.Synchronize());
        ASSERT_EQ(a.Check(step), "");
        ASSERT_EQ(b.Check(step), "");
      }
      // A pipeline keeps its channel.
      for (axcclChannel_t channel : channels) EXPECT_OK(axcclChannelDestroy(channel));
      ASSERT_OK(a.Step(3, Cuda(clique.stream())));
      ASSERT_TRUE(clique.Synchronize());
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Layouts, OrderTest, testing::Values(Processes(kRanks), Threads(kRanks)),
                         [](const auto& info) { return info.param.Text(); });

}  // namespace
}  // namespace axccl::tests
