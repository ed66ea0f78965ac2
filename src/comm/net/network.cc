#include "src/comm/net/network.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>

#include "src/base/format.h"
#include "src/base/log.h"
#include "src/base/param.h"
#include "transports/ucx/devices.h"

namespace axccl::comm {
namespace {

sockaddr_storage Sockaddr(const boot::Address& address) {
  socklen_t bytes = 0;
  return boot::ToSockaddr(address, &bytes);
}

bool IsPort(const std::string& device) { return device.find(':') != std::string::npos; }

// What AXCCL_ENCRYPT asks for; `net`: AXCCL_NET.
Result<remote::Sealing> FindSealing(const std::string& net) {
  const std::string encrypt = param::Get("AXCCL_ENCRYPT");
  if (const std::string complaint = param::Complaint("AXCCL_ENCRYPT"); !complaint.empty())
    return MakeStatus(Code::kInvalidUsage, "%s", complaint.c_str());
  const remote::Sealing sealing = encrypt == "1"      ? remote::Sealing::kAll
                                  : encrypt == "auth" ? remote::Sealing::kAuth
                                                      : remote::Sealing::kNone;
  if (sealing != remote::Sealing::kNone && net == "ucx")
    return MakeStatus(Code::kInvalidUsage, "AXCCL_ENCRYPT=%s needs TCP: unset AXCCL_NET=ucx", encrypt.c_str());
  return sealing;
}

const boot::Interface& Named(const std::vector<boot::Interface>& interfaces, const std::string& name) {
  return *std::find_if(interfaces.begin(), interfaces.end(),
                       [&](const boot::Interface& each) { return each.name == name; });
}

// The address of an interface for data that other ranks get first.
Result<boot::Address> AddressOf(const std::vector<boot::Interface>& interfaces, const std::string& name) {
  AXCCL_ASSIGN_OR_RETURN(const std::vector<boot::Address> addresses,
                         boot::SelectAddresses(interfaces, "=" + name, param::Get("NCCL_SOCKET_FAMILY")));
  return addresses[0];
}

std::string Describe(const Way& way) {
  const std::string speed = way.megabits == 0 ? "unknown speed" : std::to_string(way.megabits) + " Mbit/s";
  return way.name + " (" + (way.network.empty() ? "unknown network" : way.network) + ", " + speed + ")";
}

void Log(const Rails& rails) {
  std::vector<std::string> taken;
  for (const Way& way : rails.taken) taken.push_back(Describe(way));
  const bool slower = rails.taken.back().megabits < rails.taken.front().megabits;
  AXCCL_INFO(kNet, "rails: %s%s; left out: %s", Join(taken, ", ").c_str(),
             slower ? "; slower ones than the first only to machines that no faster one leads to" : "",
             rails.left_out.empty() ? "none" : rails.left_out.c_str());
}

// Makes one rail of everything. UCX itself combines the ports of adapters.
Status TakeTogether(const std::vector<boot::Interface>& interfaces, const std::string& first, LocalNetwork* network) {
  AXCCL_ASSIGN_OR_RETURN(network->address, AddressOf(interfaces, first));
  const std::string of_first = boot::NetworkOf(Named(interfaces, first), network->address);
  network->self.rails = {{Join(network->devices, ","), of_first, 0, Sockaddr(network->address)}};
  return Status();
}

Status TakeRails(const std::vector<boot::Interface>& interfaces, LocalNetwork* network) {
  const std::vector<uint64_t> speeds = SpeedsOf(network->devices);
  std::vector<Way> ways;
  for (size_t i = 0; i < network->devices.size(); ++i) {
    const std::string& name = network->devices[i];
    AXCCL_ASSIGN_OR_RETURN(const boot::Address address, AddressOf(interfaces, name));
    ways.push_back({name, boot::NetworkOf(Named(interfaces, name), address), speeds[i]});
  }
  const Rails rails = ChooseRails(ways);
  Log(rails);
  network->devices.clear();
  for (const Way& way : rails.taken) {
    AXCCL_ASSIGN_OR_RETURN(const boot::Address address, AddressOf(interfaces, way.name));
    if (network->devices.empty()) network->address = address;
    network->devices.push_back(way.name);
    if (rails.taken.size() > 1) network->networks.push_back(way.network);
    network->self.rails.push_back({way.name, way.network, way.megabits, Sockaddr(address)});
  }
  return Status();
}

// UCX does not authenticate connections: a packet of its protocol can write anywhere. Warned once in a process, and by
// one process of a machine.
void WarnOfOpenPorts(const LocalRanks& local, const std::vector<std::string>& devices, const boot::Address& address) {
  const bool tcp = !std::all_of(devices.begin(), devices.end(), IsPort);
  if (!tcp || local.self != 0 || !param::Get("NCCL_SOCKET_IFNAME").empty() || param::GetInt("AXCCL_TRUST_NETWORK") != 0)
    return;
  static std::atomic<bool> warned{false};
  if (warned.exchange(true)) return;
  log::WriteNotice(
      "ranks on several machines meet over UCX, whose TCP ports (here at %s) accept every connection and let it "
      "write any memory of this process; unset AXCCL_NET, or use a network that no stranger can reach, and name it by "
      "NCCL_SOCKET_IFNAME, or set AXCCL_TRUST_NETWORK=1 (docs/two-machines.md)",
      boot::HostText(address).c_str());
}

}  // namespace

Result<LocalNetwork> FindNetwork(const LocalRanks& local) {
  const std::string family = param::Get("NCCL_SOCKET_FAMILY"), net = param::Get("AXCCL_NET");
  LocalNetwork found;
  AXCCL_ASSIGN_OR_RETURN(found.self.sealing, FindSealing(net));
  const bool tcp = net == "tcp" || found.self.sealing != remote::Sealing::kNone;
  if (tcp && param::Get("NCCL_NET") == "IB")
    return MakeStatus(Code::kInvalidUsage,
                      "NCCL_NET=IB excludes TCP, which AXCCL_NET=tcp or AXCCL_ENCRYPT asks for: unset one of the two");
  const ucx::DeviceWishes wishes{tcp ? "Socket" : param::Get("NCCL_NET"), param::GetInt("NCCL_IB_DISABLE") != 0,
                                 param::Get("NCCL_IB_HCA")};
  AXCCL_ASSIGN_OR_RETURN(const std::vector<boot::Interface> interfaces, boot::ListInterfaces());
  AXCCL_ASSIGN_OR_RETURN(const std::vector<std::string> names,
                         boot::SelectNames(interfaces, param::Get("NCCL_SOCKET_IFNAME"), family));
  AXCCL_ASSIGN_OR_RETURN(found.devices,
                         ucx::SelectDevices(ucx::ListPorts(""), PlaceInterfaces(local, interfaces, names), wishes));
  found.self.families = family.empty() ? "" : family == "AF_INET" ? "inet" : "inet6";
  const bool ports = std::any_of(found.devices.begin(), found.devices.end(), IsPort);
  found.over_ucx = ports || net == "ucx";
  // If the environment restricts UCX to some devices, it uses only those, on every rail.
  const bool restricted = found.over_ucx && std::getenv("UCX_NET_DEVICES") != nullptr;
  if (ports || found.devices.size() == 1 || restricted)
    AXCCL_RETURN_IF_ERROR(TakeTogether(interfaces, ports ? names[0] : found.devices[0], &found));
  else
    AXCCL_RETURN_IF_ERROR(TakeRails(interfaces, &found));
  AXCCL_INFO(kNet, "between machines: %s over %s (%s)", found.over_ucx ? "UCX" : "TCP",
             Join(found.devices, ", ").c_str(),
             !net.empty() ? ("AXCCL_NET=" + net).c_str()
             : tcp        ? "AXCCL_ENCRYPT needs it"
             : ports      ? "there are adapters for it"
                          : "no InfiniBand or RoCE adapter is used");
  if (found.over_ucx) WarnOfOpenPorts(local, found.devices, found.address);
  return found;
}

bool MayUseUcx() { return param::Get("AXCCL_NET") == "ucx" || !ucx::ListPorts("").empty(); }

Rails ChooseRails(std::span<const Way> ways) {
  std::vector<Way> sorted(ways.begin(), ways.end());
  std::stable_sort(sorted.begin(), sorted.end(), [](const Way& a, const Way& b) { return a.megabits > b.megabits; });
  Rails rails;
  for (const Way& way : sorted) {
    const auto same = std::find_if(rails.taken.begin(), rails.taken.end(),
                                   [&](const Way& taken) { return taken.network == way.network; });
    std::string why;
    if (rails.taken.size() == remote::kMostRails) why = "there are " + std::to_string(remote::kMostRails) + " already";
    if (!rails.taken.empty() && way.network.empty()) why = "unknown network";
    if (same != rails.taken.end()) why = "same network as " + same->name;
    if (why.empty())
      rails.taken.push_back(way);
    else
      rails.left_out += (rails.left_out.empty() ? "" : ", ") + way.name + " (" + why + ")";
  }
  return rails;
}

}  // namespace axccl::comm
