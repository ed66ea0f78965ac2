#include "src/comm/network.h"

#include <string>
#include <vector>

#include "src/base/format.h"
#include "src/base/param.h"
#include "transports/ucx/devices.h"

namespace axccl::comm {

Result<LocalNetwork> FindNetwork(const LocalRanks& local) {
  const std::string family = param::Get("NCCL_SOCKET_FAMILY");
  const ucx::DeviceWishes wishes{param::Get("NCCL_NET"), param::GetInt("NCCL_IB_DISABLE") != 0, param::Get("NCCL_IB_HCA")};
  LocalNetwork found;
  AXCCL_ASSIGN_OR_RETURN(const std::vector<boot::Interface> interfaces, boot::ListInterfaces());
  AXCCL_ASSIGN_OR_RETURN(const std::vector<std::string> names,
                         boot::SelectNames(interfaces, param::Get("NCCL_SOCKET_IFNAME"), family));
  AXCCL_ASSIGN_OR_RETURN(found.devices,
                         ucx::SelectDevices(ucx::ListPorts(""), PlaceInterfaces(local, interfaces, names), wishes));
  AXCCL_ASSIGN_OR_RETURN(const std::vector<boot::Address> addresses,
                         boot::SelectAddresses(interfaces, "=" + names[0], family));
  found.address = addresses[0];
  found.self.devices = Join(found.devices, ",");
  found.self.families = family.empty() ? "" : family == "AF_INET" ? "inet" : "inet6";
  socklen_t bytes = 0;
  found.self.local = boot::ToSockaddr(found.address, &bytes);
  return found;
}

}  // namespace axccl::comm
