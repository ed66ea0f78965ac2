#include "src/topo/discover.h"

#include "src/base/files.h"
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

Result<Found> FromNccl(std::string_view text, FileUse use) {
  AXCCL_ASSIGN_OR_RETURN(const NcclFile file, ParseNccl(text));
  AXCCL_ASSIGN_OR_RETURN(const Machine here, Discover());
  const Addresses addresses = KernelAddresses();
  AXCCL_ASSIGN_OR_RETURN(Machine machine, Finish(use == FileUse::kPlace ? Corrected(file, here, addresses)
                                                                        : MachineOf(file, here, addresses)));
  return Found{std::move(machine), Remark(file, here, addresses)};
}

Result<Found> FromText(std::string_view text, FileUse use) {
  if (IsXml(text)) return FromNccl(text, use);
  AXCCL_ASSIGN_OR_RETURN(Machine machine, Parse(text));
  return Found{std::move(machine), ""};
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

Result<Found> ReadFile(const std::string& path, FileUse use) {
  AXCCL_ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(path, kMaxFileBytes));
  Result<Found> found = FromText(text, use);
  if (!found.ok()) return InFile(path, found.status());
  if (!found->remark.empty()) found->remark = path + ": " + found->remark;
  return found;
}

Result<Found> FileOrDiscover(FileUse use) {
  const std::string path = param::Get("NCCL_TOPO_FILE");
  if (!path.empty()) return ReadFile(path, use);
  AXCCL_ASSIGN_OR_RETURN(Machine machine, Discover());
  return Found{std::move(machine), ""};
}

}  // namespace axccl::topo
