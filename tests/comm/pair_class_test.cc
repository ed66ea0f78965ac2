// Which pairs of machines belong to one class.
#include "src/comm/net/pair_class.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "src/boot/interfaces.h"

namespace axccl::comm {
namespace {

NetworkText Text(const std::string& devices, const std::string& subnet, const std::string& address) {
  NetworkText text{};
  devices.copy(text.devices, sizeof(text.devices) - 1);
  subnet.copy(text.subnet, sizeof(text.subnet) - 1);
  address.copy(text.address, sizeof(text.address) - 1);
  return text;
}

std::string Names(const std::vector<PairClass>& classes) {
  std::string names;
  for (const PairClass& each : classes) names += std::to_string(each.rank) + ": " + each.name + "\n";
  return names;
}

TEST(PairClasses, AreTheSameForEqualDevicesOnOneSubnet) {
  const std::vector<int> machine_of = {0, 1, 0, 2, 1, 3};
  std::vector<NetworkText> networks;
  for (const int machine : machine_of)
    networks.push_back(Text("eth0 fast", "10.0.0.0/24", "10.0.0." + std::to_string(machine)));
  EXPECT_EQ(Names(FindPairClasses(machine_of, networks)), "1: eth0 fast - eth0 fast, subnet 10.0.0.0/24\n");
}

TEST(PairClasses, DifferByDevicesAndRoutes) {
  const std::vector<int> machine_of = {0, 1, 2, 3, 4, 0};
  const std::vector<NetworkText> networks = {
      Text("eth0 fast", "10.0.0.0/24", "10.0.0.1"), Text("eth0 slow", "10.0.0.0/24", "10.0.0.2"),
      Text("eth0 fast", "10.0.1.0/24", "10.0.1.1"), Text("eth0 slow", "10.0.0.0/24", "10.0.0.3"),
      Text("eth0 fast", "10.0.0.0/24", "10.0.0.1"), Text("eth9 odd", "10.0.0.0/24", "10.0.0.1")};
  EXPECT_EQ(Names(FindPairClasses(machine_of, networks)),
            "1: eth0 fast - eth0 slow, subnet 10.0.0.0/24\n"
            "2: eth0 fast - eth0 fast, routed from 10.0.0.0/24\n"
            "4: eth0 fast - eth0 fast, one machine\n");
}

TEST(PairClasses, AreNoneOnOneMachineAndFewOnMany) {
  std::vector<int> machine_of(10, 0);
  std::vector<NetworkText> networks(10, Text("eth0", "s", "a"));
  EXPECT_TRUE(FindPairClasses(machine_of, networks).empty());
  for (int rank = 0; rank < 10; ++rank) {
    machine_of[static_cast<size_t>(rank)] = rank;
    networks[static_cast<size_t>(rank)] = Text("eth" + std::to_string(rank), "s", std::to_string(rank));
  }
  EXPECT_EQ(FindPairClasses(machine_of, networks).size(), kMostClasses);
}

// Another rank wrote them, so they may hold anything.
TEST(PairClasses, TakeAnyText) {
  std::vector<NetworkText> networks(2);
  for (NetworkText& text : networks) {
    std::fill(std::begin(text.devices), std::end(text.devices), '\n');
    std::fill(std::begin(text.subnet), std::end(text.subnet), '\xff');
  }
  networks[1].address[0] = 'x';
  const auto classes = FindPairClasses(std::vector<int>{0, 1}, networks);
  ASSERT_EQ(classes.size(), 1u);
  for (const char c : classes[0].name) EXPECT_TRUE(c >= ' ' && c <= '~');
  EXPECT_LE(classes[0].name.size(), 600u) << "too long for a file";
}

TEST(NetworkTexts, DescribeWhatThereIs) {
  const auto interfaces = boot::ListInterfaces();
  ASSERT_TRUE(interfaces.ok());
  for (const boot::Interface& interface : interfaces.value()) {
    if (!interface.loopback || interface.addresses.empty() || interface.addresses[0].family != 4) continue;
    const NetworkText text = DescribeNetwork({interface.name}, interface.addresses[0]);
    EXPECT_EQ(std::string(text.devices).rfind(interface.name + " ", 0), 0u) << text.devices;
    EXPECT_NE(std::string(text.devices).find(" mtu "), std::string::npos) << text.devices;
    EXPECT_EQ(std::string(text.subnet), "127.0.0.0/8");
    EXPECT_EQ(std::string(text.address), "127.0.0.1");
  }
  const NetworkText two = DescribeNetwork({"one", "other"}, boot::Address(), {"10.0.0.0/24", "10.1.0.0/24"});
  EXPECT_EQ(std::string(two.devices), "one ? Mbit/s mtu ? on 10.0.0.0/24, other ? Mbit/s mtu ? on 10.1.0.0/24");
  const NetworkText none = DescribeNetwork({"no-such-device", std::string(500, 'x')}, boot::Address());
  EXPECT_EQ(std::string(none.devices).rfind("no-such-device ? Mbit/s mtu ?, xxx", 0), 0u) << none.devices;
  EXPECT_EQ(none.devices[sizeof(none.devices) - 1], '\0');
  EXPECT_EQ(std::string(none.subnet), "");
}

}  // namespace
}  // namespace axccl::comm
