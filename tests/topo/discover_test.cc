// Discovery of machines: this one, compared with other files of /sys, and machines from hwloc and from folders that
// look like /sys.
#include <gtest/gtest.h>
#include <net/if.h>
#include <sched.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "src/topo/discover.h"
#include "src/topo/text.h"
#include "tests/harness/folder.h"

namespace axccl::test {
namespace {

namespace fs = std::filesystem;
using harness::Contents;
using topo::Machine;

Machine Found(const Result<Machine>& machine) {
  EXPECT_TRUE(machine.ok()) << machine.status().message();
  return machine.ok() ? machine.value() : Machine();
}

// ---- this machine ----

class ThisMachine : public testing::TestWithParam<Result<Machine> (*)()> {};

// hwloc is an optional package.
#define SKIP_WITHOUT_HWLOC(machine)                                                            \
  if (!(machine).ok() && (machine).status().message().find("hwloc") != std::string_view::npos) \
  GTEST_SKIP() << (machine).status().message()

Result<Machine> ByKernel() { return topo::DiscoverByKernel(); }

TEST_P(ThisMachine, HasTheProcessorsThisProcessMayUse) {
  const Result<Machine> found = GetParam()();
  SKIP_WITHOUT_HWLOC(found);
  const Machine machine = Found(found);
  std::vector<int> allowed;
  cpu_set_t set;
  ASSERT_EQ(sched_getaffinity(0, sizeof(set), &set), 0);
  for (int p = 0; p < CPU_SETSIZE; ++p)
    if (CPU_ISSET(p, &set)) allowed.push_back(p);
  // Discovery by hwloc ignores the processors that the test is bound to.
  const std::vector<int> all = machine.Processors();
  for (const int p : allowed) EXPECT_TRUE(std::find(all.begin(), all.end(), p) != all.end()) << p;
}

TEST_P(ThisMachine, HasItsNodesAndMemory) {
  const Result<Machine> found = GetParam()();
  SKIP_WITHOUT_HWLOC(found);
  const Machine machine = Found(found);
  for (const topo::Node& node : machine.nodes) {
    const std::string folder = "/sys/devices/system/node/node" + std::to_string(node.id);
    if (!fs::exists(folder)) continue;  // a kernel without NUMA
    std::stringstream info(Contents(folder + "/meminfo"));
    std::string word;
    uint64_t kilobytes = 0;
    while (info >> word && word != "MemTotal:") continue;
    info >> kilobytes;
    EXPECT_EQ(node.bytes, kilobytes * 1024) << node.id;
    for (const topo::Package& package : machine.packages) {
      for (const topo::Group& group : package.groups) {
        if (group.node != node.id) continue;
        for (const topo::Core& core : group.cores) {
          for (const int p : core.processors)
            EXPECT_TRUE(
                fs::exists("/sys/devices/system/cpu/cpu" + std::to_string(p) + "/node" + std::to_string(node.id)))
                << p;
        }
      }
    }
  }
}

TEST_P(ThisMachine, HasTheInterfacesThatTheSocketsSee) {
  if (!fs::exists("/sys/class/net")) GTEST_SKIP() << "/sys is not mounted, which knows the networks";
  const Result<Machine> found = GetParam()();
  SKIP_WITHOUT_HWLOC(found);
  std::set<std::string> expected, seen;
  struct if_nameindex* const names = if_nameindex();
  ASSERT_NE(names, nullptr);
  for (const struct if_nameindex* each = names; each->if_name != nullptr; ++each) {
    if (std::string(each->if_name) != "lo") expected.insert(each->if_name);
  }
  if_freenameindex(names);
  for (const topo::Nic& nic : Found(found).nics) {
    if (!fs::exists("/sys/class/infiniband/" + nic.name)) seen.insert(nic.name);
  }
  EXPECT_EQ(seen, expected);
}

INSTANTIATE_TEST_SUITE_P(Both, ThisMachine, testing::Values(&topo::DiscoverByHwloc, &ByKernel));

// Cores and packages by the kernel's numbers, which hwloc reads from other files.
TEST(DiscoverByHwloc, GroupsProcessorsByCoreAndPackage) {
  const Result<Machine> found = topo::DiscoverByHwloc();
  SKIP_WITHOUT_HWLOC(found);
  if (!fs::exists("/sys/devices/system/cpu")) GTEST_SKIP() << "/sys is not mounted, which knows the processors";
  const Machine machine = Found(found);
  std::set<std::string> packages;
  for (const topo::Package& package : machine.packages) {
    std::string id;
    for (const topo::Group& group : package.groups) {
      for (const topo::Core& core : group.cores) {
        for (const int p : core.processors) {
          const std::string folder = "/sys/devices/system/cpu/cpu" + std::to_string(p) + "/topology/";
          std::vector<int> siblings = core.processors;
          std::sort(siblings.begin(), siblings.end());
          EXPECT_EQ(topo::RangeText(siblings) + "\n", Contents(folder + "thread_siblings_list")) << p;
          if (id.empty()) id = Contents(folder + "physical_package_id");
          EXPECT_EQ(Contents(folder + "physical_package_id"), id) << p;
        }
      }
    }
    EXPECT_TRUE(packages.insert(id).second) << "package " << id << " is listed twice";
  }
}

TEST(Discover, GivesAMachineThatHasAText) {
  const Machine machine = Found(topo::Discover());
  EXPECT_EQ(Found(topo::Parse(topo::Print(machine))), machine);
  EXPECT_EQ(topo::HasSeveralNodes(), machine.nodes.size() > 1);
}

// ---- machines from hwloc ----

class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) { setenv(name, value, 1); }
  ~Variable() { unsetenv(name_); }

