#include "src/plan/placement.h"

#include <algorithm>
#include <map>

namespace axccl::plan {

Placement Placement::Of(std::span<const int> machine_of) {
  Placement placement;
  std::map<int, int> number;
  for (size_t rank = 0; rank < machine_of.size(); ++rank) {
    const int machine = number.try_emplace(machine_of[rank], static_cast<int>(number.size())).first->second;
    if (static_cast<size_t>(machine) == placement.ranks_.size()) placement.ranks_.emplace_back();
    std::vector<int>& ranks = placement.ranks_[static_cast<size_t>(machine)];
    placement.machine_.push_back(machine);
    placement.local_.push_back(static_cast<int>(ranks.size()));
    ranks.push_back(static_cast<int>(rank));
  }
  return placement.ranks_.size() > 1 ? placement : Placement();
}

int Placement::FirstAlike(int rank) const {
  if (is_flat()) return 0;
  const auto ranks_beside = [this](int r) { return RanksOf(MachineOf(r)).size(); };
  int first = 0;
  while (ranks_beside(first) != ranks_beside(rank)) ++first;
  return first;
}

int Placement::Fewest(int group) const {
  size_t fewest = static_cast<size_t>(group);
  for (const auto& ranks : ranks_) fewest = std::min(fewest, ranks.size());
  return static_cast<int>(fewest);
}

int Placement::Most(int group) const {
  size_t most = is_flat() ? static_cast<size_t>(group) : 0;
  for (const auto& ranks : ranks_) most = std::max(most, ranks.size());
  return static_cast<int>(most);
}

}  // namespace axccl::plan
