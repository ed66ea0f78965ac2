// Between machines, for kinds that neither fold nor replicate data: all-to-all, gather and scatter; and the barrier.
//
//   direct       the blocks of a machine for one rank elsewhere are put side by side and sent to it in one message, so
//                there is one message for every rank of another machine. Gather and scatter send all blocks of a
//                machine in one message.
//   logarithmic  all-to-all and barrier in a logarithmic number of rounds: in round j every machine sends to the
//   machine
//                2^j places ahead all data whose distance has bit j set. A block crosses once for each bit, so this is
//                for small blocks on many machines. (J. Bruck et al., IEEE TPDS 8(11), 1997; D. Hensgen, R. Finkel,
//                U. Manber, "Two algorithms for barrier synchronization", IJPP 17(1), 1988.)
#include <algorithm>
#include <bit>
#include <utility>
#include <vector>

#include "src/algo/builder.h"
#include "src/algo/hierarchical.h"
#include "src/algo/levels.h"

namespace axccl::algo {

using plan::Kind;
using plan::Operand;

namespace {

// Where rank `reader` finds what rank p of its machine has published for rank q.
Operand Published(int reader, int p, int q) { return p == reader ? In(p, q) : Slot(p, q); }

void CollectPeers(Writer* w) {
  const int r = w->rank();
  w->Copy({Out(r, r)}, In(r, r));
  w->ForEachPeer([&](int p) { w->Copy({Out(r, p)}, Slot(p, r)); });
}

void AllToAll(const Levels& levels, Builder* b) {
  const int n = b->ranks();
  const auto arrival = [n](int source) { return n + source; };
  for (const int r : b->programmed()) {
    Writer w(levels, b, r);
    const int machine = w.at().machine;
    w.PublishBlocks();
    w.WaitForPeers();
    for (int d = 1; d < levels.machines(); ++d) {
      for (int q : levels.Carried(w.at(), levels.Machine(machine, d))) {
        for (int p : *w.at().local) w.Copy({Slot(q, arrival(p))}, Published(r, p, q));
        w.Signal(q);
      }
    }
    CollectPeers(&w);
    for (int d = 1; d < levels.machines(); ++d) {
      const int from = levels.Machine(machine, -d);
      w.Wait(levels.Carrier(from, r));
      for (int p : levels.RanksOf(from)) w.Copy({Out(r, p)}, Slot(r, arrival(p)));
    }
  }
}

// The blocks of a machine for a rank d machines ahead form a *bundle*. It moves by 2^j in round j for every bit j set
// in d, along a column, and in the last of these rounds to the rank itself. Each round has its own slots for what it
// brings.
class BundleExchange {
 public:
  BundleExchange(const Levels& levels, Builder* builder) : levels_(levels), b_(builder) {}

  void Write(int rank) const;

 private:
  int machines() const { return levels_.machines(); }
  // The first slot in which a round delivers the bundle of a distance that has this position among the bundles of its
  // column.
  int SlotOf(int round, int distance, int position) const;
  void SendRound(Writer* w, int round) const;
  void TakeRound(Writer* w, int round) const;

