// What a rank of a tree gathers in an exchange (src/boot/tree_exchange.h).
#include "src/boot/tree_exchange.h"

#include <gtest/gtest.h>

#include <vector>

#include "src/boot/wire.h"

namespace axccl::boot {
namespace {

constexpr size_t kBlock = 3;

// One block each for the ranks [begin, end): its rank, in every byte.
std::vector<std::byte> Blocks(int begin, int end, size_t bytes = kBlock) {
  std::vector<std::byte> blocks;
  for (int rank = begin; rank < end; ++rank) blocks.insert(blocks.end(), bytes, static_cast<std::byte>(rank));
  return blocks;
}

class TreeExchangeTest : public testing::Test {
 protected:
  Status AddChild(size_t child, size_t bytes = kBlock) {
    return exchange_.AddChild(child, Blocks(branch_.children[child], branch_.ends[child], bytes), "a child");
  }
  void AddAll() {
    for (size_t i = 0; i < branch_.children.size(); ++i) ASSERT_TRUE(AddChild(i).ok());
    ASSERT_TRUE(exchange_.AddOwn(Blocks(kRank, kRank + 1)).ok());
  }
  std::vector<std::byte> gathered() const { return {exchange_.blocks().begin(), exchange_.blocks().end()}; }

  static constexpr int kRank = 1;
  const Branch branch_ = BranchOf(kRank, 40, 1);
  TreeExchange exchange_{kRank, branch_};
};

TEST_F(TreeExchangeTest, IsCompleteOnceThisRankAndAllChildrenHaveContributed) {
  ASSERT_GE(branch_.children.size(), 2u);
  ASSERT_TRUE(exchange_.AddOwn(Blocks(kRank, kRank + 1)).ok());
  for (size_t i = branch_.children.size(); i-- > 0;) {
    EXPECT_FALSE(exchange_.complete());
    EXPECT_FALSE(exchange_.HasChild(i));
    ASSERT_TRUE(AddChild(i).ok());
    EXPECT_TRUE(exchange_.HasChild(i));
  }
  EXPECT_TRUE(exchange_.complete());
  EXPECT_EQ(gathered(), Blocks(kRank, branch_.end)) << "in the order of ranks, whatever the order of contributions";
}

TEST_F(TreeExchangeTest, IsNotCompleteWithoutThisRank) {
  for (size_t i = 0; i < branch_.children.size(); ++i) ASSERT_TRUE(AddChild(i).ok());
  EXPECT_FALSE(exchange_.complete());
  EXPECT_FALSE(exchange_.HasOwn());
}

TEST_F(TreeExchangeTest, TheNextExchangeStartsWithoutContributions) {
  AddAll();
  exchange_.Finish();
  EXPECT_EQ(gathered(), Blocks(kRank, branch_.end)) << "the blocks may still be on their way to the children";
  EXPECT_FALSE(exchange_.complete());
  EXPECT_FALSE(exchange_.HasOwn());
  EXPECT_FALSE(exchange_.HasChild(0));
  ASSERT_TRUE(AddChild(0, 2 * kBlock).ok()) << "each exchange has its own size";
  EXPECT_EQ(exchange_.block_bytes(), 2 * kBlock);
}

TEST_F(TreeExchangeTest, CountsTheUsersExchangesWithoutTheFirst) {
  for (int finished = 0; finished < 3; ++finished) {
    EXPECT_EQ(exchange_.finished(), finished);
    EXPECT_EQ(exchange_.user_exchanges(), finished == 0 ? 0 : finished - 1);
    AddAll();
    exchange_.Finish();
  }
}

TEST_F(TreeExchangeTest, DifferentSizesAreAnErrorThatNamesBothRanks) {
  ASSERT_TRUE(AddChild(1).ok());
  const Status status = exchange_.AddOwn(Blocks(kRank, kRank + 1, 5));
  EXPECT_EQ(status.code(), Code::kInternalError);
  EXPECT_EQ(status.message(),
            "exchange 0: rank 1 contributed 5 bytes, rank " + std::to_string(branch_.children[1]) + " 3");
  EXPECT_FALSE(exchange_.HasOwn());
  EXPECT_FALSE(AddChild(0, 4).ok());
  EXPECT_FALSE(exchange_.HasChild(0));
}

TEST_F(TreeExchangeTest, AChildThatContributesTwiceOrTheWrongNumberOfBytesIsNamed) {
  const std::string wrong = "a child contributed to an exchange at the wrong time";
  ASSERT_TRUE(AddChild(0).ok());
  EXPECT_EQ(AddChild(0).message(), wrong);
  const auto ranks = static_cast<size_t>(branch_.ends[1] - branch_.children[1]);
  ASSERT_GE(ranks, 2u);
  EXPECT_EQ(exchange_.AddChild(1, {}, "a child").message(), wrong);
  EXPECT_EQ(exchange_.AddChild(1, std::vector<std::byte>(ranks * kBlock + 1), "a child").message(), wrong);
  EXPECT_EQ(AddChild(1, kMaxContribution + 1).message(), wrong);
  EXPECT_FALSE(exchange_.HasChild(1));
  EXPECT_TRUE(AddChild(1).ok());
}

}  // namespace
}  // namespace axccl::boot
