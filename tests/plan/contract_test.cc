#include "src/plan/contract.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace axccl::plan {
namespace {

TEST(ContractTest, NamesAreFoundAgain) {
  for (int i = 0; i < kNumKinds; ++i) {
    Kind kind = Kind::kBarrier;
    ASSERT_TRUE(FindKind(KindName(static_cast<Kind>(i)), &kind));
    EXPECT_EQ(static_cast<int>(kind), i);
  }
  Kind kind = Kind::kGather;
  EXPECT_FALSE(FindKind("allreduce", &kind));
  EXPECT_FALSE(FindKind("", &kind));
  EXPECT_EQ(kind, Kind::kGather);
  EXPECT_STREQ(KindName(Kind::kReduceScatter), "reduce_scatter");
  EXPECT_STREQ(KindName(static_cast<Kind>(200)), "unknown");
}

// The table of contract.h for 4 ranks and root 2: the blocks of input and output of a rank other than the root, and of
// the root.
struct Row {
  Kind kind;
  bool reduces, rooted;
  int input, output, root_input, root_output;
};

TEST(ContractTest, BlocksAreThoseOfTheTable) {
  const std::vector<Row> table = {
      {Kind::kAllReduce, true, false, 1, 1, 1, 1},     {Kind::kReduce, true, true, 1, 0, 1, 1},
      {Kind::kReduceScatter, true, false, 4, 1, 4, 1}, {Kind::kBroadcast, false, true, 0, 1, 1, 1},
      {Kind::kAllGather, false, false, 1, 4, 1, 4},    {Kind::kAllToAll, false, false, 4, 4, 4, 4},
      {Kind::kGather, false, true, 1, 0, 1, 4},        {Kind::kScatter, false, true, 0, 1, 4, 1},
      {Kind::kBarrier, false, false, 0, 0, 0, 0}};
  for (const Row& row : table) {
    const Contract c = {row.kind, 4, HasRoot(row.kind) ? 2 : 0};
    EXPECT_EQ(Reduces(row.kind), row.reduces) << KindName(row.kind);
    EXPECT_EQ(HasRoot(row.kind), row.rooted) << KindName(row.kind);
    for (int r = 0; r < 4; ++r) {
      EXPECT_EQ(InputBlocks(c, r), r == 2 ? row.root_input : row.input) << KindName(row.kind) << " rank " << r;
      EXPECT_EQ(OutputBlocks(c, r), r == 2 ? row.root_output : row.output) << KindName(row.kind) << " rank " << r;
    }
  }
  const Contract send = {Kind::kSendRecv, 2, 0};
  EXPECT_EQ(InputBlocks(send, 0), 1);
  EXPECT_EQ(InputBlocks(send, 1), 0);
  EXPECT_EQ(OutputBlocks(send, 0), 0);
  EXPECT_EQ(OutputBlocks(send, 1), 1);
}

// The blocks that coincide in place: "input block/output block" of ranks 0 to 3, "-" if a rank is never in place.
std::string InPlace(Kind kind, int root) {
  std::string text;
  for (int r = 0; r < 4; ++r) {
    int in = 9, out = 9;
    const bool can = InPlaceBlocks({kind, 4, root}, r, &in, &out);
    text += can ? std::to_string(in) + "/" + std::to_string(out) + " " : "- ";
  }
  return text;
}

TEST(ContractTest, InPlaceBlocksFollowNccl) {
  EXPECT_EQ(InPlace(Kind::kAllReduce, 0), "0/0 0/0 0/0 0/0 ");
  EXPECT_EQ(InPlace(Kind::kReduce, 1), "- 0/0 - - ");
  EXPECT_EQ(InPlace(Kind::kBroadcast, 3), "- - - 0/0 ");
  EXPECT_EQ(InPlace(Kind::kAllGather, 0), "0/0 0/1 0/2 0/3 ");
  EXPECT_EQ(InPlace(Kind::kGather, 2), "- - 0/2 - ");
  EXPECT_EQ(InPlace(Kind::kReduceScatter, 0), "0/0 1/0 2/0 3/0 ");
  EXPECT_EQ(InPlace(Kind::kScatter, 2), "- - 2/0 - ");
  EXPECT_EQ(InPlace(Kind::kAllToAll, 0), "- - - - ");
  EXPECT_EQ(InPlace(Kind::kSendRecv, 0), "- - - - ");
  EXPECT_EQ(InPlace(Kind::kBarrier, 0), "- - - - ");
}

// A block that coincides exists on both sides.
TEST(ContractTest, InPlaceBlocksExist) {
  for (int k = 0; k < kNumKinds; ++k) {
    for (int root = 0; root < 5; ++root) {
      const Contract c = {static_cast<Kind>(k), 5, root};
      for (int r = 0; r < 5; ++r) {
        int in = 0, out = 0;
        if (!InPlaceBlocks(c, r, &in, &out)) continue;
        EXPECT_LT(in, InputBlocks(c, r));
        EXPECT_LT(out, OutputBlocks(c, r));
      }
    }
  }
}

}  // namespace
}  // namespace axccl::plan
