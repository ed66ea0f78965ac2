// NCCL's own form of a machine: what is read of it, what is made of it, and what is refused where.
#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "src/base/files.h"
#include "src/topo/discover.h"
#include "src/topo/text.h"
#include "tests/harness/folder.h"
#include "tests/topo/machines.h"

namespace axccl::test {
namespace {

using topo::Addresses;
using topo::Gpu;
using topo::Machine;
using topo::NcclFile;
using topo::Nic;
using topo::NicKind;

class NcclTopology : public testing::Test {
 protected:
  void SetUp() override {
    const Status status = topo::ParseNccl("<system version='1'/>").status();
    if (status.code() == Code::kInvalidUsage) GTEST_SKIP() << status.message();
  }
};

std::string PathOf(const std::string& name) { return MachinePath("../nccl/" + name + ".xml"); }
std::string TextOf(const std::string& name) { return ReadWholeFile(PathOf(name), 1 << 20).value(); }

NcclFile Parsed(const std::string& name) {
  Result<NcclFile> file = topo::ParseNccl(TextOf(name));
  EXPECT_TRUE(file.ok()) << file.status().message();
  return file.ok() ? std::move(file).value() : NcclFile();
}

std::string NcclRefusal(const std::string& text) {
  const Result<NcclFile> file = topo::ParseNccl(text);
  return file.ok() ? "accepted" : std::string(file.status().message());
}

std::string WithPci(const std::string& attributes) {
  return "<system version=\"1\">\n<cpu numaid=\"0\">\n<pci " + attributes + "/>\n</cpu>\n</system>\n";
}

constexpr uint64_t kGen4 = 252061, kGen5 = 504123;  // 16 lanes of 16 and 32 GT/s, after their encoding

TEST_F(NcclTopology, DevicesAreWhatTheirClassSays) {
  const NcclFile file = Parsed("cloud");
  ASSERT_EQ(file.cpus.size(), 2u);
  EXPECT_EQ(file.cpus[1].node, 1);
  EXPECT_EQ(topo::RangeText(file.cpus[1].processors), "16-31");
  EXPECT_EQ(file.gpus, (std::vector<Gpu>{{"000a:00:00.0", 0, kGen4}, {"000b:00:00.0", 1, kGen4}}));
  ASSERT_EQ(file.nics.size(), 2u);
  EXPECT_EQ(file.nics[1].address, "010b:00:00.0");
  EXPECT_EQ(file.nics[1].kind, NicKind::kInfiniband);
  EXPECT_EQ(file.nics[1].node, 1);
  EXPECT_TRUE(file.ignored.empty());
}

TEST_F(NcclTopology, ADumpIsAMachine) {
  const NcclFile file = Parsed("dump");
  EXPECT_EQ(file.ignored, (std::set<std::string>{"cpu of another host", "cxl", "fabric"}));
  const Machine machine = topo::MachineOf(file, ReadMachine("laptop"), {});
  EXPECT_TRUE(topo::Check(machine).ok()) << topo::Check(machine).message();
  EXPECT_EQ(machine.processor, "GenuineIntel family 6 model 143");
  EXPECT_EQ(machine.nodes, (std::vector<topo::Node>{{0, 0}, {1, 0}}));
  EXPECT_EQ(topo::RangeText(machine.Processors()), "0-7");
  EXPECT_EQ(machine.PackageOf(1), 1);
  EXPECT_EQ(machine.gpus, (std::vector<Gpu>{{"0000:18:00.0", 0, kGen5}, {"0000:2a:00.0", 1, 0}}));
  EXPECT_EQ(machine.nics, (std::vector<Nic>{{"mlx5_0", NicKind::kInfiniband, 400000, 0},
                                            {"eth0", NicKind::kOther, 25000, 0},
                                            {"0000:2b:00.0", NicKind::kEthernet, 0, 1}}));
  EXPECT_EQ(topo::Print(topo::Parse(topo::Print(machine)).value()), topo::Print(machine));
}

// As NCCL reads /sys for what a file leaves out.
TEST_F(NcclTopology, WhatAFileLeavesOpenComesFromThisMachine) {
  const NcclFile file =
      topo::ParseNccl("<system version='1'><cpu numaid='2'><pci busid='0000:01:00.0' class='0x020000'/></cpu></system>")
          .value();
  const Machine machine = topo::MachineOf(file, ReadMachine("two_packages"), {{"eth7", "0000:01:00.0"}});
  EXPECT_EQ(topo::RangeText(machine.Processors()), "16-23,48-55");
  EXPECT_EQ(machine.nics, (std::vector<Nic>{{"eth7", NicKind::kEthernet, 0, 2}}));
  // Processors that a file lists belong to no other node.
  const NcclFile both =
      topo::ParseNccl("<system version='1'><cpu numaid='2'/><cpu numaid='0' affinity='30000'/></system>").value();
  const Machine moved = topo::MachineOf(both, ReadMachine("two_packages"), {});
  EXPECT_EQ(moved.packages[0].groups[0].node, 0);
  EXPECT_EQ(moved.packages[0].groups[0].cores.size(), 2u);
  EXPECT_EQ(moved.packages[1].groups[0].cores.size(), 14u);
  const Machine none =
      topo::MachineOf(topo::ParseNccl("<system version='1'/>").value(), ReadMachine("two_packages"), {});
  EXPECT_EQ(none.packages, ReadMachine("two_packages").packages);
}

TEST_F(NcclTopology, ItCorrectsThisMachineAndAddsNothing) {
  Machine here = ReadMachine("two_packages");
  here.nics.push_back({"mlx5_0", NicKind::kInfiniband, 0, topo::kNowhere});
  here.gpus = {{"0000:18:00.0", 3}, {"0000:99:00.0", 2}};
  const Addresses addresses = {{"mlx5_0", "0000:aa:00.0"}, {"eth1", "0000:2b:00.0"}};
  const Machine machine = topo::Corrected(Parsed("dump"), here, addresses);
  EXPECT_EQ(machine.nodes, here.nodes);
  EXPECT_EQ(machine.packages, here.packages);
  EXPECT_EQ(machine.gpus, (std::vector<Gpu>{{"0000:18:00.0", 0, kGen5}, {"0000:99:00.0", 2}}));
  EXPECT_EQ(machine.nics, (std::vector<Nic>{{"eth0", NicKind::kEthernet, 25000, 0},
                                            {"eth1", NicKind::kEthernet, 25000, 1},
                                            {"mlx5_0", NicKind::kInfiniband, 400000, 0}}));
  EXPECT_EQ(topo::Remark(Parsed("dump"), here, addresses),
            "elements that are not known there are ignored: cpu of another host, cxl, fabric; 1 of 2 GPUs of the file "
            "are not on this machine: communicators leave them out, as NCCL does");
  EXPECT_EQ(topo::Remark(Parsed("cloud"), here, addresses),
            "2 of 2 GPUs and 2 of 2 NICs of the file are not on this machine: communicators leave them out, as NCCL "
            "does");
  EXPECT_EQ(topo::Remark(topo::ParseNccl("<system version='1'/>").value(), here, addresses), "");
}

// Every cpu lists the processors of all, and Linux gives some NICs the speeds -1 and 0.
TEST_F(NcclTopology, WhatAVirtualMachineDoesNotKnowIsLeftOpen) {
  const NcclFile file = Parsed("virtual");
  const Machine machine = topo::MachineOf(file, ReadMachine("laptop"), {});
  EXPECT_TRUE(topo::Check(machine).ok()) << topo::Check(machine).message();
  ASSERT_EQ(machine.packages.size(), 1u);
  EXPECT_EQ(machine.packages[0].groups[0].node, 0);
  EXPECT_EQ(topo::RangeText(machine.Processors()), "0-7,32-39");
  EXPECT_EQ(machine.nodes, (std::vector<topo::Node>{{0, 0}, {1, 0}, {2, 0}}));
  EXPECT_EQ(machine.gpus, (std::vector<Gpu>{{"0001:00:00.0", 1, kGen4}, {"0002:00:00.0", 2, kGen4}}));
  EXPECT_EQ(machine.nics, (std::vector<Nic>{{"ens3", NicKind::kEthernet, 0, 0},
                                            {"ens4", NicKind::kOther, 0, 1},
                                            {"ens5", NicKind::kOther, 25000, 1}}));
  Machine here = ReadMachine("two_packages");
  here.gpus = {{"0001:00:00.0", 3}, {"0002:00:00.0", 3}};
  here.nics = {{"ens3", NicKind::kEthernet, 50000, 3},
               {"ens4", NicKind::kEthernet, 40000, 3},
               {"ens5", NicKind::kEthernet, 10000, 3}};
  const Machine corrected = topo::Corrected(file, here, {});
  EXPECT_EQ(corrected.packages, here.packages);
  EXPECT_EQ(corrected.gpus, machine.gpus);
  EXPECT_EQ(corrected.nics, (std::vector<Nic>{{"ens3", NicKind::kEthernet, 50000, 0},
                                              {"ens4", NicKind::kEthernet, 40000, 1},
                                              {"ens5", NicKind::kEthernet, 25000, 1}}));
  EXPECT_EQ(topo::Remark(file, here, {}),
            "several cpus list the processors 0-7,32-39, which belong to the first of them");
}

TEST_F(NcclTopology, ErrorsNameLineAndRemedy) {
  const std::string deep = std::string("<system version='1'><cpu numaid='0'>") + [] {
    std::string open;
    for (int i = 0; i < 100; ++i) open += "<pci busid='0000:00:00.0'>";
    return open;
  }();
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"<system version=\"1\">\n<cpu numaid=\"0\">\n</system>\n", "line 3: this is not XML: mismatched tag"},
      {"<system version=\"1\">", "line 1: this is not XML: no element found"},
      {"<!DOCTYPE a [<!ENTITY b \"c\">]>\n<system version=\"1\"/>", "line 1: a document type is declared"},
      {"<graphs version=\"1\"/>", "line 1: the root is 'graphs', expected 'system'"},
      {"\n<system version=\"2\"/>", "line 2: system has version=\"2\", expected 1"},
      {"<system/>", "system has version=\"\", expected 1"},
      {"<system version='1'>\n<cpu/></system>", "line 2: cpu has numaid=\"\", expected the number of a NUMA node"},
      {"<system version='1'><cpu numaid='65536'/></system>", "cpu has numaid=\"65536\""},
      {"<system version='1'><cpu numaid='0' affinity='12,x'/></system>", "cpu has affinity=\"12,x\", expected a set"},
      {WithPci("busid=\"00:17.0\""), "line 3: pci has busid=\"00:17.0\", expected domain, bus"},
      {WithPci("busid=\"0000:17:00.0\" class=\"gpu\""), "line 3: pci has class=\"gpu\""},
      {WithPci("busid=\"0000:17:00.0\" link_speed=\"fast\""), "line 3: pci has link_speed=\"fast\", expected a speed"},
      {WithPci("busid=\"0000:17:00.0\" link_width=\"-1\""), "line 3: pci has link_width=\"-1\""},
      {WithPci("busid=\"0000:17:00.0\" class=\"0x030200\"/>\n<pci busid=\"0000:17:00.0\" class=\"0x030200\""),
       "line 4: pci 0000:17:00.0 is there twice"},
      {"<system version='1'><cpu numaid='0'><nic><net name='a' speed='1G'/></nic></cpu></system>",
       "net has speed=\"1G\", expected Mbit/s"},
      {"<system version='1'><cpu numaid='0'><nic><net name='a' speed='1000000001'/></nic></cpu></system>",
       "net has speed=\"1000000001\", expected Mbit/s"},
      {deep, "elements are nested deeper than 64"},
  };
  for (const auto& [text, message] : cases) {
    EXPECT_NE(NcclRefusal(text).find(message), std::string::npos) << NcclRefusal(text) << "\n" << message;
    EXPECT_NE(NcclRefusal(text).find("unset NCCL_TOPO_FILE"), std::string::npos) << NcclRefusal(text);
  }
}

