// Distances on PCI (src/base/pci_distance.h), in folders like those of /sys.
#include "src/base/pci_distance.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "tests/harness/folder.h"

namespace axccl {
namespace {

namespace fs = std::filesystem;

class PciDistanceTest : public testing::Test {
 protected:
  // A device, and the link to it by its address.
  std::string Add(const std::string& way, const char* node = "0") {
    const fs::path device = folder_.Path("devices/" + way);
    fs::create_directories(device);
    std::ofstream(device / "numa_node") << node << "\n";
    const fs::path link = folder_.Path("bus/" + device.filename().string());
    fs::create_directories(link.parent_path());
    fs::create_symlink(device, link);
    return link;
  }

  const harness::Folder folder_;
};

TEST_F(PciDistanceTest, FollowsTheBridges) {
  const std::string gpu = Add("pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:00.0/0000:18:00.0");
  EXPECT_EQ(DistanceOnPci(gpu, gpu), PciDistance::kLoc);
  const std::string beside = Add("pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:01.0/0000:19:00.0");
  EXPECT_EQ(DistanceOnPci(gpu, beside), PciDistance::kPix);
  EXPECT_EQ(DistanceOnPci(beside, gpu), PciDistance::kPix);
  const std::string below =
      Add("pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:02.0/0000:1a:00.0/0000:1b:00.0/0000:1c:00.0");
  EXPECT_EQ(DistanceOnPci(gpu, below), PciDistance::kPxb);
  EXPECT_EQ(DistanceOnPci(gpu, Add("pci0000:15/0000:15:02.0/0000:1d:00.0")), PciDistance::kPhb) << "another port";
  EXPECT_EQ(DistanceOnPci(gpu, Add("pci0000:30/0000:30:01.0/0000:31:00.0")), PciDistance::kPhb) << "another bridge";
  EXPECT_EQ(DistanceOnPci(gpu, Add("pci0000:80/0000:80:01.0/0000:81:00.0", "1")), PciDistance::kSys);
}

TEST_F(PciDistanceTest, WhatIsNotKnownIsFar) {
  const std::string gpu = Add("pci0000:15/0000:15:01.0/0000:16:00.0");
  EXPECT_EQ(DistanceOnPci(gpu, folder_.Path("nothing")), PciDistance::kSys);
  EXPECT_EQ(DistanceOnPci(folder_.Path("nothing"), gpu), PciDistance::kSys);
  EXPECT_EQ(DistanceOnPci(gpu, Add("virtual/net/eth0")), PciDistance::kSys);
}

TEST(PciDistances, HaveNcclsNamesAndNumbers) {
  const std::pair<const char*, PciDistance> cases[] = {
      {"LOC", PciDistance::kLoc}, {"PIX", PciDistance::kPix}, {"PXB", PciDistance::kPxb}, {"PHB", PciDistance::kPhb},
      {"SYS", PciDistance::kSys}, {"0", PciDistance::kLoc},   {"1", PciDistance::kPix},   {"2", PciDistance::kPxb},
      {"3", PciDistance::kPhb},   {"4", PciDistance::kSys},   {"5", PciDistance::kSys}};
  for (const auto& [text, distance] : cases) {
    EXPECT_EQ(ParsePciDistance(text), distance) << text;
    if (std::string(text).size() == 3) {
      EXPECT_STREQ(Name(distance), text);
    }
  }
  for (const char* const text : {"", "6", "PXX", "pix"}) EXPECT_EQ(ParsePciDistance(text), std::nullopt) << text;
}

}  // namespace
}  // namespace axccl