 private:
  const char* const name_;
};

TEST(DiscoverByHwloc, ReadsSyntheticMachines) {
  const Variable synthetic("HWLOC_SYNTHETIC",
                           "pack:2 [numa(memory=1GB)] l3:2(size=4MB) l2:3(size=512kB) l1d:1(size=32kB) core:1 pu:2");
  const Result<Machine> found = topo::DiscoverByHwloc();
  SKIP_WITHOUT_HWLOC(found);
  const Machine machine = Found(found);
  ASSERT_EQ(machine.nodes.size(), 2u);
  EXPECT_EQ(machine.nodes[1].bytes, 1000000000u);
  ASSERT_EQ(machine.packages.size(), 2u);
  int processor = 0;
  for (int package = 0; package < 2; ++package) {
    const auto& groups = machine.packages[static_cast<size_t>(package)].groups;
    ASSERT_EQ(groups.size(), 2u);
    for (const topo::Group& group : groups) {
      EXPECT_EQ(group.node, package);
      EXPECT_EQ(group.l3, 4000000u);
      ASSERT_EQ(group.cores.size(), 3u);
      for (const topo::Core& core : group.cores) {
        EXPECT_EQ(core, (topo::Core{32000, 512000, {processor, processor + 1}}));
        processor += 2;
      }
    }
  }
  EXPECT_TRUE(machine.nics.empty()) << "NICs of this machine";
}

// Two nodes, a NIC and a GPU at the second, another NIC at no node.
TEST(DiscoverByHwloc, ReadsMachinesFromItsFiles) {
  const std::string xml = std::string(AXCCL_TEST_SOURCE_DIR) + "/tests/topo/two_nodes.xml";
  const Variable file("HWLOC_XMLFILE", xml.c_str());
  const Result<Machine> found = topo::DiscoverByHwloc();
  SKIP_WITHOUT_HWLOC(found);
  const Machine machine = Found(found);
  ASSERT_EQ(machine.nodes.size(), 2u);
  EXPECT_EQ(machine.processor, "Example Xeon");
  EXPECT_EQ(machine.nics, (std::vector<topo::Nic>{{"eth5", topo::NicKind::kEthernet, 0, topo::kNowhere},
                                                  {"mlx5_0", topo::NicKind::kInfiniband, 0, 1}}));
  EXPECT_EQ(machine.gpus, (std::vector<topo::Gpu>{{"0000:82:00.0", 1}}));
}

TEST(Discover, GoesOnWithoutHwloc) {
  const Variable none("HWLOC_XMLFILE", "/nowhere/at/all");
  const Machine machine = Found(topo::Discover());
  EXPECT_EQ(machine.packages.size(), 1u);
}

// ---- a folder that looks like /sys ----

class FakeSys : public testing::Test {
 protected:
  void Write(const std::string& path, const std::string& text) {
    fs::create_directories(fs::path(root_ + "/" + path).parent_path());
    std::ofstream(root_ + "/" + path) << text << "\n";
  }
  const harness::Folder folder_;
  const std::string& root_ = folder_.path();
};

