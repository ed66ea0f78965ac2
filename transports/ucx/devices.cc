#include "transports/ucx/devices.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <optional>
#include <tuple>

#include "src/base/files.h"
#include "src/base/name_filter.h"

namespace axccl::ucx {
namespace {

namespace fs = std::filesystem;

// The names in a folder; none if it cannot be read.
std::vector<std::string> NamesIn(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error))
    names.push_back(it->path().filename());
  return names;
}

// Why an adapter is closed to this process. A container also lists ports that only others may use.
std::string WhyClosed(const fs::path& adapter, const std::string& root) {
  // "1: CA"; adapters for iWARP and those of clouds' own networks do not support what UCX uses.
  const std::string kind = FirstLine(adapter / "node_type");
  if (!kind.starts_with("1:")) return "neither InfiniBand nor RoCE";
  for (const std::string& verbs : NamesIn(adapter / "device" / "infiniband_verbs")) {
    const std::string file = root + "/dev/infiniband/" + verbs;
    return access(file.c_str(), R_OK | W_OK) == 0 ? "" : "no access to /dev/infiniband/" + verbs;
  }
  return "no verbs";
}

std::string WhyDown(const fs::path& port) {
  const std::string state = FirstLine(port / "state");  // "4: ACTIVE"
  if (state.starts_with("4:")) return "";
  return state.size() > 3 ? state.substr(3) : "of unknown state";
}

std::string WhyNot(const Port& port, const DeviceWishes& wishes, const NameFilter& filter) {
  if (wishes.no_ports) return "NCCL_IB_DISABLE=1";
  if (!filter.Takes(port.adapter, port.number)) return filter.excludes() ? "excluded" : "not asked for";
  return port.trouble;
}

Status NoPort(const std::vector<Port>& ports, const DeviceWishes& wishes, const NameFilter& filter) {
  std::string list;
  for (const Port& port : ports)
    list += (list.empty() ? "" : ", ") + port.Name() + " (" + WhyNot(port, wishes, filter) + ")";
  return MakeStatus(Code::kInvalidUsage,
                    "NCCL_NET=%s NCCL_IB_HCA=%s: no port of an InfiniBand or RoCE adapter to use; there are: %s; "
                    "NCCL_NET=Socket goes over TCP",
                    wishes.net.c_str(), wishes.ports.c_str(), list.empty() ? "none" : list.c_str());
}

}  // namespace

std::vector<Port> ListPorts(const std::string& root) {
  std::vector<Port> ports;
  const fs::path adapters = root + "/sys/class/infiniband";
  for (const std::string& adapter : NamesIn(adapters)) {
    const std::string closed = WhyClosed(adapters / adapter, root);
    for (const std::string& name : NamesIn(adapters / adapter / "ports")) {
      Port port{adapter, 0, closed};
      std::from_chars(name.data(), name.data() + name.size(), port.number);
      if (closed.empty()) port.trouble = WhyDown(adapters / adapter / "ports" / name);
      ports.push_back(std::move(port));
    }
  }
  std::sort(ports.begin(), ports.end(), [](const Port& one, const Port& other) {
    return std::tie(one.adapter, one.number) < std::tie(other.adapter, other.number);
  });
  return ports;
}

Result<std::vector<std::string>> SelectDevices(const std::vector<Port>& ports,
                                               const std::vector<std::string>& interfaces, const DeviceWishes& wishes) {
  std::vector<std::string> names;
  if (wishes.net == "Socket") return interfaces;
  const NameFilter filter(wishes.ports);
  for (const Port& port : ports)
    if (WhyNot(port, wishes, filter).empty()) names.push_back(port.Name());
  const bool named = !ports.empty() && !filter.empty() && !filter.excludes() && !wishes.no_ports;
  if (names.empty() && (named || wishes.net == "IB")) return NoPort(ports, wishes, filter);
  if (wishes.net != "IB") names.insert(names.end(), interfaces.begin(), interfaces.end());
  return names;
}

PciDistance FarthestAdapter(const std::string& devices, const std::string& pci_address, const std::string& root) {
  std::optional<PciDistance> farthest;
  for (const Port& port : ListPorts(root)) {
    const std::string listed = "," + devices + ",";
    if (!devices.empty() && listed.find("," + port.Name() + ",") == std::string::npos) continue;
    if (!port.trouble.empty()) continue;
    const PciDistance distance = DistanceOnPci(root + "/sys/class/infiniband/" + port.adapter + "/device",
                                               root + "/sys/bus/pci/devices/" + pci_address);
    farthest = std::max(farthest.value_or(distance), distance);
  }
  return farthest.value_or(PciDistance::kSys);
}

bool HasPeerMemory(const std::string& root) {
  constexpr const char* kModules[] = {"/sys/module/nvidia_peermem", "/sys/kernel/mm/memory_peers/nv_mem",
                                      "/sys/kernel/mm/memory_peers/nv_mem_nc"};
  return std::any_of(std::begin(kModules), std::end(kModules),
                     [&](const char* module) { return access((root + module + "/version").c_str(), F_OK) == 0; });
}

}  // namespace axccl::ucx
