#include "src/boot/interfaces.h"

#include <gtest/gtest.h>

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

std::string Selected(const char* ifname, const char* family = "") {
  Result<std::vector<Address>> addresses = SelectAddresses(Machine(), ifname, family);
  if (!addresses.ok()) return std::string("error: ") + addresses.status().message().data();
  std::string text;
  for (const Address& address : addresses.value()) {
    const std::string one = ToText(address);
    text += (text.empty() ? "" : " ") + one.substr(0, one.rfind(':'));
  }
  return text;
}

TEST(InterfacesTest, LoopbackByDefault) {
  EXPECT_EQ(Selected(""), "127.0.0.1");
  EXPECT_EQ(Selected("", "AF_INET6"), "[::1]");
}

TEST(InterfacesTest, PrefixesExactNamesAndExclusion) {
  EXPECT_EQ(Selected("eth"), "10.0.0.5 [2000::7]");
  EXPECT_EQ(Selected("eth", "AF_INET"), "10.0.0.5");
  EXPECT_EQ(Selected("eth1"), "10.1.0.5");
  EXPECT_EQ(Selected("ib,eth1"), "10.1.0.5") << "the system's order decides";
  EXPECT_EQ(Selected("=eth1,ib0"), "10.1.0.5");
  EXPECT_EQ(Selected("^eth"), "[2000::9]") << "loopback only if nothing else is left";
  EXPECT_EQ(Selected("^eth,ib"), "127.0.0.1 [::1]");
  EXPECT_EQ(Selected("^=eth0"), "10.1.0.5");
  EXPECT_EQ(Selected("eth1,ib", "AF_INET6"), "[2000::9]");
  EXPECT_EQ(Selected("lo"), "127.0.0.1 [::1]");
}

TEST(InterfacesTest, NoMatchListsWhatThereIs) {
  for (const std::string& text :
       {Selected("=eth"), Selected("wlan0"), Selected("^lo,eth,ib"), Selected("eth1", "AF_INET6")}) {
    EXPECT_EQ(text.find("error: "), 0u) << text;
    for (const char* part :
         {"NCCL_SOCKET_IFNAME", "lo 127.0.0.1 [::1]", "eth0 10.0.0.5", "eth1 10.1.0.5", "ib0 [2000::9]"}) {
      EXPECT_NE(text.find(part), std::string::npos) << text;
    }
  }
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
