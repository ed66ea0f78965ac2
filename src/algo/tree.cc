// Trees, by puts from a rank to its parent or children: logarithmic depth, and a constant bound on what each rank does.
//
// All-reduce, broadcast and reduce use two complementary binary trees (nodes.h), each for half of the data. Gather and
// scatter use a binomial tree, where a rank relays the blocks of its subtree.
#include <algorithm>
#include <bit>
#include <utility>

#include "src/algo/builder.h"
#include "src/algo/generators.h"
#include "src/algo/nodes.h"

namespace axccl::algo {

using plan::Contract;
using plan::Kind;
using plan::Operand;

namespace {

// Tree t carries part t and has kPerTree slots and endpoints: towards the parent and towards child 0 and 1.
constexpr int kPerTree = 3;
int UpSlot(int t, int child_index) { return kPerTree * t + child_index; }
int DownSlot(int t) { return kPerTree * t + 2; }
int UpEndpoint(int t) { return kPerTree * t; }
int DownEndpoint(int t, int child_index) { return kPerTree * t + 1 + child_index; }

void SignalChildren(Builder* b, const Node& node, int r, int t) {
  for (size_t c = 0; c < node.children.size(); ++c) {
    b->Signal(r, node.children[c], DownEndpoint(t, static_cast<int>(c)));
  }
}

// This rank's output and the slots of the children.
std::vector<Operand> Downwards(const Node& node, int r, int t) {
  std::vector<Operand> dst;
  for (int c : node.children) dst.push_back(Slot(c, DownSlot(t)));
  dst.push_back(Out(r, 0, t));
  return dst;
}

// Folds the subtree's contributions into the parent's slot. The node on top folds into the output and, where the result
// goes `down` again, into the children's slots.
void FoldUp(Builder* b, const Nodes& tree, int r, int t, bool down) {
  const Node& node = tree[r];
  std::vector<Operand> src = {In(r, 0, t)};
  for (size_t c = 0; c < node.children.size(); ++c) {
    b->Wait(r, node.children[c], UpEndpoint(t));
    src.push_back(Slot(r, UpSlot(t, static_cast<int>(c))));
  }
  if (node.parent < 0) {
    b->Reduce(r, down ? Downwards(node, r, t) : std::vector<Operand>{Out(r, 0, t)}, src, State::kFinal);
    if (down) SignalChildren(b, node, r, t);
    return;
  }
  const Operand dst = Slot(node.parent, UpSlot(t, node.child_index));
  if (src.size() == 1) {
    b->Copy(r, {dst}, src[0]);
  } else {
    b->Reduce(r, {dst}, src);
  }
  b->Signal(r, node.parent, UpEndpoint(t));
}

// Passes what came from the parent (on top: the input) to the output and the children.
void PassDown(Builder* b, const Nodes& tree, int r, int t) {
  const Node& node = tree[r];
  if (node.parent >= 0) b->Wait(r, node.parent, DownEndpoint(t, node.child_index));
  b->Copy(r, Downwards(node, r, t), node.parent < 0 ? In(r, 0, t) : Slot(r, DownSlot(t)));
  SignalChildren(b, node, r, t);
}

// A lane executes its operations in order, so a rank first serves the tree whose data reaches it first. So neither tree
// waits for the other.
void DoubleTree(Builder* b, const Contract& c) {
  const bool rooted = c.kind != Kind::kAllReduce;
  const Nodes trees[2] = {MakeTree(b->ranks(), 0, rooted, c.root), MakeTree(b->ranks(), 1, rooted, c.root)};
  for (int r = 0; r < b->ranks(); ++r) {
    const int up_first = Height(trees[1], r) < Height(trees[0], r);
    const int down_first = Depth(trees[1], r) < Depth(trees[0], r);
    for (int i = 0; i < 2 && c.kind != Kind::kBroadcast; ++i) {
      const int t = i ^ up_first;
      FoldUp(b, trees[t], r, t, c.kind == Kind::kAllReduce);
    }
    for (int i = 0; i < 2 && c.kind != Kind::kReduce; ++i) {
      const int t = i ^ down_first;
      const bool has_it = c.kind == Kind::kAllReduce && trees[t][r].parent < 0;
      if (!has_it) PassDown(b, trees[t], r, t);
    }
  }
}

// The binomial tree over v = rank - root: the parent of v is v without its lowest bit, its subtree the `Span` ranks
// from v on. Slot i of a rank is for the block of the rank i + 1 (gather) or i (scatter) places behind it.
int Span(int v, int n) { return v == 0 ? n : std::min(v & -v, n - v); }

void BinomialGather(Builder* b, int root) {
  const int n = b->ranks();
  for (int v = 0; v < n; ++v) {
    const int r = b->Shift(root, v);
    const int span = Span(v, n);
    if (v == 0) b->Copy(r, {Out(r, r)}, In(r));
    for (int d = 1; d < span; d *= 2) b->Wait(r, b->Shift(r, d));
    if (v == 0) {
      for (int i = 1; i < n; ++i) b->Copy(r, {Out(r, b->Shift(r, i))}, Slot(r, i - 1));
      continue;
    }
    const int up = v & -v;
    const int parent = b->Shift(r, -up);
    b->Copy(r, {Slot(parent, up - 1)}, In(r));
    if (span > 1) b->Copy(r, {Slot(parent, up, span - 1)}, Slot(r, 0, span - 1));
    b->Signal(r, parent);
  }
}

void BinomialScatter(Builder* b, int root) {
  const int n = b->ranks();
  for (int v = 0; v < n; ++v) {
    const int r = b->Shift(root, v);
    const int span = Span(v, n);
    if (v > 0) b->Wait(r, b->Shift(r, -(v & -v)), std::countr_zero(static_cast<unsigned>(v)));
    // The farthest child comes first, because it has the most to pass on.
    for (int d = static_cast<int>(std::bit_ceil(static_cast<unsigned>(span))) / 2; d >= 1; d /= 2) {
      const int child = b->Shift(r, d);
      const int blocks = Span(v + d, n);
      if (v == 0) {
        for (int i = 0; i < blocks; ++i) b->Copy(r, {Slot(child, i)}, In(r, b->Shift(child, i)));
      } else {
        b->Copy(r, {Slot(child, 0, blocks)}, Slot(r, d, blocks));
      }
      b->Signal(r, child, std::countr_zero(static_cast<unsigned>(d)));
    }
    b->Copy(r, {Out(r)}, v == 0 ? In(r, r) : Slot(r, 0));
  }
}

}  // namespace

plan::Schedule Tree(const Contract& contract, int lanes, std::span<const int>) {
  const bool relays = contract.kind == Kind::kGather || contract.kind == Kind::kScatter;
  Builder b(contract, "tree", relays ? 1 : 2);
  if (contract.kind == Kind::kGather) {
    BinomialGather(&b, contract.root);
  } else if (contract.kind == Kind::kScatter) {
    BinomialScatter(&b, contract.root);
  } else {
    DoubleTree(&b, contract);
  }
  return b.Build(lanes);
}

}  // namespace axccl::algo
