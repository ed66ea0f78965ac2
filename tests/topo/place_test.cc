// Where ranks are placed, on machines of every shape.
#include <gtest/gtest.h>

#include <numeric>
#include <set>

#include "src/topo/place.h"
#include "tests/topo/machines.h"

namespace axccl::test {
namespace {

using topo::Machine;
using topo::Seat;

// "0-7,32-39 @0 eth0" of each rank.
std::vector<std::string> Placed(const Machine& machine, const topo::PlaceOptions& options) {
  std::vector<std::string> texts;
  for (const Seat& seat : topo::Place(machine, options)) {
    texts.push_back(topo::RangeText(seat.processors) + " @" + topo::RangeText(seat.nodes) + " " +
                    (seat.nic == topo::kNowhere ? "-" : machine.nics[static_cast<size_t>(seat.nic)].name));
  }
  return texts;
}

struct Case {
  const char* machine;
  int ranks;
  std::string allowed;  // ranges; empty: all
  std::vector<std::string> expected;
};

TEST(Place, DealsRanksOverPackagesNodesAndCaches) {
  const std::vector<Case> cases = {
      // The whole machine, and one of two NICs that are equally near.
      {"two_packages", 1, "", {"0-63 @0-3 eth0"}},
      // One package each.
      {"two_packages", 2, "", {"0-15,32-47 @0-1 eth0", "16-31,48-63 @2-3 eth1"}},
      // As even as possible: one has a package, two share the other.
      {"two_packages", 3, "", {"0-15,32-47 @0-1 eth0", "16-23,48-55 @2 eth1", "24-31,56-63 @3 eth1"}},
      // One node each; the NIC is at a neighbour node, but in the same package.
      {"two_packages",
       4,
       "",
       {"0-7,32-39 @0 eth0", "8-15,40-47 @1 eth0", "16-23,48-55 @2 eth1", "24-31,56-63 @3 eth1"}},
      // More ranks than caches share them.
      {"laptop", 2, "", {"0-5 @0 wlan0", "0-5 @0 wlan0"}},
      // A node in two packages; NICs that belong to no node: the fastest.
      {"odd", 2, "", {"0,2 @0 ib0", "1,3 @0 ib0"}},
      // The process is bound already: that stays, and node and NIC follow.
      {"two_packages", 2, "20-23", {"20-23 @2 eth1", "20-23 @2 eth1"}},
      {"two_packages", 2, "12,24", {"12,24 @1,3 eth0", "12,24 @1,3 eth1"}},
      // The process may use all processors, and others that the machine's description lacks.
      {"laptop", 1, "0-7", {"0-5 @0 wlan0"}},
      // The description is of another machine.
      {"laptop", 1, "100-101", {" @ wlan0"}},
  };
  for (const Case& c : cases) {
    topo::PlaceOptions options;
    options.ranks = c.ranks;
    options.allowed = topo::ParseRanges(c.allowed);
    EXPECT_EQ(Placed(ReadMachine(c.machine), options), c.expected)
        << c.machine << ", ranks " << c.ranks << ", allowed " << c.allowed;
  }
}

// For every number of ranks: every processor is used if there are enough ranks, no rank crosses a node unless there are
// fewer ranks than nodes, and loads of packages differ by at most one.
TEST(Place, IsEvenForAnyNumberOfRanks) {
  const Machine machine = ReadMachine("two_packages");
  const std::vector<int> all = machine.Processors();
  for (int ranks = 1; ranks <= 70; ++ranks) {
    topo::PlaceOptions options;
    options.ranks = ranks;
    const std::vector<Seat> seats = topo::Place(machine, options);
    ASSERT_EQ(seats.size(), static_cast<size_t>(ranks));
    std::set<int> used;
    std::vector<int> of_package(2);
    int last = -1;
    for (const Seat& seat : seats) {
      ASSERT_FALSE(seat.processors.empty());
      used.insert(seat.processors.begin(), seat.processors.end());
      if (ranks >= 4) {
        EXPECT_EQ(seat.nodes.size(), 1u) << ranks;
      }
      EXPECT_GE(seat.nodes.front(), last) << "the seats are not in order";
      last = seat.nodes.front();
      ++of_package[static_cast<size_t>(machine.PackageOf(seat.nodes.front()))];
    }
    EXPECT_EQ(std::vector<int>(used.begin(), used.end()), all) << ranks;
    if (ranks > 1) {
      EXPECT_LE(std::abs(of_package[0] - of_package[1]), 1) << ranks;
    }
  }
}

TEST(Place, NicsThatAreEquallyNearTakeTurns) {
  Machine machine = ReadMachine("two_packages");
  machine.nics = {{"a0", topo::NicKind::kEthernet, 100000, 0},
                  {"a1", topo::NicKind::kEthernet, 100000, 0},
                  {"slow", topo::NicKind::kEthernet, 1000, 0},
                  {"far", topo::NicKind::kEthernet, 100000, 3},
                  {"veth", topo::NicKind::kVirtual, 200000, topo::kNowhere}};
  topo::PlaceOptions options;
  options.ranks = 8;
  std::vector<std::string> nics;
  for (const Seat& seat : topo::Place(machine, options))
    nics.push_back(machine.nics[static_cast<size_t>(seat.nic)].name);
  EXPECT_EQ(nics, (std::vector<std::string>{"a0", "a1", "a0", "a1", "far", "far", "far", "far"}));
}

TEST(Place, OnlyTheNamedNicsAreChosen) {
  const Machine machine = ReadMachine("two_packages");
  topo::PlaceOptions options;
  options.ranks = 2;
  options.nics = {"eth1", "eth9"};
  for (const Seat& seat : topo::Place(machine, options))
    EXPECT_EQ(machine.nics[static_cast<size_t>(seat.nic)].name, "eth1");
  options.nics = {"eth9"};
  for (const Seat& seat : topo::Place(machine, options)) EXPECT_EQ(seat.nic, topo::kNowhere);
}

TEST(Place, MachinesWithoutNicsAndRanksAreFine) {
  Machine machine = ReadMachine("laptop");
  machine.nics.clear();
  topo::PlaceOptions options;
  EXPECT_EQ(topo::Place(machine, options).at(0).nic, topo::kNowhere);
  options.ranks = 0;
  EXPECT_TRUE(topo::Place(machine, options).empty());
}

}  // namespace
}  // namespace axccl::test
