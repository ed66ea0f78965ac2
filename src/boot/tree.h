// The shape in which many ranks meet: who is above and below whom.
//
// Every rank's subtree is a range of consecutive ranks that begins with it, so what is gathered below a rank is one
// block in the order of ranks, and ranks of a machine, which have consecutive numbers, are close to each other. A range
// is its first rank and up to kFanout parts of the rest, of equal length but for one. With several ids ("roots") the
// ranks are as many groups of consecutive ranks; a group checks in at its id and is a tree of its own, and the groups'
// first ranks, their leaders, form a tree of the same shape in addition. A leader also checks in where the leader above
// it does, which is how it hears of it. So a rank has at most 2 * kFanout + 1 links, and the tree is O(log n) deep.
//
// Pure functions.
#pragma once

#include <vector>

namespace axccl::boot {

inline constexpr int kFanout = 4;

struct Branch {
  int parent = -1;
  int end = 0;  // the subtree is [rank, end)
  std::vector<int> children;
  std::vector<int> ends;  // of the children's subtrees
};

// 0 <= rank < nranks, 1 <= roots <= nranks.
Branch BranchOf(int rank, int nranks, int roots);
// Which id a rank checks in at.
int RootOf(int rank, int nranks, int roots);
// Whether it checks in at `root`, as a member of its group or as a leader below its leader.
bool ChecksInAt(int rank, int root, int nranks, int roots);

}  // namespace axccl::boot
