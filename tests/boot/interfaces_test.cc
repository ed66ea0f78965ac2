#include "src/boot/interfaces.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace axccl::boot {
namespace {

Address V4(uint8_t a, uint8_t b, uint8_t c, uint8_t d) {
  Address address;
  address.family = 4;
  address.ip[0] = a, address.ip[1] = b, address.ip[2] = c, address.ip[3] = d;
  return address;
}

Address V6(uint8_t first, uint8_t last) {
  Address address;
  address.family = 6;
  address.ip[0] = first, address.ip[15] = last;
  return address;
}

std::vector<Interface> Machine() {
  return {{"lo", true, {V4(127, 0, 0, 1), V6(0, 1)}},
          {"eth0", false, {V4(10, 0, 0, 5), V6(0x20, 7), V4(10, 0, 0, 6)}},
          {"eth1", false, {V4(10, 1, 0, 5)}},
          {"ib0", false, {V6(0x20, 9)}}};
}

TEST(InterfacesTest, NetworksAreListedWithTheAddresses) {
  const Result<std::vector<Interface>> interfaces = ListInterfaces();
  ASSERT_TRUE(interfaces.ok());
  for (const Interface& interface : interfaces.value()) {
    EXPECT_EQ(interface.networks.size(), interface.addresses.size()) << interface.name;
    if (!interface.loopback) continue;
    EXPECT_EQ(std::count(interface.networks.begin(), interface.networks.end(), "127.0.0.0/8"), 1) << interface.name;
  }
}

std::string Selected(const char* ifname, const char* family = "") {
  Result<std::vector<Address>> addresses = SelectAddresses(Machine(), ifname, family);
  if (!addresses.ok()) return std::string("error: ") + addresses.status().message().data();
  std::string text;
  for (const Address& address : addresses.value()) {
    text += (text.empty() ? "" : " ") + HostText(address);
  }
  return text;
}

TEST(InterfacesTest, ByDefaultTheFirstThatIsNotLoopback) {
  EXPECT_EQ(Selected(""), "10.0.0.5 [2000::7]");
  EXPECT_EQ(Selected("", "AF_INET6"), "[2000::7]");
}

std::string Default(const std::vector<Interface>& interfaces, const char* family = "") {
  Result<std::vector<std::string>> names = SelectNames(interfaces, "", family);
  Result<std::vector<Address>> addresses = SelectAddresses(interfaces, "", family);
  EXPECT_EQ(names.ok(), addresses.ok());
  if (!names.ok()) return std::string("error: ") + names.status().message().data();
  return names.value().front() + " " + ToText(addresses.value().front());
}

TEST(InterfacesTest, ByDefaultNoBridgesOfContainersNothingDownNothingUnplugged) {
  std::vector<Interface> interfaces{{"lo", true, {V4(127, 0, 0, 1)}},
                                    {"docker0", false, {V4(172, 17, 0, 1)}},
                                    {"br-0123456789ab", false, {V4(172, 18, 0, 1)}},
                                    {"virbr0", false, {V4(192, 168, 122, 1)}},
                                    {"veth12", false, {V4(172, 18, 0, 2)}},
                                    {"down0", false, {V4(10, 9, 0, 1)}, false},
                                    {"plug0", false, {V4(10, 9, 0, 2)}, true, false},
                                    {"bare0", false, {}}};
  EXPECT_EQ(Default(interfaces), "lo 127.0.0.1:0") << "loopback, if there is nothing better";
  EXPECT_EQ(SelectAddresses(interfaces, "docker", "").value().size(), 1u) << "unless it is named";
  EXPECT_EQ(SelectAddresses(interfaces, "plug0", "").value().size(), 1u) << "the cable may be plugged in later";
  interfaces.push_back({"br-ex", false, {V4(10, 1, 1, 1)}});
  EXPECT_EQ(Default(interfaces), "br-ex 10.1.1.1:0");
  interfaces.erase(interfaces.begin());
  EXPECT_EQ(Default(interfaces), "br-ex 10.1.1.1:0");
  interfaces.pop_back();
  const std::string text = Default(interfaces);
  for (const char* part : {"error: ", "docker0 172.17.0.1 (belongs to containers or virtual machines)",
                           "down0 10.9.0.1 (down)", "plug0 10.9.0.2 (no carrier)", "bare0 (no address)"}) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  }
}

TEST(InterfacesTest, PrefixesExactNamesAndExclusion) {
  EXPECT_EQ(Selected("eth"), "10.0.0.5 [2000::7]");
  EXPECT_EQ(Selected("eth", "AF_INET"), "10.0.0.5");
  EXPECT_EQ(Selected("eth1"), "10.1.0.5");
  EXPECT_EQ(Selected("ib,eth1"), "10.1.0.5") << "in the system's order";
  EXPECT_EQ(Selected("=eth1,ib0"), "10.1.0.5");
  EXPECT_EQ(Selected("^eth"), "[2000::9]") << "loopback only if nothing else is left";
  EXPECT_EQ(Selected("^eth,ib"), "127.0.0.1 [::1]");
  EXPECT_EQ(Selected("^=eth0"), "10.1.0.5");
  EXPECT_EQ(Selected("eth1,ib", "AF_INET6"), "[2000::9]");
  EXPECT_EQ(Selected("lo"), "127.0.0.1 [::1]");
}

TEST(InterfacesTest, NoMatchListsTheInterfaces) {
  for (const std::string& text :
       {Selected("=eth"), Selected("wlan0"), Selected("^lo,eth,ib"), Selected("eth1", "AF_INET6")}) {
    EXPECT_EQ(text.find("error: "), 0u) << text;
    for (const char* part :
         {"NCCL_SOCKET_IFNAME", "lo 127.0.0.1 [::1] (", "eth0 10.0.0.5", "eth1 10.1.0.5", "ib0 [2000::9] ("}) {
      EXPECT_NE(text.find(part), std::string::npos) << text;
    }
  }
  EXPECT_NE(
      Selected("eth1", "AF_INET6").find("eth0 10.0.0.5 [2000::7] 10.0.0.6 (not asked for), eth1 10.1.0.5 (no global"),
      std::string::npos);
  EXPECT_NE(Selected("^lo,eth,ib").find("lo 127.0.0.1 [::1] (excluded)"), std::string::npos);
  EXPECT_NE(Selected("eth", "AF_UNIX").find("expected AF_INET or AF_INET6"), std::string::npos);
}

TEST(InterfacesTest, ThisMachineHasLoopback) {
  Result<std::vector<Interface>> interfaces = ListInterfaces();
  ASSERT_TRUE(interfaces.ok()) << interfaces.status().message();
  bool found = false;
  for (const Interface& interface : interfaces.value()) {
    for (const Address& address : interface.addresses) found |= interface.loopback && IsLoopback(address);
  }
  EXPECT_TRUE(found);
}

}  // namespace
}  // namespace axccl::boot
