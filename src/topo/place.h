// Assigns the ranks of a machine their processors, memory nodes and NICs.
//
// Ranks are assigned in order: evenly to the packages, in a package to its nodes, in a node to its groups of cores. If
// there are fewer ranks than parts, each rank gets several consecutive parts; ranks that are assigned to one group
// share it. So neighbours are near each other, and the processors of a rank never end within a cache.
//
// A process that may use only some of the machine's processors was bound for a reason: its ranks get exactly the
// processors that it may use.
//
// A rank gets a NIC at one of its nodes, else in one of its packages, else any; among equally near ones, the NIC that
// the ranks before it use least. Pure and thread-safe.
#pragma once

#include <string>
#include <vector>

#include "src/topo/machine.h"

namespace axccl::topo {

struct Seat {
  std::vector<int> processors;  // ascending
  std::vector<int> nodes;       // the nodes of the processors, ascending
  int nic = kNowhere;           // index in the machine's list; kNowhere if there is no NIC

  bool operator==(const Seat&) const = default;
};

struct PlaceOptions {
  int ranks = 1;
  std::vector<int> allowed;       // processors that the process may use, ascending; empty: all
  std::vector<std::string> nics;  // NICs that may be chosen; empty: the fastest, and hardware ones before virtual ones
};

// Returns a seat for each rank.
std::vector<Seat> Place(const Machine& machine, const PlaceOptions& options);

}  // namespace axccl::topo
