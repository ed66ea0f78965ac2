// Which ranks of a group are on the same machine and therefore share memory. Between machines, data travels in
// messages.
//
// Placements are canonical: machines are numbered by their first rank, so groups that are spread alike have equal
// placements. A group on one machine has the default placement, whatever its size. All ranks of a group hold the same
// placement. An immutable value.
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
  // machine_of[rank]: any number that is the same for all ranks of one machine.
  static Placement Of(std::span<const int> machine_of);

  bool is_flat() const { return machine_.empty(); }
  // True for more than one machine of which at least one has more than one rank. Plans in two levels are for such
  // placements.
  bool has_levels() const { return !is_flat() && machine_.size() > ranks_.size(); }
  // The ranks of the group; 0 where the placement is flat, because it then fits a group of any size.
  int ranks() const { return static_cast<int>(machine_.size()); }
  int machines() const { return is_flat() ? 1 : static_cast<int>(ranks_.size()); }
  int MachineOf(int rank) const { return is_flat() ? 0 : machine_[static_cast<size_t>(rank)]; }
  bool Apart(int a, int b) const { return MachineOf(a) != MachineOf(b); }
  // The ranks of a machine, ascending, and a rank's index among them. Not for flat placements.
  const std::vector<int>& RanksOf(int machine) const { return ranks_[static_cast<size_t>(machine)]; }
  int LocalIndex(int rank) const { return local_[static_cast<size_t>(rank)]; }
  // The lowest rank whose machine has as many ranks as that of `rank`; 0 where the placement is flat.
  int FirstAlike(int rank) const;
  // The number of ranks of the machine that has the fewest (the most), in a group of `group` ranks.
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
