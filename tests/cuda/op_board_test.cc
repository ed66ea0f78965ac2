// What the op board shows of the calls of GPU ranks: that they were enqueued.
#include <gtest/gtest.h>

#include "tests/cuda/words.h"
#include "tests/harness/op_board.h"

namespace axccl::tests {
namespace {

using harness::BoardTexts;
using harness::Clique;
using harness::Cuda;
using harness::Layout;
using harness::RankContext;
using harness::RunCliques;
using harness::Texts;

class OpBoardTest : public testing::TestWithParam<Layout> {};

TEST_P(OpBoardTest, ShowsWhatWasEnqueued) {
  const auto body = [](RankContext& context, Clique& clique) {
    Words words(100, 1);
    ASSERT_TRUE(context.Barrier());  // allocating may wait for kernels
    ASSERT_OK(ncclAllReduce(words.get(), words.get(), 100, ncclInt32, ncclSum, clique.comm(), Cuda(clique.stream())));
    ASSERT_OK(harness::SynchronizeStream(clique.stream()));
    ASSERT_TRUE(context.Barrier());
    for (const int rank : {0, 1}) {
      EXPECT_EQ(BoardTexts(clique.comm(), rank), Texts({"enqueued #0"}));
      EXPECT_STREQ(harness::ReadBoard(clique.comm(), rank).at(0).call, "ncclAllReduce count 100 int32 sum");
    }
    ASSERT_TRUE(context.Barrier());
  };
  RunCliques(GetParam(), body, {.environment = {{"AXCCL_TEST_GPU_MEMORY", "device"}}});
}

INSTANTIATE_TEST_SUITE_P(Layouts, OpBoardTest, testing::Values(harness::Threads(2), harness::Processes(2)),
                         [](const auto& info) { return info.param.Text(); });

}  // namespace
}  // namespace axccl::tests
