// Hierarchical: what crosses between machines crosses once, and is folded before it leaves and spread after it arrives by
// ranks that share memory.
//
// Inside a machine ranks publish in their own scratch, as in one-shot and two-shot. Between machines the work is cut among
// the ranks: a *rail* is one rank of every machine, and as many rails as the smallest machine has ranks carry a share of
// the data each, so that all links of a machine are used and no rank moves more than its share. Ranks beyond those take
// part inside their machine only. What concerns a single rank (its block of a reduce-scatter or all-to-all) goes to it at
// once, from the rank of each other machine that has the same place there: its *agent*.
//
// Between machines all-reduce and its relatives exchange directly, as ranks do in two-shot: the bytes and messages of a
// ring, in two hops however many machines there are. Broadcast and reduce are chains of machines, where every link carries
// the data once and consecutive turns are the pipeline. Gather and scatter make one message of a machine's blocks.
//
// No rank is told of another machine's data by a third rank, and none finds it in a third rank's scratch, for the slots a
// rank sends go with its own signals to the rank that reads them: who passes something on stores it once more, in a slot
// of its own. A rank sends what it has for other machines first and does what is left inside while that travels.
//
// Endpoint q of a rank is for rank q.
#include <algorithm>
#include <utility>
#include <vector>

#include "src/algo/builder.h"
#include "src/algo/generators.h"

namespace axccl::algo {

using plan::Contract;
using plan::Kind;
using plan::Operand;
using plan::Placement;

namespace {

// Where a rank is.
struct Place {
  int rank = 0;
  int machine = 0;
  int index = 0;  // among the ranks of its machine
  const std::vector<int>* local = nullptr;

  int size() const { return static_cast<int>(local->size()); }
  bool alone() const { return local->size() == 1; }
};

class Levels {
 public:
  Levels(const Contract& contract, const Placement& placement, Builder* builder)
      : p_(placement), b_(builder), root_(contract.root), rails_(placement.Fewest(contract.ranks)) {}

  void AllReduce();
  void ReduceScatter();
  void AllGather();
  void AllToAll();
  void Broadcast();
  void Reduce();
  void Gather();
  void Scatter();
  void Barrier();

 private:
  int machines() const { return p_.machines(); }
  Place PlaceOf(int rank) const {
    const int machine = p_.MachineOf(rank);
    return {rank, machine, p_.LocalIndex(rank), &p_.RanksOf(machine)};
  }
  bool OnRail(const Place& at) const { return at.index < rails_; }
  int Rail(int machine, int rail) const { return p_.RanksOf(machine)[static_cast<size_t>(rail)]; }
  int Machine(int machine, int step) const { return (machine + step + machines()) % machines(); }
  // The rank of a machine that serves `rank`, which is on another.
  int Agent(int machine, int rank) const {
    const std::vector<int>& ranks = p_.RanksOf(machine);
    return ranks[static_cast<size_t>(p_.LocalIndex(rank)) % ranks.size()];
  }
  int Leader(int machine) const { return Rail(machine, 0); }

  void Signal(int rank, int to) { b_->Signal(rank, to, to); }
  void Wait(int rank, int source, int value = 1) { b_->Wait(rank, source, rank, value); }
  // Of the own machine.
  template <class F>
  static void ForEachPeer(const Place& at, F f) {
    for (int step = 1; step < at.size(); ++step) f((*at.local)[static_cast<size_t>((at.index + step) % at.size())]);
  }
  void SignalPeers(const Place& at) {
    ForEachPeer(at, [&](int q) { Signal(at.rank, q); });
  }
  void WaitForPeers(const Place& at) {
    for (int q : *at.local) {
      if (q != at.rank) Wait(at.rank, q);
    }
  }
  // Calls f for every other machine, those after the own one first: so they are not all sent to at once. `direction` -1:
  // the other way round, in which they arrive.
  template <class F>
  void ForEachMachine(const Place& at, int direction, F f) const {
    for (int step = 1; step < machines(); ++step) f(Machine(at.machine, direction * step));
  }
  // Of the ranks of other machines that a rank is the agent of.
  template <class F>
  void ForEachServed(const Place& at, int direction, F f) const {
    ForEachMachine(at, direction, [&](int machine) {
      for (int q : p_.RanksOf(machine)) {
        if (Agent(at.machine, q) == at.rank) f(q);
      }
    });
  }

