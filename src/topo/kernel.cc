// Reads the machine from /sys.
#include <algorithm>
#include <charconv>
#include <filesystem>

#include "src/base/files.h"
#include "src/base/processors.h"
#include "src/topo/discover.h"

namespace axccl::topo {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kArpEthernet = 1, kArpInfiniband = 32, kArpLoopback = 772;  // <net/if_arp.h>

uint64_t NumberOr(const fs::path& path, uint64_t fallback, int base = 10) {
  const std::string line = FirstLine(path);
  const size_t skip = base == 16 && line.starts_with("0x") ? 2 : 0;
  uint64_t number = 0;
  const auto parsed = std::from_chars(line.data() + skip, line.data() + line.size(), number, base);
  return parsed.ec == std::errc() ? number : fallback;
}

int NodeOf(const fs::path& device) {
  // The file holds -1 if the firmware does not report a node.
  const uint64_t node = NumberOr(device / "numa_node", kMaxNumber + 1);
  return node > kMaxNumber ? kNowhere : static_cast<int>(node);
}

// Lists the entries of a folder by name; none if the folder does not exist.
std::vector<fs::path> List(const fs::path& folder) {
  std::vector<fs::path> entries;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error))
    entries.push_back(it->path());
  std::sort(entries.begin(), entries.end());
  return entries;
}

// Parses a rate such as "100 Gb/sec (4X EDR)".
uint64_t InfinibandMegabits(const fs::path& rate) {
  const std::string line = FirstLine(rate);
  double gigabits = 0;
  const auto parsed = std::from_chars(line.data(), line.data() + line.size(), gigabits);
  return parsed.ec == std::errc() && gigabits > 0 && gigabits < 1e6 ? static_cast<uint64_t>(gigabits * 1000) : 0;
}

NicKind KindOf(const fs::path& interface) {
  std::error_code error;
  if (!fs::exists(interface / "device", error)) return NicKind::kVirtual;
  switch (NumberOr(interface / "type", 0)) {
    case kArpEthernet:
      return NicKind::kEthernet;
    case kArpInfiniband:
      return NicKind::kInfiniband;
    default:
      return NicKind::kOther;
  }
}

// The last but one word of a node's meminfo is its memory in kB: "Node 0 MemTotal: 32 kB".
uint64_t NodeBytes(const fs::path& node) {
  const std::string line = FirstLine(node / "meminfo");
  const size_t digit = line.find_first_of("0123456789", std::min(line.find("MemTotal:"), line.size()));
  uint64_t kilobytes = 0;
  if (digit != std::string::npos) std::from_chars(line.data() + digit, line.data() + line.size(), kilobytes);
  return kilobytes * 1024;
}

bool IsAddress(std::string_view name) {
  return name.size() >= 12 && name.find_first_not_of("0123456789abcdef:.") == std::string_view::npos &&
         name[name.size() - 2] == '.' && name[name.size() - 5] == ':' && name[name.size() - 8] == ':';
}

Group MakeGroup(int node, const std::vector<int>& processors) {
  Group group;
  group.node = node;
  for (const int processor : processors) group.cores.push_back(Core{0, 0, {processor}});
  return group;
}

}  // namespace

bool HasSeveralNodes() { return ParseRanges(FirstLine("/sys/devices/system/node/has_memory")).size() > 1; }

std::vector<Nic> KernelNics(const std::string& sys) {
  std::vector<Nic> nics;
  for (const fs::path& interface : List(fs::path(sys) / "class/net")) {
    std::error_code error;
    if (!fs::is_directory(interface, error) || NumberOr(interface / "type", 0) == kArpLoopback) continue;
    nics.push_back({PrintableName(interface.filename().string()), KindOf(interface), NumberOr(interface / "speed", 0),
                    NodeOf(interface / "device")});
  }
  for (const fs::path& adapter : List(fs::path(sys) / "class/infiniband")) {
    const bool ethernet = FirstLine(adapter / "ports/1/link_layer") == "Ethernet";
    nics.push_back({PrintableName(adapter.filename().string()), ethernet ? NicKind::kEthernet : NicKind::kInfiniband,
                    InfinibandMegabits(adapter / "ports/1/rate"), NodeOf(adapter / "device")});
  }
  return nics;
}

Addresses KernelAddresses(const std::string& sys) {
  Addresses addresses;
  for (const char* kind : {"class/net", "class/infiniband"}) {
    for (const fs::path& nic : List(fs::path(sys) / kind)) {
      // A device of virtio, for example, is below that of PCI.
      std::error_code error;
      for (const fs::path& part : fs::canonical(nic / "device", error)) {
        if (IsAddress(part.string())) addresses[PrintableName(nic.filename().string())] = part.string();
      }
    }
  }
  return addresses;
}

std::vector<Gpu> KernelGpus(const std::string& sys) {
  std::vector<Gpu> gpus;
  for (const fs::path& device : List(fs::path(sys) / "bus/pci/devices")) {
    const uint64_t pci_class = NumberOr(device / "class", 0, 16) >> 8;
    const uint64_t vendor = NumberOr(device / "vendor", 0, 16);
    if (IsGpu(static_cast<uint32_t>(pci_class), static_cast<uint32_t>(vendor)))
      gpus.push_back({PrintableName(device.filename().string()), NodeOf(device)});
  }
  return gpus;
}

bool IsGpu(uint32_t pci_class, uint32_t vendor) {
  constexpr uint32_t kDisplay = 0x03, kAccelerator = 0x1200;
  constexpr uint32_t kAspeed = 0x1a03, kMatrox = 0x102b;
  return (pci_class >> 8 == kDisplay || pci_class == kAccelerator) && vendor != kAspeed && vendor != kMatrox;
}

std::string PrintableName(std::string_view text) {
  std::string name;
  for (const char c : text) name += c >= ' ' && c <= '~' ? c : '?';
  return name;
}

Result<Machine> DiscoverByKernel(const std::string& sys) {
  Machine machine;
  Package& package = machine.packages.emplace_back();
  const std::vector<int> allowed = AllowedProcessors();
  for (const int id : ParseRanges(FirstLine(fs::path(sys) / "devices/system/node/online"))) {
    const fs::path folder = fs::path(sys) / "devices/system/node" / ("node" + std::to_string(id));
    machine.nodes.push_back({id, NodeBytes(folder)});
    std::vector<int> own;
    const std::vector<int> all = ParseRanges(FirstLine(folder / "cpulist"));
    std::set_intersection(all.begin(), all.end(), allowed.begin(), allowed.end(), std::back_inserter(own));
    if (!own.empty()) package.groups.push_back(MakeGroup(id, own));
  }
  if (package.groups.empty()) {
    machine.nodes = {{0, 0}};
    package.groups = {MakeGroup(0, allowed)};
  }
  machine.nics = KernelNics(sys);
  machine.gpus = KernelGpus(sys);
  return machine;
}

}  // namespace axccl::topo
