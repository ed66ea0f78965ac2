#include "src/algo/nodes.h"

#include <algorithm>
#include <bit>

namespace axccl::algo {

namespace {

void Link(Nodes* tree, int parent, int child) {
  (*tree)[child].parent = parent;
  (*tree)[child].child_index = static_cast<int>((*tree)[parent].children.size());
  (*tree)[parent].children.push_back(child);
}

// Makes an in-order binary tree over the labels first + 1 to last, node_of[label - 1]; returns the node on top. Every
// odd label is a leaf, because the label on top is `first`, which is 0 or itself the label on top of a subtree, plus a
// power of two.
int LinkInOrder(Nodes* tree, const std::vector<int>& node_of, int first, int last) {
  const int top = first + static_cast<int>(std::bit_floor(static_cast<unsigned>(last - first)));
  const int node = node_of[top - 1];
  if (first < top - 1) Link(tree, node, LinkInOrder(tree, node_of, first, top - 1));
  if (top < last) Link(tree, node, LinkInOrder(tree, node_of, top, last));
  return node;
}

}  // namespace

// The labels of the two trees are shifted by one, so no node has an even label in both.
Nodes MakeTree(int n, int which, bool rooted, int root) {
  Nodes tree(n);
  std::vector<int> node_of;
  for (int i = rooted ? 1 : 0; i < n; ++i) node_of.push_back((root + i) % n);
  if (which == 1) std::rotate(node_of.begin(), node_of.end() - 1, node_of.end());
  const int top = LinkInOrder(&tree, node_of, 0, static_cast<int>(node_of.size()));
  if (rooted) Link(&tree, root, top);
  return tree;
}

Nodes MakeChain(int n, int root) {
  Nodes chain(n);
  for (int i = 1; i < n; ++i) Link(&chain, (root + i - 1) % n, (root + i) % n);
  return chain;
}

int Depth(const Nodes& tree, int node) { return tree[node].parent < 0 ? 0 : 1 + Depth(tree, tree[node].parent); }

int Height(const Nodes& tree, int node) {
  int height = 0;
  for (int c : tree[node].children) height = std::max(height, 1 + Height(tree, c));
  return height;
}

}  // namespace axccl::algo
