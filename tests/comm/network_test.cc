// Which interfaces become rails, and how a process's address is sent to others.
#include "src/comm/net/network.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "src/comm/net/address.h"

namespace axccl::comm {
namespace {

std::string Names(const Rails& rails) {
  std::string names;
  for (const Way& way : rails.taken) names += (names.empty() ? "" : ",") + way.name;
  return names + (rails.left_out.empty() ? "" : "; " + rails.left_out);
}

TEST(ChooseRails, TakesOneOfEachNetworkTheFastestFirst) {
  const struct {
    const char* why;
    std::vector<Way> ways;
    const char* expected;
  } cases[] = {
      {"one", {{"eth0", "a", 0}}, "eth0"},
      {"one of no network that is known", {{"eth0", "", 0}}, "eth0"},
      {"equal ones, in the system's order", {{"eth0", "a", 10}, {"eth1", "b", 10}}, "eth0,eth1"},
      {"the fast one first", {{"mgmt", "a", 1}, {"eth0", "b", 10}, {"eth1", "c", 10}}, "eth0,eth1,mgmt"},
      {"one network", {{"eth0", "a", 10}, {"eth1", "a", 10}}, "eth0; eth1 (same network as eth0)"},
      {"one network, the other is faster", {{"eth0", "a", 1}, {"eth1", "a", 10}}, "eth1; eth0 (same network as eth1)"},
      {"unknown speed", {{"eth0", "a", 0}, {"eth1", "b", 10}}, "eth1,eth0"},
      {"unknown network", {{"eth0", "a", 10}, {"eth1", "", 10}}, "eth0; eth1 (unknown network)"},
      {"too many",
       {{"slow", "s", 1},
        {"eth0", "a", 10},
        {"eth1", "b", 10},
        {"eth2", "c", 10},
        {"eth3", "d", 10},
        {"eth4", "e", 10}},
       "eth0,eth1,eth2,eth3; eth4 (there are 4 already), slow (there are 4 already)"},
  };
  for (const auto& c : cases) EXPECT_EQ(Names(ChooseRails(c.ways)), c.expected) << c.why;
}

remote::NetworkAddress Address(size_t rails, size_t bytes) {
  remote::NetworkAddress address;
  address.key.fill(7);
  for (size_t i = 0; i < rails; ++i) {
    remote::RailAddress rail{
        "10." + std::to_string(i) + ".0.0/16", 1000 * i, std::vector<std::byte>(bytes, std::byte(i + 1)), {}};
    boot::Address lifeline;
    lifeline.family = i % 2 == 0 ? 4 : 6;
    lifeline.port = static_cast<uint16_t>(4000 + i);
    socklen_t length = 0;
    rail.lifeline = boot::ToSockaddr(lifeline, &length);
    address.rails.push_back(rail);
  }
  return address;
}

TEST(WireNetworks, AreReadAsTheyWereWritten) {
  for (size_t rails = 1; rails <= remote::kMostRails; ++rails) {
    const remote::NetworkAddress sent = Address(rails, 700);
    const auto packed = Pack(sent, NetworkText{});
    ASSERT_TRUE(packed.ok()) << packed.status().message();
    const auto read = Unpack(packed.value(), 3);
    ASSERT_TRUE(read.ok()) << read.status().message();
    EXPECT_EQ(read.value().key, sent.key);
    ASSERT_EQ(read.value().rails.size(), rails);
    for (size_t i = 0; i < rails; ++i) {
      const remote::RailAddress &a = read.value().rails[i], &b = sent.rails[i];
      EXPECT_EQ(a.network, b.network);
      EXPECT_EQ(a.megabits, b.megabits);
      EXPECT_EQ(a.worker, b.worker);
      EXPECT_EQ(std::memcmp(&a.lifeline, &b.lifeline, sizeof a.lifeline), 0);
    }
  }
}

TEST(WireNetworks, HaveNoRoomForEverything) {
  EXPECT_TRUE(Pack(Address(4, 750), NetworkText{}).ok());
  const auto packed = Pack(Address(4, 751), NetworkText{});
  ASSERT_FALSE(packed.ok());
  EXPECT_NE(packed.status().message().find("takes 3004 bytes, at most 3000"), std::string_view::npos);
}

// Another rank wrote them, so they may hold anything.
TEST(WireNetworks, AreRefusedIfInvalid) {
  const WireNetwork good = Pack(Address(2, 1000), NetworkText{}).value();
  const auto refused = [&](const char* why, void (*spoil)(WireNetwork*)) {
    WireNetwork network = good;
    spoil(&network);
    const auto read = Unpack(network, 3);
    ASSERT_FALSE(read.ok()) << why;
    EXPECT_EQ(read.status().message(), "rank 3 announced something that is no network address") << why;
  };
  refused("no rail", [](WireNetwork* n) { n->rails = 0; });
  refused("too many rails", [](WireNetwork* n) { n->rails = remote::kMostRails + 1; });
  refused("rails of nothing", [](WireNetwork* n) { n->rails = 3; });
  refused("an address beyond the end", [](WireNetwork* n) { n->rail[1].bytes = 2001; });
  refused("a very long address", [](WireNetwork* n) { n->rail[0].bytes = ~0u; });
  refused("no lifeline", [](WireNetwork* n) { n->rail[0].lifeline.family = 5; });
  refused("a network twice", [](WireNetwork* n) { std::memcpy(n->rail[1].network, n->rail[0].network, 56); });
  refused("a way to seal that there is not", [](WireNetwork* n) { n->sealing = 3; });
  refused("a cipher that there is not", [](WireNetwork* n) { n->cipher = 2; });
  refused("a name without end",
          [](WireNetwork* n) { std::memset(n->rail[0].network, 'x', sizeof n->rail[0].network); });
}

}  // namespace
}  // namespace axccl::comm
