// The text form of a machine: what is accepted, what is refused, and the place of the error.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "src/topo/text.h"
#include "tests/topo/machines.h"

namespace axccl::test {
namespace {

using topo::Machine;

std::string Refusal(const std::string& text) {
  const Result<Machine> machine = topo::Parse(text);
  return machine.ok() ? "accepted" : std::string(machine.status().message());
}

std::string Replaced(std::string text, const std::string& what, const std::string& with) {
  const size_t at = text.find(what);
  EXPECT_NE(at, std::string::npos) << what;
  return at == std::string::npos ? text : text.replace(at, what.size(), with);
}

TEST(TopologyText, ReadsEveryField) {
  const Machine machine = ReadMachine("two_packages");
  EXPECT_EQ(machine.processor, "Example 9654 Processor");
  ASSERT_EQ(machine.nodes.size(), 4u);
  EXPECT_EQ(machine.nodes[3], (topo::Node{3, uint64_t{64} << 30}));
  ASSERT_EQ(machine.packages.size(), 2u);
  ASSERT_EQ(machine.packages[1].groups.size(), 4u);
  const topo::Group& group = machine.packages[1].groups[2];
  EXPECT_EQ(group.node, 3);
  EXPECT_EQ(group.l3, uint64_t{32} << 20);
  ASSERT_EQ(group.cores.size(), 4u);
  EXPECT_EQ(group.cores[1], (topo::Core{32768, 1048576, {25, 57}}));
  ASSERT_EQ(machine.nics.size(), 2u);
  EXPECT_EQ(machine.nics[1], (topo::Nic{"eth1", topo::NicKind::kEthernet, 25000, 2}));
  ASSERT_EQ(machine.gpus.size(), 8u);
  EXPECT_EQ(machine.gpus[7], (topo::Gpu{"0000:db:00.0", 3}));
  EXPECT_EQ(machine.PackageOf(3), 1);
  EXPECT_EQ(machine.Processors().size(), 64u);
}

TEST(TopologyText, PrintsWhatItRead) {
  for (const char* name : {"two_packages", "laptop", "odd"})
    EXPECT_EQ(topo::Print(ReadMachine(name)), MachineText(name)) << name;
}

// Every text that is one character short, or has one too many, is refused or is another machine's canonical text.
TEST(TopologyText, AcceptsNoSecondTextOfAMachine) {
  const std::string text = MachineText("laptop");
  for (size_t at = 0; at < text.size(); ++at) {
    std::string shorter = text, longer = text;
    shorter.erase(at, 1);
    longer.insert(at, 1, ' ');
    for (const std::string& changed : {shorter, longer}) {
      const Result<Machine> machine = topo::Parse(changed);
      if (machine.ok()) {
        EXPECT_EQ(topo::Print(machine.value()), changed);
      }
    }
  }
}

TEST(TopologyText, NamesThePlaceOfAnError) {
  const std::string text = MachineText("laptop");
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "line 1 column 1: expected 'axccl-topology ', found the end of the text"},
      {"axccl-topology 2\n", "line 1 column 16: expected a number from 1 to 1"},
      {Replaced(text, "node 0 bytes", "node 0 byte"), "line 3 column 7: expected ' bytes '"},
      {Replaced(text, "processors 0 1\n", "processors 0 65536\n"),
       "line 6 column 39: expected a number from 0 to 65535"},
      {Replaced(text, "core l1", "core l3"), "line 6 column 5: expected ' processors'"},
      {Replaced(text, "l1 49152", "l1 049152"), "line 6 column 9: expected a number from 1"},
      {Replaced(text, "kind ethernet", "kind token-ring"),
       "line 10 column 16: expected ethernet, infiniband, virtual or other"},
      {Replaced(text, "nic docker0", "nick docker0"), "line 11 column 1: expected the next line of an axccl-topology"},
      {Replaced(text, "l3 12582912 node 0\n", ""), "line 5 column 1: expected 'l3 '"},
      {text + "\n", "line 13 column 1"},
      {text.substr(0, text.size() - 1), "line 12 column 24: expected '\\n', found the end of the text"},
  };
  for (const auto& [bad, message] : cases) EXPECT_NE(Refusal(bad).find(message), std::string::npos) << Refusal(bad);
}

TEST(TopologyText, RefusesImpossibleMachines) {
  const std::string text = MachineText("laptop");
  const std::vector<std::pair<std::string, std::string>> cases = {
      {Replaced(text, "processors 4\n", "processors 3\n"), "processor 3 is there twice"},
      {Replaced(text, "l3 12582912 node 0", "l3 12582912 node 1"), "node 1, which is not listed"},
      {Replaced(text, "nic docker0", "nic wlan0"), "NIC wlan0 is there twice"},
      {Replaced(text, "00:02.0 node 0", "00:02.0 node 7"), "GPU 0000:00:02.0 is at node 7, which is not listed"},
      {Replaced(text, "node 0 bytes 17179869184\n", "node 0 bytes 1\nnode 0 bytes 1\n"),
       "node 0 is out of range or out of order"},
  };
  for (const auto& [bad, message] : cases) EXPECT_NE(Refusal(bad).find(message), std::string::npos) << Refusal(bad);
}

TEST(TopologyText, AGpuMayHaveASpeed) {
  const std::string text = Replaced(MachineText("laptop"), "00:02.0 node 0", "00:02.0 speed 252061 node 0");
  const Result<Machine> machine = topo::Parse(text);
  ASSERT_TRUE(machine.ok()) << machine.status().message();
  EXPECT_EQ(machine.value().gpus[0].megabits, 252061u);
  EXPECT_EQ(topo::Print(machine.value()), text);
}

TEST(Ranges, HaveTheFormatOfLinux) {
  EXPECT_EQ(topo::RangeText({0, 1, 2, 5, 7, 8}), "0-2,5,7-8");
  EXPECT_EQ(topo::RangeText({}), "");
  EXPECT_EQ(topo::ParseRanges("0-2,5,7-8"), (std::vector<int>{0, 1, 2, 5, 7, 8}));
  for (const char* bad : {"", "x", "3-1", "1-", "1;2", "0-70000", "-1"})
    EXPECT_TRUE(topo::ParseRanges(bad).empty()) << bad;
}

}  // namespace
}  // namespace axccl::test
