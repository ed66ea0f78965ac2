// Which of the interfaces that data may use are chosen by ranks that are near some of them.
#include <gtest/gtest.h>

#include "src/comm/net/placement.h"
#include "tests/topo/machines.h"

namespace axccl::test {
namespace {

using boot::Interface;
using topo::NicKind;

// Two packages, each with a NIC of the fast network; two slower NICs; one of another network.
topo::Machine Machine() {
  topo::Machine machine = ReadMachine("two_packages");
  machine.nics = {{"fast0", NicKind::kEthernet, 100000, 0}, {"fast1", NicKind::kEthernet, 100000, 2},
                  {"slow0", NicKind::kEthernet, 1000, 0},   {"ib0", NicKind::kInfiniband, 100000, 3},
                  {"rail1", NicKind::kEthernet, 100000, 3}, {"lost", NicKind::kEthernet, 100000, topo::kNowhere}};
  return machine;
}

Interface On(const char* name, std::vector<std::string> networks) {
  return {name, false, {}, true, true, std::move(networks)};
}

std::vector<Interface> Interfaces() {
  return {On("fast0", {"10.0.0.0/24"}), On("fast1", {"10.0.0.0/24"}), On("slow0", {"10.0.0.0/24"}),
          On("ib0", {"10.0.0.0/24"}),   On("rail1", {"10.0.1.0/24"}), On("lost", {"10.0.0.0/24"}),
          On("vlan7", {"10.0.0.0/24"})};
}

struct Case {
  const char* why;
  std::vector<std::string> names;
  comm::LocalRanks local;
  std::vector<int> allowed;
  std::vector<std::string> expected;
};

TEST(NearInterfaces, AreChosenOnlyAmongThoseThatCanStandForEachOther) {
  const std::vector<Case> cases = {
      {"one interface", {"fast0"}, {2, 1, {1}}, {}, {"fast0"}},
      {"the first rank is at the first package", {"fast0", "fast1"}, {2, 0, {0}}, {}, {"fast0"}},
      {"the second at the second", {"fast0", "fast1"}, {2, 1, {1}}, {}, {"fast1"}},
      {"both in one process", {"fast0", "fast1"}, {2, 1, {0, 1}}, {}, {"fast0", "fast1"}},
      {"a lone rank uses all, since no other rank does", {"fast0", "fast1"}, {1, 0, {0}}, {}, {"fast0", "fast1"}},
      {"bound to the second package", {"fast0", "fast1"}, {2, 0, {0}}, {16, 17}, {"fast1"}},
      {"another network is the way to other peers", {"fast0", "rail1"}, {4, 0, {0}}, {}, {"fast0", "rail1"}},
      {"another speed", {"fast0", "slow0"}, {4, 3, {3}}, {}, {"fast0", "slow0"}},
      {"another kind", {"fast0", "ib0"}, {4, 0, {0}}, {}, {"fast0", "ib0"}},
      {"its place is unknown", {"fast0", "lost"}, {4, 3, {3}}, {}, {"fast0", "lost"}},
      {"no hardware that is known", {"fast0", "vlan7"}, {4, 3, {3}}, {}, {"fast0", "vlan7"}},
      {"all at once",
       {"rail1", "fast1", "slow0", "fast0", "lost"},
       {4, 1, {1}},
       {},
       {"rail1", "slow0", "fast0", "lost"}},
      {"not among the names", {"fast1", "slow0"}, {4, 0, {0}}, {}, {"fast1", "slow0"}},
  };
  for (const Case& c : cases)
    EXPECT_EQ(comm::NearInterfaces(Machine(), c.local, c.allowed, Interfaces(), c.names), c.expected) << c.why;
}

TEST(NearInterfaces, ThoseOfNoKnownNetworkStay) {
  const std::vector<std::string> names = {"fast0", "fast1"};
  for (const std::vector<std::string>& networks : {std::vector<std::string>{}, {""}, {"10.0.0.0/24", ""}}) {
    const std::vector<Interface> bare = {On("fast0", networks), On("fast1", networks)};
    EXPECT_EQ(comm::NearInterfaces(Machine(), {2, 1, {1}}, {}, bare, names), names) << networks.size();
  }
}

}  // namespace
}  // namespace axccl::test
