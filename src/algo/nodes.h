// Trees over numbered nodes, which are ranks or machines. Values; what makes them is pure.
#pragma once

#include <vector>

namespace axccl::algo {

struct Node {
  int parent = -1;      // -1: on top
  int child_index = 0;  // which child of the parent this is
  std::vector<int> children;
};
using Nodes = std::vector<Node>;  // [node]

// One of two complementary binary trees over nodes 0 to n - 1, `which` 0 or 1: a node that is inner in one is a leaf in
// the other, so that both directions of every link are used when each carries half of the data. (P. Sanders, J. Speck,
// J. Larsson Traeff, "Two-tree algorithms for full bandwidth broadcast, reduction and scan", Parallel Computing 35,
// 2009.) Rooted: `root` is set above the trees of the others. Else it is the node that is counted from.
Nodes MakeTree(int n, int which, bool rooted, int root);
// From the root to the node after it, and so on round the circle.
Nodes MakeChain(int n, int root);

int Depth(const Nodes& tree, int node);
int Height(const Nodes& tree, int node);

}  // namespace axccl::algo
