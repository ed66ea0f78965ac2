// The shape of the tree in which many ranks meet: the parent and children of each.
//
// Every rank's subtree is a range of consecutive ranks that begins with it. So what is gathered below a rank is one
// block in the order of ranks, and ranks of a machine, which have consecutive numbers, are close to each other. A range
// consists of its first rank and up to kFanout parts of the rest, of nearly equal length. With several ids ("roots"),
// the ranks form as many groups of consecutive ranks. A group checks in at its id and is a tree of its own; the groups'
// first ranks, their leaders, form another tree of the same shape. A leader also checks in at the hub of its parent
// leader, from which it gets the parent's address. So a rank has at most 2 * kFanout + 1 links, and the tree is O(log
// n) deep.
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
  std::vector<int> ends;  // ends of the children's subtrees
};

// 0 <= rank < nranks, 1 <= roots <= nranks.
Branch BranchOf(int rank, int nranks, int roots);
// The id at which a rank checks in.
int RootOf(int rank, int nranks, int roots);
// Whether a rank checks in at `root`, as a member of its group or as a leader whose parent belongs to it.
bool ChecksInAt(int rank, int root, int nranks, int roots);

}  // namespace axccl::boot
