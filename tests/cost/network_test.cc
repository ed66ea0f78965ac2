// Figures of networks: their text, their file, and which of several are used.
#include "src/cost/network.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <utime.h>

#include <fstream>
#include <string>
#include <vector>

#include "tests/cost/cache_test.h"

namespace axccl::cost {
namespace {

const char kClass[] = "eth0 10000 Mbit/s mtu 1500 - eth1 1000 Mbit/s mtu 1500, subnet 10.0.0.0/8";

Network Odd() { return {1.2345678901234567e-5, 0.1 + 0.2 - 0.29, 123456789.01234567}; }

void ExpectEqual(const Network& a, const Network& b) {
  EXPECT_EQ(a.signal_seconds, b.signal_seconds);
  EXPECT_EQ(a.message_seconds, b.message_seconds);
  EXPECT_EQ(a.link_bytes_per_second, b.link_bytes_per_second);
}

TEST(NetworkFigures, GoIntoAMachineAndBack) {
  Machine machine;
  ExpectEqual(NetworkOf(machine), Network());
  SetNetwork(Odd(), &machine);
  EXPECT_EQ(machine.network_signal_seconds, Odd().signal_seconds);
  EXPECT_EQ(machine.network_message_seconds, Odd().message_seconds);
  EXPECT_EQ(machine.link_bytes_per_second, Odd().link_bytes_per_second);
  EXPECT_EQ(machine.signal_seconds, Machine().signal_seconds);
  ExpectEqual(NetworkOf(machine), Odd());
}

TEST(NetworkFigures, TheSlowerOfEachCounts) {
  ExpectEqual(Slower({1, 5, 10}, {2, 4, 20}), {2, 5, 10});
  ExpectEqual(Slower({2, 4, 20}, {1, 5, 10}), {2, 5, 10});
}

TEST(NetworkText, KeepsEveryDigit) {
  const Result<KeptNetwork> back = NetworkFromText(ToText(KeptNetwork{kClass, Odd()}));
  ASSERT_TRUE(back.ok()) << back.status().message();
  EXPECT_EQ(back.value().pair_class, kClass);
  ExpectEqual(back.value().network, Odd());
}

TEST(NetworkText, RefusesWhatItDidNotWrite) {
  const std::string good = ToText(KeptNetwork{kClass, Network()});
  std::vector<std::string> bad = {"", "\n", "axccl-network 2\n", good + "more 1\n", good + "\n", "x" + good};
  for (size_t cut = 1; cut + 1 < good.size(); cut += 5) bad.push_back(good.substr(0, cut));
  const auto replaced = [&](const std::string& what, const std::string& by) {
    std::string text = good;
    ASSERT_NE(text.find(what), std::string::npos) << what;
    bad.push_back(text.replace(text.find(what), what.size(), by));
  };
  replaced(kClass, "");
  replaced(kClass, "a\tb");
  replaced(kClass, std::string(1000, 'x'));
  replaced("\nsignal_seconds 1e-05", "\nsignal_seconds -1");
  replaced("\nsignal_seconds 1e-05", "\nsignal_seconds nan");
  replaced("\nsignal_seconds 1e-05", "\nsignal_seconds 1e5");
  replaced("\nlink_bytes_per_second 2e+09", "\nlink_bytes_per_second 0");
  for (const std::string& text : bad) {
    const auto result = NetworkFromText(text);
    ASSERT_FALSE(result.ok()) << text;
    EXPECT_EQ(result.status().code(), Code::kInvalidArgument);
    EXPECT_NE(result.status().message().find("network file, line"), std::string_view::npos)
        << result.status().message();
  }
}

TEST(NetworkText, HoldsAllPlausibleFigures) {
  for (const Network& wild : {Network{0, 0, 0}, Network{1e9, 1e9, 1e99}, Network{-1, -1, -1}}) {
    const auto back = NetworkFromText(ToText(KeptNetwork{"c", Plausible(wild)}));
    EXPECT_TRUE(back.ok()) << back.status().message();
  }
  ExpectEqual(Plausible(Odd()), Odd());
}

class NetworkFilesTest : public CacheTest {
 protected:
  // Makes the file so many seconds old.
  static void Age(const std::string& file, time_t seconds) {
    const time_t then = time(nullptr) - seconds;
    const utimbuf times{then, then};
    ASSERT_EQ(utime(file.c_str(), &times), 0);
  }
};

TEST_F(NetworkFilesTest, AreKeptByClassForADay) {
  EXPECT_EQ(RecallNetwork(kClass).status().code(), Code::kSystemError) << "none yet";
  KeepNetwork(kClass, Odd());
  KeepNetwork("another", Network());
  const std::string file = NetworkFile(kClass);
  EXPECT_EQ(file.rfind(folder_ + "/network-", 0), 0u) << file;
  EXPECT_NE(file, NetworkFile("another"));
  const auto recalled = RecallNetwork(kClass);
  ASSERT_TRUE(recalled.ok()) << recalled.status().message();
  ExpectEqual(recalled.value(), Odd());
  Age(file, 23 * 3600);
  EXPECT_TRUE(RecallNetwork(kClass).ok());
  for (const int hours : {25, -25}) {
    Age(file, hours * 3600);
    EXPECT_EQ(RecallNetwork(kClass).status().code(), Code::kInvalidArgument) << hours;
  }
  KeepNetwork(kClass, Odd());
  EXPECT_TRUE(RecallNetwork(kClass).ok()) << "a new day";
}

TEST_F(NetworkFilesTest, AreIgnoredIfDamagedOrOfAnotherClass) {
  const std::string file = NetworkFile(kClass);
  const std::string other = ToText(KeptNetwork{"other", Odd()});
  for (const std::string& text : {std::string("junk"), std::string(100000, 'x'), std::string(), other}) {
    std::ofstream(file) << text;
    EXPECT_EQ(RecallNetwork(kClass).status().code(), Code::kInvalidArgument);
    KeepNetwork(kClass, Odd());
    EXPECT_TRUE(RecallNetwork(kClass).ok());
  }
}

TEST_F(NetworkFilesTest, AreListedTheNewestFirst) {
  EXPECT_TRUE(NetworkFiles().empty());
  KeepNetwork("one", Odd());
  KeepNetwork("two", Odd());
  std::ofstream(folder_ + "/machine-0123456789abcdef") << "another kind";
  std::ofstream(NetworkFile("two") + ".XXXXXX") << "being written";
  Age(NetworkFile("one"), 10);
  EXPECT_EQ(NetworkFiles(), (std::vector<std::string>{NetworkFile("two"), NetworkFile("one")}));
  Age(NetworkFile("two"), 20);
  EXPECT_EQ(NetworkFiles(), (std::vector<std::string>{NetworkFile("one"), NetworkFile("two")}));
}

TEST_F(NetworkFilesTest, NeedNoFolder) {
  std::ofstream(folder_ + "/plain") << "kept";
  KeepIn(folder_ + "/plain/below");
  KeepNetwork(kClass, Odd());
  EXPECT_FALSE(RecallNetwork(kClass).ok());
}

}  // namespace
}  // namespace axccl::cost
