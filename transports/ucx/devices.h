// Selects the network devices for UCX: ports of InfiniBand and RoCE adapters, and interfaces for TCP.
//
// As in NCCL, NCCL_NET=IB selects ports only, NCCL_NET=Socket and NCCL_IB_DISABLE=1 select interfaces only, and
// NCCL_IB_HCA names the ports (see src/base/name_filter.h). Without these, UCX gets both, and uses the best for each
// peer, which may have no adapter. A port is usable if it is active and this process may open its adapter.
#pragma once

#include <string>
#include <vector>

#include "src/base/pci_distance.h"
#include "src/base/status.h"

namespace axccl::ucx {

struct Port {
  std::string adapter;
  int number = 0;
  std::string trouble;  // why it is not usable; empty: it is

  std::string Name() const { return adapter + ":" + std::to_string(number); }  // UCX's name
};

// All ports, by name; none without such hardware. Looks below `root`/sys/class/infiniband and `root`/dev/infiniband.
std::vector<Port> ListPorts(const std::string& root);

// The settings of the environment; empty and false: none.
struct DeviceWishes {
  std::string net;        // NCCL_NET: "IB", "Socket"
  bool no_ports = false;  // NCCL_IB_DISABLE
  std::string ports;      // NCCL_IB_HCA
};
// Returns UCX's names, ports first. `interfaces`: those for data (boot::SelectNames). kInvalidUsage if ports are
// required and none is usable, with a list of the ports and why each was rejected. NCCL_IB_HCA alone requires ports
// only if there are any.
Result<std::vector<std::string>> SelectDevices(const std::vector<Port>& ports,
                                               const std::vector<std::string>& interfaces, const DeviceWishes& wishes);

// Of the adapters among UCX's devices (all, if there are no names), how far the farthest is from a device on PCI: UCX
// may use any of them.
PciDistance FarthestAdapter(const std::string& devices, const std::string& pci_address, const std::string& root);

// Whether a module of the kernel shows adapters the memory of NVIDIA's devices. Without one, DMA-BUF may.
bool HasPeerMemory(const std::string& root);

}  // namespace axccl::ucx
