// Trees over numbered nodes, which are ranks or machines. Trees are values; the functions that make them are pure.
#pragma once

#include <vector>

namespace axccl::algo {

struct Node {
  int parent = -1;      // -1: on top
  int child_index = 0;  // which child of the parent this is
  std::vector<int> children;
};
using Nodes = std::vector<Node>;  // [node]

// One of two complementary binary trees over nodes 0 to n - 1, `which` 0 or 1. A node that is inner in one is a leaf in
// the other, so both directions of every link are used when each tree carries half of the data. (P. Sanders, J. Speck,
// J. Larsson Traeff, "Two-tree algorithms for full bandwidth broadcast, reduction and scan", Parallel Computing 35,
// 2009.) If `rooted`, `root` is set above the tree of the other nodes; otherwise `root` is only the node that counting
// starts from.
Nodes MakeTree(int n, int which, bool rooted, int root);
// The chain from the root to the node after it, and so on around the circle.
Nodes MakeChain(int n, int root);

int Depth(const Nodes& tree, int node);
int Height(const Nodes& tree, int node);

}  // namespace axccl::algo