TEST_F(FakeSys, NicsAreListedWithKindSpeedAndNode) {
  Write("class/net/lo/type", "772");
  Write("class/net/eth0/type", "1");
  Write("class/net/eth0/speed", "25000");
  Write("class/net/eth0/device/numa_node", "1");
  Write("class/net/eth1/type", "1");
  Write("class/net/eth1/speed", "-1");
  Write("class/net/eth1/device/numa_node", "-1");
  Write("class/net/ib0/type", "32");
  Write("class/net/ib0/device/numa_node", "0");
  Write("class/net/veth3/type", "1");
  Write("class/net/veth3/speed", "10000");
  Write("class/net/bonding_masters", "bond0");
  Write("class/infiniband/mlx5_0/ports/1/rate", "400 Gb/sec (4X NDR)");
  Write("class/infiniband/mlx5_0/device/numa_node", "1");
  Write("class/infiniband/mlx5_1/ports/1/link_layer", "Ethernet");
  using topo::NicKind;
  EXPECT_EQ(topo::KernelNics(root_), (std::vector<topo::Nic>{{"eth0", NicKind::kEthernet, 25000, 1},
                                                             {"eth1", NicKind::kEthernet, 0, topo::kNowhere},
                                                             {"ib0", NicKind::kInfiniband, 0, 0},
                                                             {"veth3", NicKind::kVirtual, 10000, topo::kNowhere},
                                                             {"mlx5_0", NicKind::kInfiniband, 400000, 1},
                                                             {"mlx5_1", NicKind::kEthernet, 0, topo::kNowhere}}));
}

TEST_F(FakeSys, NicsHaveTheAddressOfTheirPciDevice) {
  Write("devices/pci0000:00/0000:00:03.0/virtio1/vendor", "0x1af4");
  Write("devices/pci0000:00/0000:00:02.0/0000:c1:00.1/vendor", "0x15b3");
  Write("devices/usb/1-1.2/vendor", "0x0bda");
  for (const auto& [nic, device] : std::vector<std::pair<std::string, std::string>>{
           {"net/eth0", "pci0000:00/0000:00:03.0/virtio1"},
           {"net/usb0", "usb/1-1.2"},
           {"infiniband/mlx5_0", "pci0000:00/0000:00:02.0/0000:c1:00.1"}}) {
    Write("class/" + nic + "/type", "1");
    std::filesystem::create_symlink(root_ + "/devices/" + device, root_ + "/class/" + nic + "/device");
  }
  Write("class/net/lo/type", "772");
  EXPECT_EQ(topo::KernelAddresses(root_), (topo::Addresses{{"eth0", "0000:00:03.0"}, {"mlx5_0", "0000:c1:00.1"}}));
}

TEST_F(FakeSys, GpusAreRecognisedByTheirClass) {
  const auto device = [&](const std::string& address, const std::string& pci_class, const std::string& vendor) {
    Write("bus/pci/devices/" + address + "/class", pci_class);
    Write("bus/pci/devices/" + address + "/vendor", vendor);
    Write("bus/pci/devices/" + address + "/numa_node", "1");
  };
  device("0000:01:00.0", "0x030000", "0x1a03");  // the display of a maintenance processor
  device("0000:02:00.0", "0x020000", "0x15b3");  // a NIC
  device("0000:18:00.0", "0x030200", "0x10de");
  device("0000:c1:00.0", "0x120000", "0x1002");
  EXPECT_EQ(topo::KernelGpus(root_), (std::vector<topo::Gpu>{{"0000:18:00.0", 1}, {"0000:c1:00.0", 1}}));
}

TEST_F(FakeSys, AnEmptyMachineHasOneNodeWithThisProcesssProcessors) {
  const Machine machine = Found(topo::DiscoverByKernel(root_));
  cpu_set_t set;
  ASSERT_EQ(sched_getaffinity(0, sizeof(set), &set), 0);
  EXPECT_EQ(machine.Processors().size(), static_cast<size_t>(CPU_COUNT(&set)));
  EXPECT_EQ(machine.nodes, (std::vector<topo::Node>{{0, 0}}));
}

TEST_F(FakeSys, NodesShareTheProcessorsAsTheKernelReports) {
  cpu_set_t set;
  ASSERT_EQ(sched_getaffinity(0, sizeof(set), &set), 0);
  int mine = 0;
  while (!CPU_ISSET(mine, &set)) ++mine;
  Write("devices/system/node/online", "0-1");
  Write("devices/system/node/node0/cpulist", "60000-60002");  // none that this process may use
  Write("devices/system/node/node0/meminfo", "Node 0 MemTotal:       1024 kB");
  Write("devices/system/node/node1/cpulist", std::to_string(mine));
  Write("devices/system/node/node1/meminfo", "Node 1 MemTotal:       2048 kB");
  const Machine machine = Found(topo::DiscoverByKernel(root_));
  EXPECT_EQ(machine.nodes, (std::vector<topo::Node>{{0, 1 << 20}, {1, 2 << 20}}));
  ASSERT_EQ(machine.packages.size(), 1u);
  ASSERT_EQ(machine.packages[0].groups.size(), 1u);
  EXPECT_EQ(machine.packages[0].groups[0].node, 1);
  EXPECT_EQ(machine.Processors(), std::vector<int>{mine});
}

}  // namespace
}  // namespace axccl::test
