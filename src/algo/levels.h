// What all hierarchical schedules share: the places of ranks, the choice of the ranks that carry data between machines,
// and the writing of one rank's program.
//
// Inside a machine, ranks publish in their own scratch, as in one-shot and two-shot. Between machines the work is
// divided among the ranks. With a row for each machine, a *column* is one rank of every machine. There are as many
// columns as the smallest machine has ranks, and each carries a share of the data, so that all links of a machine are
// used and no rank moves more than its share. Other ranks take part inside their machine only. Data for a single rank
// (its block of a reduce-scatter or all-to-all) goes to and comes from the rank that *carries* it on the other machine,
// which has the same index there.
//
// A rank gets another machine's data only with signals of the rank that wrote it, never through a third rank or from a
// third rank's scratch, because the slots that a rank sends travel with its own signals to the rank that reads them
// (src/exec/prepared/outbound.h). A rank that passes data on therefore stores it once more, in a slot of its own. A
// rank first sends what it has for other machines, and does the remaining work inside the machine while that travels.
//
// A rank's program depends on the contract, the placement and the rank alone.
#pragma once

#include <vector>

#include "src/algo/builder.h"
#include "src/plan/placement.h"

namespace axccl::algo {

// The place of a rank.
struct Place {
  int rank = 0;
  int machine = 0;
  int index = 0;  // among the ranks of its machine
  const std::vector<int>* local = nullptr;

  int size() const { return static_cast<int>(local->size()); }
  bool alone() const { return local->size() == 1; }
};

// The ranks that carry other ranks' blocks between machines.
enum class Carriers {
  kAll,      // all ranks of each machine, so that none does more than its share
  kColumns,  // the ranks in columns, so that data passed on from machine to machine stays in one column
  kLeaders,  // the first rank of each machine; there is only one column then
};

// Derived from a placement that has levels and that must outlive this object. Immutable.
class Levels {
 public:
  Levels(const plan::Placement& placement, Carriers carriers);

  int ranks() const { return p_.ranks(); }
  int machines() const { return p_.machines(); }
  int columns() const { return columns_; }

  Place PlaceOf(int rank) const;
  int MachineOf(int rank) const { return p_.MachineOf(rank); }
  const std::vector<int>& RanksOf(int machine) const { return p_.RanksOf(machine); }
  // The machine `step` places after `machine` on the circle of machines; `step` may be negative, but at most once
  // around.
  int Machine(int machine, int step) const { return (machine + step + machines()) % machines(); }
  // The distance from the first machine to the second on the circle: 0 to machines - 1.
  int Distance(int from, int to) const { return (to - from + machines()) % machines(); }

  bool InColumn(const Place& at) const { return at.index < columns_; }
  int Column(int machine, int column) const { return RanksOf(machine)[static_cast<size_t>(column)]; }
  int Leader(int machine) const { return Column(machine, 0); }

  // The rank of a machine that carries the blocks of `rank`, which is on another machine.
  int Carrier(int machine, int rank) const { return Column(machine, p_.LocalIndex(rank) % CarriersOf(machine)); }
  // Carried: the ranks of another machine whose blocks the rank carries, ascending. PositionAt: the index of `rank` in
  // the list of its carrier on a machine.
  std::vector<int> Carried(const Place& at, int machine) const;
  int PositionAt(int machine, int rank) const { return p_.LocalIndex(rank) / CarriersOf(machine); }
  // The length of the longest list of Carried.
  int most_carried() const { return (most_ + columns_ - 1) / columns_; }
  // The number of ranks of the largest machine.
  int most_ranks() const { return most_; }

  // The endpoint of a rank's signals to another rank. On machines of one size, a rank signals only one rank of each
  // other machine, so few endpoints are enough; otherwise there is one for every rank.
  int Endpoint(int from, int to) const;
  // Endpoints below this one are for ranks of the same machine.
  int near_endpoints() const { return even_ ? most_ : ranks(); }

 private:
  int CarriersOf(int machine) const {
    return carriers_ == Carriers::kAll ? static_cast<int>(RanksOf(machine).size()) : columns_;
  }

  const plan::Placement& p_;
  const Carriers carriers_;
  const int columns_;
  const int most_;
  const bool even_;  // all machines have the same number of ranks
};

// Writes the program of one rank.
class Writer {
 public:
  Writer(const Levels& levels, Builder* builder, int rank);

  const Place& at() const { return at_; }
  int rank() const { return at_.rank; }
  bool InColumn() const { return levels_.InColumn(at_); }

  void Copy(std::vector<plan::Operand> dst, const plan::Operand& src, State state = State::kPartial) {
    b_->Copy(rank(), std::move(dst), src, state);
  }
  // Writes the fold of `src`, or a copy if there is only one source.
  void Fold(std::vector<plan::Operand> dst, std::vector<plan::Operand> src, State state = State::kPartial);
  // What the ranks of the machine contribute to a part or block, in ascending order: `own` for this rank, and the slots
  // of the others.
  std::vector<plan::Operand> Contributions(const plan::Operand& own, int slot) const;
  // The machine's share of a fold. It is computed into this rank's slot while the shares of other machines travel; if
  // the machine has one rank, it is the input itself.
  plan::Operand OwnShare(const plan::Operand& own, int slot);

  void Signal(int to) { b_->Signal(rank(), to, levels_.Endpoint(rank(), to)); }
  // Waits for the next signal of `source`.
  void Wait(int source);
  void SignalPeers();
  void WaitForPeers();

  // Calls f for the other ranks of the machine, starting behind this rank, so that not all read the same memory at
  // once.
  template <class F>
  void ForEachPeer(F f) const {
    for (int step = 1; step < at_.size(); ++step) f((*at_.local)[static_cast<size_t>((at_.index + step) % at_.size())]);
  }

  // Publishes contributions to parts, of which every column carries `per_column` consecutive ones: copies each part
  // into the slot of its number, for the machine's rank in that column.
  void PublishParts(int per_column);
  // Waits for the machine's rank in each other column and copies parts from its slots to the output: of its
  // `per_column` parts, `count` from number `first` on, wrapping around.
  void CollectParts(int per_column, int first, int count);
  // Publishes input blocks, each in the slot with the number of the rank that it is for. For each peer, the blocks that
  // it carries to other machines come first, because they have farther to go, then the peer's own block.
  void PublishBlocks();

 private:
  const Levels& levels_;
  Builder* const b_;
  const Place at_;
  std::vector<int> heard_;  // [rank]: number of its signals that were waited for
};

}  // namespace axccl::algo
