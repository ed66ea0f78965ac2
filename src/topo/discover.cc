#include "src/topo/discover.h"

#include "src/base/log.h"
#include "src/base/param.h"
#include "src/topo/text.h"

namespace axccl::topo {
namespace {

// If there is only one node, all hardware belongs to it, whatever the firmware reports. A node that is not listed
// counts as unknown.
template <class Device>
void PutAtNode(const Machine& machine, Device* device) {
  for (const Node& node : machine.nodes) {
    if (node.id == device->node) return;
  }
  device->node = machine.nodes.size() == 1 ? machine.nodes[0].id : kNowhere;
}

Result<Machine> Finish(Machine machine) {
  for (Nic& nic : machine.nics) {
    if (nic.kind != NicKind::kVirtual) PutAtNode(machine, &nic);
  }
  for (Gpu& gpu : machine.gpus) PutAtNode(machine, &gpu);
  AXCCL_RETURN_IF_ERROR(Check(machine));
  return machine;
}

}  // namespace

Result<Machine> Discover() {
  Result<Machine> machine = DiscoverByHwloc();
  if (machine.ok()) machine = Finish(std::move(machine).value());
  if (machine.ok()) return machine;
  AXCCL_INFO(kGraph, "topology: from /sys alone: %s", std::string(machine.status().message()).c_str());
  AXCCL_ASSIGN_OR_RETURN(Machine plain, DiscoverByKernel());
  return Finish(std::move(plain));
}

Result<Machine> FileOrDiscover() {
  const std::string path = param::Get("NCCL_TOPO_FILE");
  return path.empty() ? Discover() : ReadFile(path);
}

}  // namespace axccl::topo
