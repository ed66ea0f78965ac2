#include "src/base/pci_distance.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <vector>

#include "src/base/files.h"

namespace axccl {
namespace {

namespace fs = std::filesystem;

constexpr const char* kNames[] = {"LOC", "PIX", "PXB", "PHB", "SYS"};

// The bridges that lead to a device, from that of the host, "pci0000:15", on, and the device.
std::vector<std::string> WayTo(const fs::path& device) {
  std::vector<std::string> way;
  for (const fs::path& part : device) {
    const std::string name = part;
    if (!way.empty() || name.starts_with("pci")) way.push_back(name);
  }
  return way;
}

}  // namespace

const char* Name(PciDistance distance) { return kNames[static_cast<size_t>(distance)]; }

std::optional<PciDistance> ParsePciDistance(std::string_view text) {
  for (size_t i = 0; i < std::size(kNames); ++i)
    if (text == kNames[i] || (text.size() == 1 && text[0] == static_cast<char>('0' + i)))
      return static_cast<PciDistance>(i);
  return text == "5" ? std::optional(PciDistance::kSys) : std::nullopt;
}

// Below a port of the host, a switch is a bridge upstream and one downstream for each device.
PciDistance DistanceOnPci(const std::string& one, const std::string& other) {
  std::error_code error;
  const fs::path first = fs::canonical(one, error), second = error ? fs::path() : fs::canonical(other, error);
  if (error) return PciDistance::kSys;
  if (first == second) return PciDistance::kLoc;
  const std::vector<std::string> a = WayTo(first), b = WayTo(second);
  const auto common =
      static_cast<size_t>(std::distance(a.begin(), std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first));
  if (common >= 2) return std::max(a.size(), b.size()) - common <= 2 ? PciDistance::kPix : PciDistance::kPxb;
  const std::string node = FirstLine(first / "numa_node");
  return !a.empty() && !b.empty() && !node.empty() && node == FirstLine(second / "numa_node") ? PciDistance::kPhb
                                                                                              : PciDistance::kSys;
}

}  // namespace axccl
