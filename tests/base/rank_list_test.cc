#include "src/base/rank_list.h"

#include <gtest/gtest.h>

#include <set>

namespace axccl {
namespace {

std::string Listed(const std::set<int>& ranks, int of = 12) {
  return ListRanks(of, [&](int rank) { return ranks.count(rank) != 0; });
}

TEST(RankListTest, RunsAreShortened) {
  EXPECT_EQ(Listed({3}), "rank 3");
  EXPECT_EQ(Listed({0, 1}), "ranks 0, 1");
  EXPECT_EQ(Listed({0, 1, 2, 5, 10, 11}), "ranks 0-2, 5, 10, 11");
  EXPECT_EQ(Listed({}), "ranks ");
}

TEST(RankListTest, LongListsAreCut) {
  const std::string odd = ListRanks(100000, [](int rank) { return rank % 2 != 0; });
  EXPECT_LT(odd.size(), 250u);
  EXPECT_TRUE(odd.starts_with("ranks 1, 3, 5, ") && odd.ends_with(", ...")) << odd;
}

}  // namespace
}  // namespace axccl
