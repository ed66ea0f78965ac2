#include "src/topo/place.h"

#include <algorithm>
#include <map>
#include <set>

namespace axccl::topo {
namespace {

// A part of a machine, down to the groups.
struct Part {
  std::vector<Part> parts;
  std::vector<const Group*> groups;  // all groups in the part
};

Part Join(std::vector<Part> parts) {
  Part whole;
  for (const Part& part : parts) whole.groups.insert(whole.groups.end(), part.groups.begin(), part.groups.end());
  whole.parts = std::move(parts);
  return whole;
}

Part PartsOf(const Machine& machine) {
  std::vector<Part> packages;
  for (const Package& package : machine.packages) {
    std::map<int, std::vector<Part>> groups_of;  // by node
    for (const Group& group : package.groups) groups_of[group.node].push_back(Part{{}, {&group}});
    std::vector<Part> nodes;
    for (auto& [node, groups] : groups_of) nodes.push_back(Join(std::move(groups)));
    packages.push_back(Join(std::move(nodes)));
  }
  return Join(std::move(packages));
}

using Groups = std::vector<const Group*>;

// Assigns ranks `first` to `first + count` - 1 within `part`.
void Deal(const Part& part, size_t first, size_t count, std::vector<Groups>* of_rank) {
  const size_t parts = part.parts.size();
  for (size_t i = 0; parts == 0 && i < count; ++i) (*of_rank)[first + i] = part.groups;
  for (size_t p = 0; count >= parts && p < parts; ++p) {
    const size_t begin = p * count / parts, end = (p + 1) * count / parts;
    Deal(part.parts[p], first + begin, end - begin, of_rank);
  }
  for (size_t i = 0; count < parts && i < count; ++i) {
    Groups& own = (*of_rank)[first + i];
    for (size_t p = i * parts / count; p < (i + 1) * parts / count; ++p)
      own.insert(own.end(), part.parts[p].groups.begin(), part.parts[p].groups.end());
  }
}

Seat SeatOf(const Groups& groups, const std::set<int>& allowed) {
  std::set<int> processors, nodes;
  for (const Group* group : groups) {
    for (const Core& core : group->cores) {
      for (const int processor : core.processors) {
        if (!allowed.contains(processor)) continue;
        processors.insert(processor);
        nodes.insert(group->node);
      }
    }
  }
  return {{processors.begin(), processors.end()}, {nodes.begin(), nodes.end()}, kNowhere};
}

std::vector<size_t> Candidates(const Machine& machine, const std::vector<std::string>& names) {
  std::vector<size_t> candidates;
  const auto best = [&](const Nic& a, const Nic& b) {
    return std::pair(a.kind != NicKind::kVirtual, a.megabits) < std::pair(b.kind != NicKind::kVirtual, b.megabits);
  };
  const auto top = std::max_element(machine.nics.begin(), machine.nics.end(), best);
  for (size_t i = 0; i < machine.nics.size(); ++i) {
    const bool named = std::find(names.begin(), names.end(), machine.nics[i].name) != names.end();
    if (names.empty() ? !best(machine.nics[i], *top) : named) candidates.push_back(i);
  }
  return candidates;
}

// 0: at a node of the seat; 1: in a package of the seat; 2: elsewhere or unknown.
int Distance(const Machine& machine, const Seat& seat, int node) {
  if (node == kNowhere) return 2;
  if (std::find(seat.nodes.begin(), seat.nodes.end(), node) != seat.nodes.end()) return 0;
  const int package = machine.PackageOf(node);
  const bool near = package != kNowhere && std::any_of(seat.nodes.begin(), seat.nodes.end(),
                                                       [&](int own) { return machine.PackageOf(own) == package; });
  return near ? 1 : 2;
}

}  // namespace

std::vector<Seat> Place(const Machine& machine, const PlaceOptions& options) {
  const std::vector<int> all = machine.Processors();
  const auto& allowed = options.allowed.empty() ? all : options.allowed;
  const std::set<int> usable(allowed.begin(), allowed.end());
  const Part whole = PartsOf(machine);
  std::vector<Groups> of_rank(static_cast<size_t>(options.ranks));
  if (std::includes(allowed.begin(), allowed.end(), all.begin(), all.end()))
    Deal(whole, 0, of_rank.size(), &of_rank);
  else
    std::fill(of_rank.begin(), of_rank.end(), whole.groups);

  const std::vector<size_t> candidates = Candidates(machine, options.nics);
  std::vector<size_t> users(machine.nics.size());
  std::vector<Seat> seats;
  for (const Groups& groups : of_rank) {
    Seat seat = SeatOf(groups, usable);
    const auto nearer = [&](size_t a, size_t b) {
      return std::pair(Distance(machine, seat, machine.nics[a].node), users[a]) <
             std::pair(Distance(machine, seat, machine.nics[b].node), users[b]);
    };
    const auto nearest = std::min_element(candidates.begin(), candidates.end(), nearer);
    if (nearest != candidates.end()) {
      seat.nic = static_cast<int>(*nearest);
      ++users[*nearest];
    }
    seats.push_back(std::move(seat));
  }
  return seats;
}

}  // namespace axccl::topo
