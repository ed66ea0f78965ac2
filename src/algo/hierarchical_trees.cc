// Between machines, on trees of them: all-reduce, broadcast and reduce. Each column carries its share over trees of its
// own, and consecutive turns form the pipeline, so the busiest machine determines the time of a turn, and the depth of
// the tree costs time once.
//
//   chain       every link carries the data once: the most bandwidth, but one step for each machine. For large data.
//   two trees   complementary binary trees, each for half of the share: logarithmic depth, but some machines send a
//               second copy. For data that is too small to fill a chain of many machines.
//
// An all-reduce goes up the trees and down again, which takes as many steps as halving and doubling and more bytes. But
// its messages have few senders and receivers, turns overlap, and every number of machines works equally well.
//
// Signals between machines have endpoints by tree and direction, because a rank may receive from another in both trees.
#include <algorithm>
#include <utility>
#include <vector>

#include "src/algo/builder.h"
#include "src/algo/hierarchical.h"
#include "src/algo/levels.h"
#include "src/algo/nodes.h"

namespace axccl::algo {

using plan::Contract;
using plan::Kind;
using plan::Operand;

namespace {

std::vector<Nodes> MakeTrees(const Contract& contract, const Levels& levels, Shape shape) {
  const bool rooted = contract.kind != Kind::kAllReduce;
  const int n = levels.machines(), root = levels.MachineOf(contract.root);
  if (shape == Shape::kChain) return {MakeChain(n, root)};
  return {MakeTree(n, 0, rooted, root), MakeTree(n, 1, rooted, root)};
}

class Forest {
 public:
  Forest(const Contract& contract, const Levels& levels, std::vector<Nodes> trees, Builder* builder)
      : root_(contract.root), levels_(levels), trees_(std::move(trees)), b_(builder) {}

  void AllReduce();
  void Broadcast();
  void Reduce();

 private:
  int trees() const { return static_cast<int>(trees_.size()); }
  const Node& NodeOf(const Place& at, int t) const {
    return trees_[static_cast<size_t>(t)][static_cast<size_t>(at.machine)];
  }
  bool Beside(const Place& at) const { return at.machine == levels_.MachineOf(root_); }
  int ColumnAt(const Place& at, int machine) const { return levels_.Column(machine, at.index); }

  // The part that tree t of column k carries; ranks of the machine find it in the slot of the same number.
  int Part(int column, int t) const { return column * trees() + t; }
  int UpSlot(int t, int child_index) const { return trees() * levels_.columns() + 3 * t + child_index; }
  int DownSlot(int t) const { return UpSlot(t, 2); }
  int UpEndpoint(int t) const { return levels_.near_endpoints() + 3 * t; }
  int DownEndpoint(int t, int child_index) const { return UpEndpoint(t) + 1 + child_index; }

  // Visits the trees in the order in which data reaches a rank. A lane executes its operations in order, so in this
  // order neither tree waits for the other.
  template <class F>
  void ForEachTreeUp(const Place& at, F f) const {
    const bool swap = trees() == 2 && Height(trees_[1], at.machine) < Height(trees_[0], at.machine);
    for (int i = 0; i < trees(); ++i) f(swap ? 1 - i : i);
  }
  template <class F>
  void ForEachTreeDown(const Place& at, F f) const {
    const bool swap = trees() == 2 && Depth(trees_[1], at.machine) < Depth(trees_[0], at.machine);
    for (int i = 0; i < trees(); ++i) f(swap ? 1 - i : i);
  }

  void FoldUp(Writer* w, int t, std::vector<Operand> result) const;
  std::vector<Operand> Downwards(const Place& at, int t) const;
  void SignalChildren(const Place& at, int t) const;
  void PassDown(Writer* w, int t) const;
  void BroadcastFromRoot(Writer* w) const;
  void BroadcastBesideRoot(Writer* w) const;

