// Which ranks of a group are on one machine, and so share memory; between machines data goes in messages.
//
// Canonical: machines are numbered by their first rank, so that groups which are spread alike have equal placements,
// and a group on one machine has the default one, whatever its size. All ranks of a group hold the same placement. An
// immutable value.
#pragma once

#include <compare>
#include <cstdint>
#include <span>
#include <vector>

namespace axccl::plan {

class Placement {
 public:
  // All ranks are on one machine.
  Placement() = default;
  // machine_of[rank]: any number that the ranks of one machine have in common.
  static Placement Of(std::span<const int> machine_of);

  bool is_flat() const { return machine_.empty(); }
  // More than one machine, one of which has more than one rank: what plans in two levels are for.
  bool has_levels() const { return !is_flat() && machine_.size() > ranks_.size(); }
  // Of the group; 0 where it is flat and so any number.
  int ranks() const { return static_cast<int>(machine_.size()); }
  int machines() const { return is_flat() ? 1 : static_cast<int>(ranks_.size()); }
  int MachineOf(int rank) const { return is_flat() ? 0 : machine_[static_cast<size_t>(rank)]; }
  bool Apart(int a, int b) const { return MachineOf(a) != MachineOf(b); }
  // The ranks of a machine, ascending, and a rank's place among those of its machine. Not where it is flat.
  const std::vector<int>& RanksOf(int machine) const { return ranks_[static_cast<size_t>(machine)]; }
  int LocalIndex(int rank) const { return local_[static_cast<size_t>(rank)]; }
  // Ranks of the machine that has fewest and most, in a group of so many.
  int Fewest(int group) const;
  int Most(int group) const;

  friend bool operator==(const Placement& a, const Placement& b) { return a.machine_ == b.machine_; }
  friend auto operator<=>(const Placement& a, const Placement& b) { return a.machine_ <=> b.machine_; }

 private:
  std::vector<int> machine_;             // [rank]
  std::vector<int> local_;               // [rank]
  std::vector<std::vector<int>> ranks_;  // [machine]
};

}  // namespace axccl::plan
