// Where the ranks of a machine belong: which processors, near which memory, and by which NIC.
//
// Ranks are dealt in order: evenly over the packages, in a package over its nodes, in a node over its groups of cores.
// Where there are fewer ranks than parts, each gets several parts that follow each other; ranks that are dealt to one
// group share it. So neighbours are near each other, and no rank's processors end within a cache.
//
// A process that may use only some of the machine's processors was bound by somebody who had a reason: its ranks get
// what it may use, no more and no less.
//
// A rank's NIC is one at a node of its own, else in a package of its own, else any; of those equally near the one that
// the ranks before it use least. Pure and thread-safe.
#pragma once

#include <string>
#include <vector>

#include "src/topo/machine.h"

namespace axccl::topo {

struct Seat {
  std::vector<int> processors;  // ascending
  std::vector<int> nodes;       // theirs, ascending
  int nic = kNowhere;           // index in the machine's; kNowhere where there is none

  bool operator==(const Seat&) const = default;
};

struct PlaceOptions {
  int ranks = 1;
  std::vector<int> allowed;       // processors that the process may use, ascending; empty: all
  std::vector<std::string> nics;  // those that may be chosen; empty: the fastest, those with hardware before others
};

// A seat for each rank.
std::vector<Seat> Place(const Machine& machine, const PlaceOptions& options);

}  // namespace axccl::topo