  const Levels& levels_;
  Builder* const b_;
};

int Rounds(int machines) { return std::bit_width(static_cast<unsigned>(machines - 1)); }
// The number of distances below `end` that have bit j set.
int CountWithBit(int end, int j) {
  const int period = 2 << j;
  return end / period * (period / 2) + std::max(0, end % period - period / 2);
}

int BundleExchange::SlotOf(int round, int distance, int position) const {
  int before = 0;
  for (int j = 0; j < round; ++j) before += CountWithBit(machines(), j);
  const int bundle = (before + CountWithBit(distance, round)) * levels_.most_carried() + position;
  return levels_.ranks() + bundle * levels_.most_ranks();
}

// A bundle that came from another machine lies in consecutive slots.
void BundleExchange::SendRound(Writer* w, int round) const {
  const Place& at = w->at();
  const int skip = 1 << round, next = levels_.Machine(at.machine, skip);
  for (int d = skip; d < machines(); ++d) {
    if ((d & skip) == 0) continue;
    const int gone = d & (skip - 1);  // the distance covered so far
    const int origin = levels_.Machine(at.machine, -gone);
    const int blocks = static_cast<int>(levels_.RanksOf(origin).size());
    const std::vector<int> ranks = levels_.Carried(at, levels_.Machine(origin, d));
    for (int i = 0; i < static_cast<int>(ranks.size()); ++i) {
      const int q = ranks[static_cast<size_t>(i)];
      const int to = d < 2 * skip ? q : levels_.Column(next, at.index);
      int slot = SlotOf(round, d, i);
      if (gone == 0) {
        for (int p : *at.local) w->Copy({Slot(to, slot++)}, Published(at.rank, p, q));
      } else {
        const int last = std::bit_width(static_cast<unsigned>(gone)) - 1;  // the round that delivered it
        w->Copy({Slot(to, slot, blocks)}, Slot(at.rank, SlotOf(last, d, i), blocks));
      }
    }
  }
  for (int q : levels_.Carried(at, next)) w->Signal(q);
}

void BundleExchange::TakeRound(Writer* w, int round) const {
  const Place& at = w->at();
  const int skip = 1 << round;
  w->Wait(levels_.Carrier(levels_.Machine(at.machine, -skip), at.rank));
  for (int d = skip; d < std::min(2 * skip, machines()); ++d) {
    int slot = SlotOf(round, d, levels_.PositionAt(at.machine, at.rank));
    for (int p : levels_.RanksOf(levels_.Machine(at.machine, -d))) w->Copy({Out(at.rank, p)}, Slot(at.rank, slot++));
  }
}

void BundleExchange::Write(int rank) const {
  Writer w(levels_, b_, rank);
  w.PublishBlocks();
  w.WaitForPeers();
  if (w.InColumn()) SendRound(&w, 0);
  CollectPeers(&w);
  for (int round = 0; round < Rounds(machines()); ++round) {
    if (round > 0 && w.InColumn()) SendRound(&w, round);
    TakeRound(&w, round);
  }
}

// ---- gather, scatter ----

// Slot 0 of a rank holds its block; slot 1 + q at the root holds the block of rank q.
void Gather(const Levels& levels, Builder* b, int root) {
  const int root_machine = levels.MachineOf(root);
  for (const int r : b->programmed()) {
    Writer w(levels, b, r);
    const int machine = w.at().machine;
    if (r == root) {
      w.Copy({Out(r, r)}, In(r));
      w.ForEachPeer([&](int q) {
        w.Wait(q);
        w.Copy({Out(r, q)}, Slot(q, 0));
      });
      for (int d = 1; d < levels.machines(); ++d) {
        const int from = levels.Machine(machine, d);
        w.Wait(levels.Leader(from));
        for (int q : levels.RanksOf(from)) w.Copy({Out(r, q)}, Slot(r, 1 + q));
      }
    } else if (machine == root_machine || r != levels.Leader(machine)) {
      w.Copy({Slot(r, 0)}, In(r));
      w.Signal(machine == root_machine ? root : levels.Leader(machine));
    } else {
      for (int q : *w.at().local) {
        if (q != r) w.Wait(q);
        w.Copy({Slot(root, 1 + q)}, q == r ? In(r) : Slot(q, 0));
      }
      w.Signal(root);
    }
  }
}

// Slot 1 + q of a leader holds the block of rank q; slot 0 of a rank holds its own. The root distributes the blocks of
// its own machine itself.
void Scatter(const Levels& levels, Builder* b, int root) {
  const int root_machine = levels.MachineOf(root);
  for (const int r : b->programmed()) {
    Writer w(levels, b, r);
    const int machine = w.at().machine;
    if (r == root) {
      for (int d = 1; d < levels.machines(); ++d) {
        const int to = levels.Machine(machine, d);
        for (int q : levels.RanksOf(to)) w.Copy({Slot(levels.Leader(to), 1 + q)}, In(r, q));
        w.Signal(levels.Leader(to));
      }
      w.ForEachPeer([&](int q) {
        w.Copy({Slot(q, 0)}, In(r, q));
        w.Signal(q);
      });
      w.Copy({Out(r)}, In(r, r));
    } else if (machine != root_machine && r == levels.Leader(machine)) {
      w.Wait(root);
      w.ForEachPeer([&](int q) {
        w.Copy({Slot(q, 0)}, Slot(r, 1 + q));
        w.Signal(q);
      });
      w.Copy({Out(r)}, Slot(r, 1 + r));
    } else {
      w.Wait(machine == root_machine ? root : levels.Leader(machine));
      w.Copy({Out(r)}, Slot(r, 0));
    }
  }
}

// ---- barrier ----

void Barrier(const Levels& levels, Builder* b, Messages messages) {
  const bool direct = messages == Messages::kDirect;
  for (const int r : b->programmed()) {
    Writer w(levels, b, r);
    const int machine = w.at().machine, leader = levels.Leader(machine);
    if (r != leader) {
      w.Signal(leader);
      w.Wait(leader);
      continue;
    }
    w.WaitForPeers();
    for (int skip = 1; skip < levels.machines(); skip += direct ? 1 : skip) {
      w.Signal(levels.Leader(levels.Machine(machine, skip)));
      if (!direct) w.Wait(levels.Leader(levels.Machine(machine, -skip)));
    }
    for (int skip = 1; direct && skip < levels.machines(); ++skip)
      w.Wait(levels.Leader(levels.Machine(machine, -skip)));
    w.SignalPeers();
  }
}

}  // namespace

int BundleSlots(const plan::Placement& placement) {
  const Levels levels(placement, Carriers::kColumns);
  int bundles = 0;
  for (int j = 0; j < Rounds(levels.machines()); ++j) bundles += CountWithBit(levels.machines(), j);
  return levels.ranks() + bundles * levels.most_carried() * levels.most_ranks();
}

plan::Schedule ExchangeBlocks(const Form& form, Messages messages) {
  const bool direct = messages == Messages::kDirect;
  const Levels levels(form.placement, direct ? Carriers::kAll : Carriers::kColumns);
  Builder b(form.contract, form.algorithm, 1, form.only);
  switch (form.contract.kind) {
    case Kind::kGather:
      Gather(levels, &b, form.contract.root);
      break;
    case Kind::kScatter:
      Scatter(levels, &b, form.contract.root);
      break;
    case Kind::kBarrier:
      Barrier(levels, &b, messages);
      break;
    default:
      if (direct) {
        AllToAll(levels, &b);
      } else {
        for (const int r : b.programmed()) BundleExchange(levels, &b).Write(r);
      }
  }
  return b.Build(form.lanes);
}

}  // namespace axccl::algo