  // The fold of `src`; of a single one a copy.
  void Fold(int rank, std::vector<Operand> dst, const std::vector<Operand>& src, State state = State::kPartial) {
    if (src.size() == 1) {
      b_->Copy(rank, std::move(dst), src[0], state);
    } else {
      b_->Reduce(rank, std::move(dst), src, state);
    }
  }
  // What the ranks of the machine contribute to a part or block, in ascending order: the own input and the others' slots.
  static std::vector<Operand> Contributions(const Place& at, const Operand& own, int slot) {
    std::vector<Operand> src;
    for (int q : *at.local) src.push_back(q == at.rank ? own : Slot(q, slot));
    return src;
  }
  // The machine's own share of a fold, which is made ready while those of the others travel: the input where there is
  // nothing to fold.
  Operand OwnShare(const Place& at, const Operand& own, int contributions, int into) {
    if (at.alone()) return own;
    Fold(at.rank, {Slot(at.rank, into)}, Contributions(at, own, contributions));
    return Slot(at.rank, into);
  }

  // All-reduce. Part(k, c) is carried by rail k and folded to the end on machine c.
  int Part(int rail, int machine) const { return rail * machines() + machine; }
  int PartialSlot(int machine) const { return rails_ * machines() + machine; }     // of the own part, from there
  int ResultSlot(int machine) const { return (rails_ + 1) * machines() + machine; }  // of that machine's part
  void FoldParts(const Place& at);
  void PassResult(const Place& at, int machine);
  void CollectResults(const Place& at, int step);

  // Reduce-scatter and all-to-all: slot q of a rank has what it gives to rank q, for the agent of q to take.
  void PublishBlocks(const Place& at);

  // All-gather: slots of the block that the j-th of those a rank serves sends it, and of the copy for the own machine.
  static int ArrivalSlot(int j) { return 1 + 2 * j; }
  static int CopySlot(int j) { return 2 + 2 * j; }
  std::vector<int> Served(int rank) const;
  void CollectBlocks(const Place& at, const std::vector<std::vector<int>>& served, size_t j);

  // Chains: the machine that is so many links from the root's, and the other way round.
  int Link(int distance) const { return Machine(p_.MachineOf(root_), distance); }
  int Distance(int machine) const { return (machine - p_.MachineOf(root_) + machines()) % machines(); }
  int ChainSlot() const { return rails_; }
  void BroadcastFromRoot(const Place& at);
  void BroadcastBesideRoot(const Place& at);
  void BroadcastOn(const Place& at);
  void ReduceAlong(const Place& at);

