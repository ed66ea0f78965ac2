// Which devices UCX gets, on machines that are simulated by files in a folder.
#include "transports/ucx/devices.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace axccl::ucx {
namespace {

namespace fs = std::filesystem;

class DevicesTest : public testing::Test {
 protected:
  DevicesTest() { fs::create_directories(root_); }
  ~DevicesTest() override { fs::remove_all(root_); }

  void Write(const std::string& file, const std::string& text) {
    fs::create_directories((root_ / file).parent_path());
    std::ofstream(root_ / file) << text << "\n";
  }
  void AddAdapter(const std::string& name, const std::string& node_type, const std::string& verbs, bool readable) {
    Write("sys/class/infiniband/" + name + "/node_type", node_type);
    fs::create_directories(root_ / "sys/class/infiniband" / name / "device/infiniband_verbs" / verbs);
    if (readable) Write("dev/infiniband/" + verbs, "");
  }
  void AddPort(const std::string& adapter, int port, const std::string& state) {
    Write("sys/class/infiniband/" + adapter + "/ports/" + std::to_string(port) + "/state", state);
  }

  fs::path root_ = fs::path(testing::TempDir()) / ("axccl_devices." + std::to_string(getpid()));
};

TEST_F(DevicesTest, PortsAreListedWithTheirTrouble) {
  AddAdapter("mlx5_1", "1: CA", "uverbs1", true);
  AddPort("mlx5_1", 10, "4: ACTIVE");
  AddPort("mlx5_1", 2, "1: DOWN");
  AddAdapter("mlx5_0", "1: CA", "uverbs0", true);
  AddPort("mlx5_0", 1, "4: ACTIVE");
  AddPort("mlx5_0", 2, "");
  AddAdapter("shut0", "1: CA", "uverbs2", false);
  AddPort("shut0", 1, "4: ACTIVE");
  AddAdapter("warp0", "4: RNIC", "uverbs3", true);
  AddPort("warp0", 1, "4: ACTIVE");
  std::string text;
  for (const Port& port : ListPorts(root_)) text += port.Name() + " (" + port.trouble + ") ";
  EXPECT_EQ(text,
            "mlx5_0:1 () mlx5_0:2 (of unknown state) mlx5_1:2 (DOWN) mlx5_1:10 () "
            "shut0:1 (no access to /dev/infiniband/uverbs2) warp0:1 (neither InfiniBand nor RoCE) ");
}

TEST_F(DevicesTest, NoneWithoutSuchHardware) { EXPECT_TRUE(ListPorts(root_).empty()); }

TEST_F(DevicesTest, TheFarthestAdapterCounts) {
  const std::string bridge = "sys/devices/pci0000:15/0000:15:01.0/", far = "sys/devices/pci0000:80/0000:80:01.0/";
  const auto link = [&](const std::string& from, const std::string& to) {
    fs::create_directories(root_ / to);
    Write(to + "/numa_node", to.starts_with(far) ? "1" : "0");
    fs::create_directories((root_ / from).parent_path());
    fs::create_symlink(root_ / to, root_ / from);
  };
  link("sys/bus/pci/devices/0000:16:00.0", bridge + "0000:16:00.0");
  link("sys/class/infiniband/mlx5_0/device", far + "0000:81:00.0");
  link("sys/class/infiniband/mlx5_1/device", bridge + "0000:16:00.1");
  for (const char* const adapter : {"mlx5_0", "mlx5_1"}) {
    AddAdapter(adapter, "1: CA", "uverbs0", true);
    AddPort(adapter, 1, "4: ACTIVE");
  }
  const auto farthest = [&](const std::string& devices) { return FarthestAdapter(devices, "0000:16:00.0", root_); };
  EXPECT_EQ(farthest("mlx5_0:1"), PciDistance::kSys);
  EXPECT_EQ(farthest("mlx5_1:1"), PciDistance::kPix);
  EXPECT_EQ(farthest("mlx5_0:1,mlx5_1:1,eth0"), PciDistance::kSys);
  EXPECT_EQ(farthest(""), PciDistance::kSys);
  EXPECT_EQ(farthest("mlx5_1:1,eth0"), PciDistance::kPix);
  EXPECT_EQ(farthest("mlx5_11:1"), PciDistance::kSys);
  EXPECT_EQ(FarthestAdapter("", "0000:99:00.0", root_), PciDistance::kSys);
}

TEST_F(DevicesTest, ModulesOfTheKernelShowAdaptersTheMemoryOfDevices) {
  for (const char* const module : {"sys/module/nvidia_peermem", "sys/kernel/mm/memory_peers/nv_mem"}) {
    EXPECT_FALSE(HasPeerMemory(root_));
    Write(std::string(module) + "/version", "1");
    EXPECT_TRUE(HasPeerMemory(root_));
    fs::remove_all(root_ / module);
  }
}

struct Choice {
  const char* name;
  bool adapters;  // whether the machine has adapters
  DeviceWishes wishes;
  std::vector<std::string> expected;
};

class ChoiceTest : public testing::TestWithParam<Choice> {};

const std::vector<Port>& Ports() {
  static const std::vector<Port> ports = {
      {"mlx5_0", 1, ""}, {"mlx5_0", 2, "DOWN"}, {"mlx5_1", 1, ""}, {"mlx5_10", 1, ""}, {"shut0", 1, "no access to it"}};
  return ports;
}

TEST_P(ChoiceTest, IsMade) {
  const Choice& choice = GetParam();
  const auto chosen = SelectDevices(choice.adapters ? Ports() : std::vector<Port>{}, {"eth0", "eth1"}, choice.wishes);
  ASSERT_TRUE(chosen.ok()) << chosen.status().message();
  EXPECT_EQ(chosen.value(), choice.expected);
}

INSTANTIATE_TEST_SUITE_P(
    Choices, ChoiceTest,
    testing::Values(
        Choice{"AllByDefault", true, {"", false, ""}, {"mlx5_0:1", "mlx5_1:1", "mlx5_10:1", "eth0", "eth1"}},
        Choice{"TcpWhereThereIsNothingElse", false, {"", false, ""}, {"eth0", "eth1"}},
        Choice{"Disabled", true, {"", true, ""}, {"eth0", "eth1"}},
        Choice{"DisabledThoughNamed", true, {"", true, "mlx5_1"}, {"eth0", "eth1"}},
        Choice{"Socket", true, {"Socket", false, "nosuch"}, {"eth0", "eth1"}},
        Choice{"OnlyInfiniBand", true, {"IB", false, ""}, {"mlx5_0:1", "mlx5_1:1", "mlx5_10:1"}},
        Choice{"Prefix", true, {"IB", false, "mlx5_1"}, {"mlx5_1:1", "mlx5_10:1"}},
        Choice{"ExactPort", true, {"IB", false, "=mlx5_1:1,mlx5_0:2"}, {"mlx5_1:1"}},
        Choice{"Named", true, {"", false, "=mlx5_1"}, {"mlx5_1:1", "eth0", "eth1"}},
        Choice{"Excluded", true, {"", false, "^mlx5_1"}, {"mlx5_0:1", "eth0", "eth1"}},
        Choice{"AllExcluded", true, {"", false, "^mlx5,shut"}, {"eth0", "eth1"}},
        Choice{"NamedWhereThereIsNoSuchHardware", false, {"", false, "mlx5_1"}, {"eth0", "eth1"}}),
    [](const auto& info) { return info.param.name; });

std::string Refusal(const std::vector<Port>& ports, const DeviceWishes& wishes) {
  const auto chosen = SelectDevices(ports, {"eth0"}, wishes);
  EXPECT_EQ(chosen.status().code(), Code::kInvalidUsage);
  return std::string(chosen.status().message());
}

TEST(DeviceErrorTest, ListsThePortsAndWhyEachWasRejected) {
  EXPECT_NE(Refusal({}, {"IB", false, ""}).find("there are: none;"), std::string::npos);
  EXPECT_NE(
      Refusal(Ports(), {"IB", false, "mlx5_0:2,shut0"})
          .find("NCCL_NET=IB NCCL_IB_HCA=mlx5_0:2,shut0: no port of an InfiniBand or RoCE adapter to use; there are: "
                "mlx5_0:1 (not asked for), mlx5_0:2 (DOWN), mlx5_1:1 (not asked for), mlx5_10:1 (not asked for), "
                "shut0:1 (no access to it); "),
      std::string::npos);
  EXPECT_NE(Refusal(Ports(), {"", false, "=nosuch"}).find("mlx5_1:1 (not asked for)"), std::string::npos);
  EXPECT_NE(Refusal(Ports(), {"IB", false, "^mlx5"}).find("mlx5_1:1 (excluded)"), std::string::npos);
  EXPECT_NE(Refusal(Ports(), {"IB", true, ""}).find("mlx5_1:1 (NCCL_IB_DISABLE=1)"), std::string::npos);
}

}  // namespace
}  // namespace axccl::ucx
