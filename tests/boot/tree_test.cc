// The shape of the tree in which many ranks meet (src/boot/tree.h).
#include "src/boot/tree.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace axccl::boot {
namespace {

// Everything that ranks and hubs rely on, for one number of ranks and of ids.
void Check(int nranks, int roots) {
  std::vector<Branch> branches;
  std::vector<int> check_ins(static_cast<size_t>(roots));
  int deepest = 0;
  for (int rank = 0; rank < nranks; ++rank) branches.push_back(BranchOf(rank, nranks, roots));
  for (int rank = 0; rank < nranks; ++rank) {
    const Branch& branch = branches[static_cast<size_t>(rank)];
    ASSERT_LE(branch.children.size(), size_t{2 * kFanout});
    int next = rank + 1;
    std::vector<int> order(branch.children.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int>(i);
    std::sort(order.begin(), order.end(), [&](int a, int b) { return branch.children[a] < branch.children[b]; });
    for (const int i : order) {
      const int child = branch.children[static_cast<size_t>(i)];
      ASSERT_EQ(child, next) << "subtrees leave no gap: rank " << rank << " of " << nranks << ", " << roots << " ids";
      next = branch.ends[static_cast<size_t>(i)];
      ASSERT_EQ(branches[static_cast<size_t>(child)].parent, rank);
      ASSERT_EQ(branches[static_cast<size_t>(child)].end, next);
    }
    ASSERT_EQ(next, branch.end);
    ASSERT_EQ(branch.parent < 0, rank == 0);
    int depth = 0;
    for (int at = rank; at != 0; at = branches[static_cast<size_t>(at)].parent) {
      ASSERT_LT(branches[static_cast<size_t>(at)].parent, at);
      ++depth;
    }
    deepest = std::max(deepest, depth);
    int places = 0;
    for (int root = 0; root < roots; ++root) {
      if (!ChecksInAt(rank, root, nranks, roots)) continue;
      ++places;
      ++check_ins[static_cast<size_t>(root)];
    }
    const int own = RootOf(rank, nranks, roots);
    const int above = branch.parent < 0 ? own : RootOf(branch.parent, nranks, roots);
    ASSERT_TRUE(ChecksInAt(rank, own, nranks, roots));
    ASSERT_TRUE(ChecksInAt(rank, above, nranks, roots)) << "it learns its parent there";
    ASSERT_EQ(places, own == above ? 1 : 2);
  }
  // Each level divides a range by kFanout; with leaders there are twice as many levels.
  int levels = 1;
  for (int64_t reach = 1, level = 1; reach < nranks; ++levels) reach += level *= kFanout;
  EXPECT_LE(deepest, roots == 1 ? levels : 2 * levels) << nranks << " " << roots;
  for (const int each : check_ins) EXPECT_LE(each, nranks / roots + 1 + kFanout);
}

TEST(TreeTest, EveryRankHasItsPlace) {
  for (int nranks = 1; nranks <= 90; ++nranks) {
    for (const int roots : {1, 2, 3, 5, nranks / 2, nranks}) {
      if (roots >= 1 && roots <= nranks) Check(nranks, roots);
    }
  }
  for (const int roots : {1, 7, 16}) Check(1000, roots);
}

TEST(TreeTest, IsShallow) {
  const auto depth = [](int rank, int nranks) {
    int steps = 0;
    for (int at = rank; at != 0; at = BranchOf(at, nranks, 1).parent) ++steps;
    return steps;
  };
  EXPECT_EQ(depth(255, 256), 4);
  EXPECT_EQ(depth(4095, 4096), 6);
}

}  // namespace
}  // namespace axccl::boot
