// ncclCommRevoke reaches all ranks of a machine: operations under way end, the next calls fail, and the ranks go on
// with a communicator that they split or shrink off.
#include <thread>

#include "tests/comm/revoke_cases.h"

namespace axccl::tests {
namespace {

using harness::Clique;
using harness::Layout;
using harness::RankContext;

struct Shape {
  Layout layout;
  int by;
  bool busy;
  size_t count;
};

class RevokeTest : public testing::TestWithParam<Shape> {};
INSTANTIATE_TEST_SUITE_P(Shapes, RevokeTest,
                         testing::Values(Shape{{4, 1, 1}, 0, true, 1}, Shape{{4, 1, 1}, 3, true, 100'000},
                                         Shape{{4, 1, 1}, 1, false, 1}, Shape{{1, 4, 1}, 2, true, 1000},
                                         Shape{{1, 4, 1}, 0, false, 1000}, Shape{{2, 2, 1}, 1, true, 3'000'000},
                                         Shape{{2, 1, 1}, 1, true, 17}));

TEST_P(RevokeTest, ReachesEveryRank) {
  harness::RunRanks(GetParam().layout,
                    [](RankContext& context) { RunRevoke(context, GetParam().by, GetParam().busy, GetParam().count); });
}

// A rank that waits for a third one, which neither revokes nor comes.
TEST(Revoke, EndsAWaitForAnybody) {
  harness::RunCliques(harness::Processes(3), [](RankContext& context, Clique& clique) {
    ASSERT_TRUE(context.Barrier());
    int value = 7;
    if (context.rank() == 0) {
      ASSERT_OK(ncclRecv(&value, 1, ncclInt32, 2, clique.comm(), harness::Cuda(clique.stream())));
      context.Set(kCalledCell, 1);
      EXPECT_EQ(axcclStreamSynchronize(clique.stream()), ncclRemoteError);
      ExpectRevoked(context, clique.comm(), 1);
    } else if (context.rank() == 1) {
      context.Await(kCalledCell);
      context.Set(kRevokedCell, harness::NowNs());
      ASSERT_OK(ncclCommRevoke(clique.comm(), NCCL_REVOKE_DEFAULT));
    }
    ASSERT_TRUE(context.Barrier());
  });
}

// Its own operation ends, too, and once the call has returned, its buffers belong to the application.
TEST(Revoke, EndsTheCallsOfItsOwnRank) {
  harness::RunCliques(harness::Processes(2), [](RankContext& context, Clique& clique) {
    std::vector<int> data(1 << 20, 1);
    if (context.rank() == 0) {
      ASSERT_OK(ncclAllReduce(data.data(), data.data(), data.size(), ncclInt32, ncclSum, clique.comm(),
                              harness::Cuda(clique.stream())));
      ASSERT_OK(ncclCommRevoke(clique.comm(), NCCL_REVOKE_DEFAULT));
      std::fill(data.begin(), data.end(), 5);
      EXPECT_EQ(axcclStreamSynchronize(clique.stream()), ncclRemoteError);
      EXPECT_EQ(data, std::vector<int>(data.size(), 5));
      context.Set(kRevokedCell, harness::NowNs());
    } else {
      context.Await(kRevokedCell);
      EXPECT_EQ(ncclAllReduce(data.data(), data.data(), data.size(), ncclInt32, ncclSum, clique.comm(),
                              harness::Cuda(clique.stream())),
                ncclRemoteError);
    }
    ASSERT_TRUE(context.Barrier());
  });
}

// All at once, again and again.
TEST(Revoke, ByAllRanksAtOnce) {
  harness::RunRanks({2, 2, 1}, [](RankContext& context) {
    for (int round = 0; round < 20; ++round) {
      Clique clique;
      ASSERT_TRUE(clique.Init(context));
      std::vector<int> data(100, 1);
      (void)ncclAllReduce(data.data(), data.data(), data.size(), ncclInt32, ncclSum, clique.comm(),
                          harness::Cuda(clique.stream()));
      ASSERT_OK(ncclCommRevoke(clique.comm(), NCCL_REVOKE_DEFAULT));
      (void)axcclStreamSynchronize(clique.stream());
      ASSERT_NO_FATAL_FAILURE(MakeAnother(context, clique.comm(), clique.stream(), round % 2 == 0));
    }
  });
}

}  // namespace
}  // namespace axccl::tests