  const Placement& p_;
  Builder* const b_;
  const int root_;
  const int rails_;
};

// ---- all-reduce ----

// Folds the machine's share of the rail's parts for the other machines, then all shares of the own part.
void Levels::FoldParts(const Place& at) {
  const int r = at.rank, rail = at.index;
  ForEachMachine(at, 1, [&](int c) {
    const int part = Part(rail, c);
    Fold(r, {Slot(Rail(c, rail), PartialSlot(at.machine))}, Contributions(at, In(r, 0, part), part));
    Signal(r, Rail(c, rail));
  });
  const int part = Part(rail, at.machine);
  const Operand own = OwnShare(at, In(r, 0, part), part, PartialSlot(at.machine));
  ForEachMachine(at, -1, [&](int c) { Wait(r, Rail(c, rail)); });
  std::vector<Operand> shares, dst;
  for (int c = 0; c < machines(); ++c) shares.push_back(c == at.machine ? own : Slot(r, PartialSlot(c)));
  ForEachMachine(at, 1, [&](int c) { dst.push_back(Slot(Rail(c, rail), ResultSlot(at.machine))); });
  if (!at.alone()) dst.push_back(Slot(r, part));
  dst.push_back(Out(r, 0, part));
  b_->Reduce(r, dst, shares, State::kFinal);
  ForEachMachine(at, 1, [&](int c) { Signal(r, Rail(c, rail)); });
  SignalPeers(at);
}

// The rail's part that was folded to the end on another machine.
void Levels::PassResult(const Place& at, int machine) {
  const int r = at.rank, part = Part(at.index, machine);
  Wait(r, Rail(machine, at.index), 2);
  std::vector<Operand> dst = {Out(r, 0, part)};
  if (!at.alone()) dst.push_back(Slot(r, part));
  b_->Copy(r, dst, Slot(r, ResultSlot(machine)));
  SignalPeers(at);
}

// What the machine's other rails have had as their result number `step`: that of the machine so many before.
void Levels::CollectResults(const Place& at, int step) {
  const int first = OnRail(at) ? 2 : 1;  // a rail has been told of contributions before
  for (int i = 0; i < rails_; ++i) {
    const int rail = (at.index + i) % rails_;
    const int q = Rail(at.machine, rail), part = Part(rail, Machine(at.machine, -step));
    if (q == at.rank) continue;
    Wait(at.rank, q, first + step);
    b_->Copy(at.rank, {Out(at.rank, 0, part)}, Slot(q, part));
  }
}

void Levels::AllReduce() {
  for (int r = 0; r < b_->ranks(); ++r) {
    const Place at = PlaceOf(r);
    for (int i = 1; i <= rails_; ++i) {
      const int rail = (at.index + i) % rails_;
      const int q = Rail(at.machine, rail);
      if (q == r) continue;
      b_->Copy(r, {Slot(r, Part(rail, 0), machines())}, In(r, 0, Part(rail, 0), machines()));
      Signal(r, q);
    }
    if (OnRail(at)) {
      WaitForPeers(at);
      FoldParts(at);
    }
    // One step behind the own, so that what comes from outside is passed on first.
    for (int step = 1; step <= machines(); ++step) {
      if (OnRail(at) && step < machines()) PassResult(at, Machine(at.machine, -step));
      CollectResults(at, step - 1);
    }
  }
}

// ---- reduce-scatter and all-to-all ----

// What a peer serves first: it has the farther to go.
void Levels::PublishBlocks(const Place& at) {
  const int r = at.rank;
  ForEachPeer(at, [&](int peer) {
    ForEachServed(PlaceOf(peer), 1, [&](int q) { b_->Copy(r, {Slot(r, q)}, In(r, q)); });
    b_->Copy(r, {Slot(r, peer)}, In(r, peer));
    Signal(r, peer);
  });
}

void Levels::ReduceScatter() {
  const int n = b_->ranks();
  const auto partial_slot = [n](int machine) { return n + machine; };
  for (int r = 0; r < n; ++r) {
    const Place at = PlaceOf(r);
    PublishBlocks(at);
    WaitForPeers(at);
    ForEachServed(at, 1, [&](int q) {
      Fold(r, {Slot(q, partial_slot(at.machine))}, Contributions(at, In(r, q), q));
      Signal(r, q);
    });
    const Operand own = OwnShare(at, In(r, r), r, partial_slot(at.machine));
    ForEachMachine(at, -1, [&](int c) { Wait(r, Agent(c, r)); });
    std::vector<Operand> shares;
    for (int c = 0; c < machines(); ++c) shares.push_back(c == at.machine ? own : Slot(r, partial_slot(c)));
    b_->Reduce(r, {Out(r)}, shares, State::kFinal);
  }
}

// The agents put a machine's blocks side by side and send them in one message.
void Levels::AllToAll() {
  const int n = b_->ranks();
  const auto arrival_slot = [n](int source) { return n + source; };
  for (int r = 0; r < n; ++r) {
    const Place at = PlaceOf(r);
    PublishBlocks(at);
    WaitForPeers(at);
    ForEachServed(at, 1, [&](int q) {
      for (int p : *at.local) b_->Copy(r, {Slot(q, arrival_slot(p))}, p == r ? In(r, q) : Slot(p, q));
      Signal(r, q);
    });
    b_->Copy(r, {Out(r, r)}, In(r, r));
    ForEachPeer(at, [&](int p) { b_->Copy(r, {Out(r, p)}, Slot(p, r)); });
    ForEachMachine(at, -1, [&](int c) {
      Wait(r, Agent(c, r));
      for (int p : p_.RanksOf(c)) b_->Copy(r, {Out(r, p)}, Slot(r, arrival_slot(p)));
    });
  }
}

// ---- all-gather ----

// In the order in which it passes them on: that in which they arrive.
std::vector<int> Levels::Served(int rank) const {
  std::vector<int> served;
  ForEachServed(PlaceOf(rank), -1, [&](int q) { served.push_back(q); });
  return served;
}

// Blocks number j that peers have from other machines.
void Levels::CollectBlocks(const Place& at, const std::vector<std::vector<int>>& served, size_t j) {
  ForEachPeer(at, [&](int p) {
    const std::vector<int>& theirs = served[static_cast<size_t>(p)];
    if (j >= theirs.size()) return;
    Wait(at.rank, p, static_cast<int>(j) + 2);
    b_->Copy(at.rank, {Out(at.rank, theirs[j])}, Slot(p, CopySlot(static_cast<int>(j))));
  });
}

void Levels::AllGather() {
  const int n = b_->ranks();
  std::vector<std::vector<int>> served;  // [rank]
  size_t most = 0;
  for (int r = 0; r < n; ++r) {
    served.push_back(Served(r));
    most = std::max(most, served.back().size());
  }
  const auto arrival_at = [&served](int agent, int rank) {
    const auto& list = served[static_cast<size_t>(agent)];
    return ArrivalSlot(static_cast<int>(std::find(list.begin(), list.end(), rank) - list.begin()));
  };
  for (int r = 0; r < n; ++r) {
    const Place at = PlaceOf(r);
    std::vector<Operand> dst;
    ForEachMachine(at, 1, [&](int c) { dst.push_back(Slot(Agent(c, r), arrival_at(Agent(c, r), r))); });
    if (!at.alone()) dst.push_back(Slot(r, 0));
    dst.push_back(Out(r, r));
    b_->Copy(r, dst, In(r));
    ForEachMachine(at, 1, [&](int c) { Signal(r, Agent(c, r)); });
    SignalPeers(at);
    ForEachPeer(at, [&](int p) {
      Wait(r, p);
      b_->Copy(r, {Out(r, p)}, Slot(p, 0));
    });
    const std::vector<int>& mine = served[static_cast<size_t>(r)];
    for (size_t j = 0; j <= most; ++j) {
      if (j < mine.size()) {
        Wait(r, mine[j]);
        std::vector<Operand> to = {Out(r, mine[j])};
        if (!at.alone()) to.push_back(Slot(r, CopySlot(static_cast<int>(j))));
        b_->Copy(r, to, Slot(r, ArrivalSlot(static_cast<int>(j))));
        SignalPeers(at);
      }
      if (j > 0) CollectBlocks(at, served, j - 1);
    }
  }
}

// ---- chains ----

// The root publishes all parts. A rail beside it is told of its own part before the others.
void Levels::BroadcastFromRoot(const Place& at) {
  const int next = Link(1);
  for (int i = 0; i < rails_; ++i) {
    const int rail = (at.index + i) % rails_;
    const bool own = OnRail(at) && rail == at.index;
    std::vector<Operand> dst = {Out(root_, 0, rail)};
    if (own) dst.push_back(Slot(Rail(next, rail), ChainSlot()));
    if (!at.alone()) dst.push_back(Slot(root_, rail));
    b_->Copy(root_, dst, In(root_, 0, rail));
    Signal(root_, own ? Rail(next, rail) : Rail(at.machine, rail));
  }
  SignalPeers(at);
}

void Levels::BroadcastBesideRoot(const Place& at) {
  const int r = at.rank;
  if (!OnRail(at)) {
    Wait(r, root_);
    return b_->Copy(r, {Out(r, 0, 0, rails_)}, Slot(root_, 0, rails_));
  }
  const int rail = at.index, to = Rail(Link(1), rail);
  Wait(r, root_);
  b_->Copy(r, {Slot(to, ChainSlot()), Out(r, 0, rail)}, Slot(root_, rail));
  Signal(r, to);
  Wait(r, root_, 2);
  const int behind = rails_ - rail - 1;
  if (rail > 0) b_->Copy(r, {Out(r, 0, 0, rail)}, Slot(root_, 0, rail));
  if (behind > 0) b_->Copy(r, {Out(r, 0, rail + 1, behind)}, Slot(root_, rail + 1, behind));
}

void Levels::BroadcastOn(const Place& at) {
  const int r = at.rank, rail = at.index, distance = Distance(at.machine);
  if (OnRail(at)) {
    std::vector<Operand> dst;
    const bool last = distance + 1 == machines();
    const int to = last ? -1 : Rail(Link(distance + 1), rail);
    if (!last) dst.push_back(Slot(to, ChainSlot()));
    if (!at.alone()) dst.push_back(Slot(r, rail));
    dst.push_back(Out(r, 0, rail));
    Wait(r, Rail(Link(distance - 1), rail));
    b_->Copy(r, dst, Slot(r, ChainSlot()));
    if (!last) Signal(r, to);
    SignalPeers(at);
  }
  for (int i = 0; i < rails_; ++i) {
    const int other = (at.index + i) % rails_;
    const int q = Rail(at.machine, other);
    if (q == r) continue;
    Wait(r, q);
    b_->Copy(r, {Out(r, 0, other)}, Slot(q, other));
  }
}

void Levels::Broadcast() {
  for (int r = 0; r < b_->ranks(); ++r) {
    const Place at = PlaceOf(r);
    if (r == root_) {
      BroadcastFromRoot(at);
    } else if (Distance(at.machine) == 0) {
      BroadcastBesideRoot(at);
    } else {
      BroadcastOn(at);
    }
  }
}

// Adds the machine's share of the rail's part to what comes from the machines behind.
void Levels::ReduceAlong(const Place& at) {
  const int r = at.rank, rail = at.index, distance = Distance(at.machine);
  const bool last = distance + 1 == machines();
  const int to = distance == 0 ? root_ : Rail(Link(distance - 1), rail);
  const Operand dst = distance > 0 ? Slot(to, ChainSlot()) : r == root_ ? Out(r, 0, rail) : Slot(r, rail);
  WaitForPeers(at);
  if (last) {
    Fold(r, {dst}, Contributions(at, In(r, 0, rail), rail));
  } else {
    const Operand own = OwnShare(at, In(r, 0, rail), rail, ChainSlot() + 1);
    Wait(r, Rail(Link(distance + 1), rail));
    b_->Reduce(r, {dst}, {own, Slot(r, ChainSlot())}, distance == 0 ? State::kFinal : State::kPartial);
  }
  if (r != root_) Signal(r, to);
}

void Levels::Reduce() {
  for (int r = 0; r < b_->ranks(); ++r) {
    const Place at = PlaceOf(r);
    for (int i = 1; i <= rails_; ++i) {
      const int rail = (at.index + i) % rails_;
      const int q = Rail(at.machine, rail);
      if (q == r) continue;
      b_->Copy(r, {Slot(r, rail)}, In(r, 0, rail));
      Signal(r, q);
    }
    if (OnRail(at)) ReduceAlong(at);
    for (int rail = 0; r == root_ && rail < rails_; ++rail) {
      const int q = Rail(at.machine, rail);
      if (q == r) continue;
      Wait(r, q, OnRail(at) ? 2 : 1);
      b_->Copy(r, {Out(r, 0, rail)}, Slot(q, rail));
    }
  }
}

// ---- gather, scatter, barrier ----

// Slot 0 of a rank has its block, slot 1 + q at the root that of rank q.
void Levels::Gather() {
  for (int r = 0; r < b_->ranks(); ++r) {
    const Place at = PlaceOf(r);
    const bool beside = Distance(at.machine) == 0;
    if (r == root_) {
      b_->Copy(r, {Out(r, r)}, In(r));
      ForEachPeer(at, [&](int q) {
        Wait(r, q);
        b_->Copy(r, {Out(r, q)}, Slot(q, 0));
      });
      ForEachMachine(at, 1, [&](int c) {
        Wait(r, Leader(c));
        for (int q : p_.RanksOf(c)) b_->Copy(r, {Out(r, q)}, Slot(r, 1 + q));
      });
    } else if (beside || r != Leader(at.machine)) {
      b_->Copy(r, {Slot(r, 0)}, In(r));
      Signal(r, beside ? root_ : Leader(at.machine));
    } else {
      for (int q : *at.local) {
        if (q != r) Wait(r, q);
        b_->Copy(r, {Slot(root_, 1 + q)}, q == r ? In(r) : Slot(q, 0));
      }
      Signal(r, root_);
    }
  }
}

// Slot 1 + q of a leader has the block of rank q, and slot 0 of a rank its own. The root has those of its machine itself.
void Levels::Scatter() {
  for (int r = 0; r < b_->ranks(); ++r) {
    const Place at = PlaceOf(r);
    if (r == root_) {
      ForEachMachine(at, 1, [&](int c) {
        for (int q : p_.RanksOf(c)) b_->Copy(r, {Slot(Leader(c), 1 + q)}, In(r, q));
        Signal(r, Leader(c));
      });
      ForEachPeer(at, [&](int q) {
        b_->Copy(r, {Slot(q, 0)}, In(r, q));
        Signal(r, q);
      });
      b_->Copy(r, {Out(r)}, In(r, r));
    } else if (Distance(at.machine) != 0 && r == Leader(at.machine)) {
      Wait(r, root_);
      ForEachPeer(at, [&](int q) {
        b_->Copy(r, {Slot(q, 0)}, Slot(r, 1 + q));
        Signal(r, q);
      });
      b_->Copy(r, {Out(r)}, Slot(r, 1 + r));
    } else {
      Wait(r, Distance(at.machine) == 0 ? root_ : Leader(at.machine));
      b_->Copy(r, {Out(r)}, Slot(r, 0));
    }
  }
}

void Levels::Barrier() {
  for (int r = 0; r < b_->ranks(); ++r) {
    const Place at = PlaceOf(r);
    const int leader = Leader(at.machine);
    if (r != leader) {
      Signal(r, leader);
      Wait(r, leader);
      continue;
    }
    WaitForPeers(at);
    ForEachMachine(at, 1, [&](int c) { Signal(r, Leader(c)); });
    ForEachMachine(at, -1, [&](int c) { Wait(r, Leader(c)); });
    SignalPeers(at);
  }
}

int PartsOf(Kind kind, int rails, int machines) {
  switch (kind) {
    case Kind::kAllReduce: return rails * machines;
    case Kind::kBroadcast:
    case Kind::kReduce: return rails;
    default: return 1;
  }
}

}  // namespace

plan::Schedule Hierarchical(const Contract& contract, const Placement& placement, int lanes) {
  Builder b(contract, kHierarchical, PartsOf(contract.kind, placement.Fewest(contract.ranks), placement.machines()));
  Levels levels(contract, placement, &b);
  switch (contract.kind) {
    case Kind::kAllReduce: levels.AllReduce(); break;
    case Kind::kReduceScatter: levels.ReduceScatter(); break;
    case Kind::kAllGather: levels.AllGather(); break;
    case Kind::kAllToAll: levels.AllToAll(); break;
    case Kind::kBroadcast: levels.Broadcast(); break;
    case Kind::kReduce: levels.Reduce(); break;
    case Kind::kGather: levels.Gather(); break;
    case Kind::kScatter: levels.Scatter(); break;
    case Kind::kBarrier: levels.Barrier(); break;
    case Kind::kSendRecv: break;  // two ranks have no levels
  }
  plan::Schedule schedule = b.Build(lanes);
  schedule.placement = placement;
  return schedule;
}

}  // namespace axccl::algo