TEST_F(NcclTopology, EveryCutOfAFileIsAnError) {
  const std::string text = TextOf("dump"), whole = text.substr(0, text.rfind('>') + 1);
  for (size_t size = 0; size < whole.size(); ++size) EXPECT_NE(NcclRefusal(whole.substr(0, size)), "accepted") << size;
}

// What is in an element that is not known is not looked at, whatever it is called.
TEST_F(NcclTopology, UnknownElementsAreSkippedWhole) {
  const NcclFile file = topo::ParseNccl("<system version='1'><rack><cpu numaid='x'/></rack><gpu/></system>").value();
  EXPECT_TRUE(file.cpus.empty());
  EXPECT_EQ(file.ignored, (std::set<std::string>{"gpu", "rack"}));
}

TEST_F(NcclTopology, FilesInBothFormsAreReadAndNamed) {
  using topo::FileUse;
  EXPECT_EQ(topo::ReadFile(MachinePath("laptop"), FileUse::kShow)->machine, ReadMachine("laptop"));
  Result<topo::Found> found = topo::ReadFile(PathOf("cloud"), FileUse::kShow);
  ASSERT_TRUE(found.ok()) << found.status().message();
  EXPECT_EQ(found->machine.gpus.size(), 2u);
  EXPECT_EQ(found->remark.find(PathOf("cloud") + ": 2 of 2 GPUs"), 0u) << found->remark;
  found = topo::ReadFile(PathOf("cloud"), FileUse::kPlace);
  ASSERT_TRUE(found.ok()) << found.status().message();
  EXPECT_EQ(found->machine.gpus, topo::Discover()->gpus);

  const harness::Folder folder;
  std::ofstream(folder.Path("broken")) << "\xef\xbb\xbf\n<system version=\"1\">\n<cpu\n";
  const std::string missing(topo::ReadFile("/nowhere/at/all", FileUse::kShow).status().message());
  EXPECT_NE(missing.find("/nowhere/at/all"), std::string::npos) << missing;
  const std::string wrong(topo::ReadFile(MachinePath("../text_test.cc"), FileUse::kShow).status().message());
  EXPECT_NE(wrong.find("text_test.cc: topology text, line 1"), std::string::npos) << wrong;
  const std::string broken(topo::ReadFile(folder.Path("broken"), FileUse::kPlace).status().message());
  EXPECT_NE(broken.find(folder.Path("broken") + ": NCCL's topology, line 3: this is not XML"), std::string::npos)
      << broken;
}

}  // namespace
}  // namespace axccl::test
