// Ranks that start pipelines in another order relative to each other, or to calls on the same channel, are told so.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/harness/channels.h"
#include "tests/harness/client.h"

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
constexpr int64_t kRows = 4;

// An all-gather of a few integers.
class SmallPipeline {
 public:
  SmallPipeline(axcclChannel_t channel, int rank) {
    in_.assign(kRows, rank + 1);
    out_.assign(kRows * kRanks, -1);
    axcclPipelineSpec_t spec = AXCCL_PIPELINE_SPEC_INITIALIZER;
    spec.in.data = in_.data();
    spec.out.data = out_.data();
    spec.in.sizes = &in_size_;
    spec.out.sizes = &out_size_;
    spec.in.num_dims = spec.out.num_dims = 1;
    spec.in.datatype = spec.out.datatype = ncclInt32;
    spec.slices = 2;
    EXPECT_OK(axcclPipelineCreate(&handle_, &spec, channel));
  }
  ~SmallPipeline() { EXPECT_OK(axcclPipelineDestroy(handle_)); }
  SmallPipeline(const SmallPipeline&) = delete;

  void Step(cudaStream_t stream) {
    EXPECT_OK(axcclPipelineStart(handle_, stream));
    EXPECT_OK(axcclPipelineFinish(handle_, stream));
  }
  bool Right() const {
    for (int64_t i = 0; i < kRows * kRanks; ++i) {
      if (out_[static_cast<size_t>(i)] != i / kRows + 1) return false;
    }
    return true;
  }

 private:
  const int64_t in_size_ = kRows, out_size_ = kRows * kRanks;
  std::vector<int> in_, out_;
  axcclPipeline_t handle_ = nullptr;
};

class OrderTest : public testing::TestWithParam<Layout> {};

TEST_P(OrderTest, APipelineBeforeACallOnOneRankAndBehindItOnAnother) {
  RunRanks(GetParam(), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context, 2));
    SmallPipeline pipeline(axcclDefaultChannel(clique.comm()), context.rank());
    pipeline.Step(Cuda(clique.stream()));
    ASSERT_OK(axcclStreamSynchronize(clique.stream()));
    ASSERT_TRUE(pipeline.Right());
    int value = 1;
    const auto call = [&] {
      EXPECT_OK(ncclAllReduce(&value, &value, 1, ncclInt32, ncclSum, clique.comm(), Cuda(clique.stream(0, 1))));
    };
    if (context.rank() == 0) call();
    pipeline.Step(Cuda(clique.stream()));
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
    (context.rank() == 0 ? a : b).Step(Cuda(clique.stream()));
    (context.rank() == 0 ? b : a).Step(Cuda(clique.stream(0, 1)));
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
        (context.rank() == 0 ? a : b).Step(Cuda(clique.stream()));
        (context.rank() == 0 ? b : a).Step(Cuda(clique.stream(0, 1)));
        ASSERT_TRUE(clique.Synchronize());
        ASSERT_TRUE(a.Right() && b.Right());
      }
      // A pipeline keeps its channel.
      for (axcclChannel_t channel : channels) EXPECT_OK(axcclChannelDestroy(channel));
      a.Step(Cuda(clique.stream()));
      ASSERT_TRUE(clique.Synchronize());
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Layouts, OrderTest, testing::Values(Processes(kRanks), Threads(kRanks)),
                         [](const auto& info) { return info.param.Text(); });

}  // namespace
}  // namespace axccl::tests
