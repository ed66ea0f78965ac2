// What all hierarchical schedules share: where ranks are, who carries what between machines, and the writing of one
// rank's program.
//
// Inside a machine ranks publish in their own scratch, as in one-shot and two-shot. Between machines the work is cut
// among the ranks: a *rail* is one rank of every machine, and as many rails as the smallest machine has ranks carry a
// share of the data each, so that all links of a machine are used and no rank moves more than its share. Ranks beyond
// those take part inside their machine only. What concerns a single rank (its block of a reduce-scatter or all-to-all)
// goes to and comes from the rank that *carries* it on the other machine, which has the same place there.
//
// No rank is told of another machine's data by a third rank, and none finds it in a third rank's scratch, for the slots
// a rank sends go with its own signals to the rank that reads them (src/exec/outbound.h): who passes something on
// stores it once more, in a slot of its own. A rank sends what it has for other machines first and does what is left
// inside while that travels.
//
// A rank's program depends on the contract, the placement and the rank alone.
#pragma once

#include <vector>

#include "src/algo/builder.h"
#include "src/plan/placement.h"

namespace axccl::algo {

// Where a rank is.
struct Place {
  int rank = 0;
  int machine = 0;
  int index = 0;  // among the ranks of its machine
  const std::vector<int>* local = nullptr;

  int size() const { return static_cast<int>(local->size()); }
  bool alone() const { return local->size() == 1; }
};

// Which ranks carry other ranks' blocks between machines.
enum class Carriers {
  kAll,      // of each machine: none has more than its share to do
  kRails,    // what is passed on from machine to machine stays on one rail
  kLeaders,  // the first of each machine, which is the only rail then
};

// A placement that has levels, which outlives this. Immutable.
class Levels {
 public:
  Levels(const plan::Placement& placement, Carriers carriers);

  int ranks() const { return p_.ranks(); }
  int machines() const { return p_.machines(); }
  int rails() const { return rails_; }

  Place PlaceOf(int rank) const;
  int MachineOf(int rank) const { return p_.MachineOf(rank); }
  const std::vector<int>& RanksOf(int machine) const { return p_.RanksOf(machine); }
  // The machine `step` places after `machine` on the circle of machines; `step` may be negative, and is a turn at most.
  int Machine(int machine, int step) const { return (machine + step + machines()) % machines(); }
  // From the first machine to the second, on the circle: 0 to machines - 1.
  int Distance(int from, int to) const { return (to - from + machines()) % machines(); }

  bool OnRail(const Place& at) const { return at.index < rails_; }
  int Rail(int machine, int rail) const { return RanksOf(machine)[static_cast<size_t>(rail)]; }
  int Leader(int machine) const { return Rail(machine, 0); }

  // The rank of a machine that carries the blocks of `rank`, which is on another.
  int Carrier(int machine, int rank) const { return Rail(machine, p_.LocalIndex(rank) % CarriersOf(machine)); }
  // The ranks of another machine whose blocks the rank carries, ascending, and where in that list `rank` is on a
  // machine.
  std::vector<int> Carried(const Place& at, int machine) const;
  int PositionAt(int machine, int rank) const { return p_.LocalIndex(rank) / CarriersOf(machine); }
  // No list is longer.
  int most_carried() const { return (most_ + rails_ - 1) / rails_; }
  // Of a machine.
  int most_ranks() const { return most_; }

  // The endpoint of a rank's signals to another. On machines of one size a rank signals only the rank in its own place
  // on another machine, or a single one in its stead; then few endpoints will do, else there is one for every rank.
  int Endpoint(int from, int to) const;
  // None from this one on is for a rank of the own machine.
  int near_endpoints() const { return even_ ? most_ : ranks(); }

 private:
  int CarriersOf(int machine) const {
    return carriers_ == Carriers::kAll ? static_cast<int>(RanksOf(machine).size()) : rails_;
  }

  const plan::Placement& p_;
  const Carriers carriers_;
  const int rails_;
  const int most_;
  const bool even_;  // machines of one size
};

// Writes the program of one rank.
class Writer {
 public:
  Writer(const Levels& levels, Builder* builder, int rank);

  const Place& at() const { return at_; }
  int rank() const { return at_.rank; }
  bool OnRail() const { return levels_.OnRail(at_); }

  void Copy(std::vector<plan::Operand> dst, const plan::Operand& src, State state = State::kPartial) {
    b_->Copy(rank(), std::move(dst), src, state);
  }
  // The fold of `src`; of a single one a copy.
  void Fold(std::vector<plan::Operand> dst, std::vector<plan::Operand> src, State state = State::kPartial);
  // What the ranks of the machine contribute to a part or block, in ascending order: the own input and the others'
  // slots.
  std::vector<plan::Operand> Contributions(const plan::Operand& own, int slot) const;
  // The machine's share of a fold, made ready in the own slot while those of others travel: the input where there is
  // nothing to fold.
  plan::Operand OwnShare(const plan::Operand& own, int slot);

  void Signal(int to) { b_->Signal(rank(), to, levels_.Endpoint(rank(), to)); }
  // For the next signal of `source` that has not been waited for.
  void Wait(int source);
  void SignalPeers();
  void WaitForPeers();

  // Calls f for the others of the own machine, those behind first: so not all read one's memory at the same time.
  template <class F>
  void ForEachPeer(F f) const {
    for (int step = 1; step < at_.size(); ++step) f((*at_.local)[static_cast<size_t>((at_.index + step) % at_.size())]);
  }

  // Contributions to parts of which every rail carries as many, one after the other: each is put into the slot of its
  // number, for the machine's rank on that rail.
  void PublishParts(int per_rail);
  // Takes from each of the machine's other rails what it has put into the slots of its parts number `first` and the
  // `count` - 1 after that, round the circle, before its next signal.
  void CollectParts(int per_rail, int first, int count);
  // Input blocks, in the slots of the numbers of the ranks they are for: for each peer what it carries to other
  // machines, which has the farther to go, then its own.
  void PublishBlocks();

 private:
  const Levels& levels_;
  Builder* const b_;
  const Place at_;
  std::vector<int> heard_;  // [rank] how many of its signals have been waited for
};

}  // namespace axccl::algo
