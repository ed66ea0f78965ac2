// Which devices of the network UCX is given: ports of InfiniBand and RoCE adapters, and interfaces for TCP.
//
// As with NCCL, NCCL_NET=IB asks for ports alone, NCCL_NET=Socket and NCCL_IB_DISABLE=1 for interfaces alone, and
// NCCL_IB_HCA says which ports (see src/base/name_filter.h). Where nothing is said UCX gets both, and takes what is
// best to each peer; it may be that a peer has no adapter. A port can be used if it is active and this process may open
// its adapter.
#pragma once

#include <string>
#include <vector>

#include "src/base/status.h"

namespace axccl::ucx {

struct Port {
  std::string adapter;
  int number = 0;
  std::string trouble;  // why it cannot be used; empty: it can

  std::string Name() const { return adapter + ":" + std::to_string(number); }  // as UCX has it
};

// All ports, by name; none where there is no such hardware. Looks below `root`/sys/class/infiniband and
// `root`/dev/infiniband.
std::vector<Port> ListPorts(const std::string& root);

// What the environment asks for; empty and false: nothing.
struct DeviceWishes {
  std::string net;        // NCCL_NET: "IB", "Socket"
  bool no_ports = false;  // NCCL_IB_DISABLE
  std::string ports;      // NCCL_IB_HCA
};
// UCX's names, ports first. `interfaces`: those that data may go over (boot::SelectNames). kInvalidUsage where ports
// are asked for and there is none to use: lists what there is, and why each was not taken. NCCL_IB_HCA alone asks for
// ports only where there are any.
Result<std::vector<std::string>> SelectDevices(const std::vector<Port>& ports,
                                               const std::vector<std::string>& interfaces, const DeviceWishes& wishes);

}  // namespace axccl::ucx