  const int root_;
  const Levels& levels_;
  const std::vector<Nodes> trees_;
  Builder* const b_;
};

// Folds the machine's share and what the children sent, for the parent. The node on top finishes the fold into
// `result`.
void Forest::FoldUp(Writer* w, int t, std::vector<Operand> result) const {
  const int r = w->rank(), part = Part(w->at().index, t);
  const Node& node = NodeOf(w->at(), t);
  const Operand own = In(r, 0, part);
  std::vector<Operand> src = node.children.empty() ? w->Contributions(own, part) : std::vector{w->OwnShare(own, part)};
  for (size_t c = 0; c < node.children.size(); ++c) {
    b_->Wait(r, ColumnAt(w->at(), node.children[c]), UpEndpoint(t));
    src.push_back(Slot(r, UpSlot(t, static_cast<int>(c))));
  }
  if (node.parent < 0) return w->Fold(std::move(result), std::move(src), State::kFinal);
  const int parent = ColumnAt(w->at(), node.parent);
  w->Fold({Slot(parent, UpSlot(t, node.child_index))}, std::move(src));
  b_->Signal(r, parent, UpEndpoint(t));
}

std::vector<Operand> Forest::Downwards(const Place& at, int t) const {
  std::vector<Operand> dst;
  for (int c : NodeOf(at, t).children) dst.push_back(Slot(ColumnAt(at, c), DownSlot(t)));
  return dst;
}

void Forest::SignalChildren(const Place& at, int t) const {
  const std::vector<int>& children = NodeOf(at, t).children;
  for (size_t c = 0; c < children.size(); ++c)
    b_->Signal(at.rank, ColumnAt(at, children[c]), DownEndpoint(t, static_cast<int>(c)));
}

// Copies what comes from the parent to the children and the peers.
void Forest::PassDown(Writer* w, int t) const {
  const Place& at = w->at();
  const Node& node = NodeOf(at, t);
  const int r = at.rank, part = Part(at.index, t);
  std::vector<Operand> dst = Downwards(at, t);
  if (!at.alone()) dst.push_back(Slot(r, part));
  dst.push_back(Out(r, 0, part));
  b_->Wait(r, ColumnAt(at, node.parent), DownEndpoint(t, node.child_index));
  w->Copy(std::move(dst), Slot(r, DownSlot(t)));
  SignalChildren(at, t);
}

void Forest::AllReduce() {
  for (const int r : b_->programmed()) {
    Writer w(levels_, b_, r);
    const Place& at = w.at();
    w.PublishParts(trees());
    if (w.InColumn()) {
      w.WaitForPeers();
      ForEachTreeUp(at, [&](int t) {
        std::vector<Operand> result = Downwards(at, t);
        if (!at.alone()) result.push_back(Slot(r, Part(at.index, t)));
        result.push_back(Out(r, 0, Part(at.index, t)));
        FoldUp(&w, t, std::move(result));
        if (NodeOf(at, t).parent < 0) SignalChildren(at, t);
      });
      ForEachTreeDown(at, [&](int t) {
        if (NodeOf(at, t).parent >= 0) PassDown(&w, t);
      });
      w.SignalPeers();
    }
    w.CollectParts(trees(), 0, trees());
  }
}

// ---- broadcast ----

// The root publishes all parts. A rank of the root's machine that is in a column gets that column's parts before the
// others.
void Forest::BroadcastFromRoot(Writer* w) const {
  const Place& at = w->at();
  for (int i = 0; i < levels_.columns(); ++i) {
    const int column = (at.index + i) % levels_.columns();
    const bool own = w->InColumn() && column == at.index;
    for (int t = 0; t < trees(); ++t) {
      std::vector<Operand> dst = {Out(root_, 0, Part(column, t))};
      if (own) {
        for (const Operand& slot : Downwards(at, t)) dst.push_back(slot);
      }
      if (!at.alone()) dst.push_back(Slot(root_, Part(column, t)));
      w->Copy(std::move(dst), In(root_, 0, Part(column, t)));
      if (own) SignalChildren(at, t);
    }
    if (!own) w->Signal(levels_.Column(at.machine, column));
  }
  w->SignalPeers();
}

void Forest::BroadcastBesideRoot(Writer* w) const {
  const Place& at = w->at();
  const int r = at.rank, parts = trees() * levels_.columns();
  const auto copy = [&](int first, int last) {
    if (first < last) w->Copy({Out(r, 0, first, last - first)}, Slot(root_, first, last - first));
  };
  w->Wait(root_);
  if (!w->InColumn()) return copy(0, parts);
  for (int t = 0; t < trees(); ++t) {
    const int part = Part(at.index, t);
    std::vector<Operand> dst = Downwards(at, t);
    dst.push_back(Out(r, 0, part));
    w->Copy(std::move(dst), Slot(root_, part));
    SignalChildren(at, t);
  }
  w->Wait(root_);
  copy(0, Part(at.index, 0));
  copy(Part(at.index + 1, 0), parts);
}

void Forest::Broadcast() {
  for (const int r : b_->programmed()) {
    Writer w(levels_, b_, r);
    if (r == root_) {
      BroadcastFromRoot(&w);
    } else if (Beside(w.at())) {
      BroadcastBesideRoot(&w);
    } else {
      if (w.InColumn()) {
        ForEachTreeDown(w.at(), [&](int t) { PassDown(&w, t); });
        w.SignalPeers();
      }
      w.CollectParts(trees(), 0, trees());
    }
  }
}

// ---- reduce ----

// The ranks of the root's machine hold the results of their columns, and the root copies them from there.
void Forest::Reduce() {
  for (const int r : b_->programmed()) {
    Writer w(levels_, b_, r);
    w.PublishParts(trees());
    if (w.InColumn()) {
      w.WaitForPeers();
      ForEachTreeUp(w.at(), [&](int t) {
        const int part = Part(w.at().index, t);
        FoldUp(&w, t, {r == root_ ? Out(r, 0, part) : Slot(r, part)});
      });
      if (Beside(w.at()) && r != root_) w.Signal(root_);
    }
    if (r == root_) w.CollectParts(trees(), 0, trees());
  }
}

}  // namespace

plan::Schedule OnTrees(const Form& form, Shape shape) {
  const Levels levels(form.placement, Carriers::kColumns);
  std::vector<Nodes> trees = MakeTrees(form.contract, levels, shape);
  Builder b(form.contract, form.algorithm, static_cast<int>(trees.size()) * levels.columns(), form.only);
  Forest forest(form.contract, levels, std::move(trees), &b);
  switch (form.contract.kind) {
    case Kind::kAllReduce:
      forest.AllReduce();
      break;
    case Kind::kBroadcast:
      forest.Broadcast();
      break;
    default:
      forest.Reduce();
  }
  return b.Build(form.lanes);
}

}  // namespace axccl::algo
