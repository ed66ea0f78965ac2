#include "src/topo/nccl_file.h"

#include <algorithm>

namespace axccl::topo {
namespace {

// Whether the file's NIC is this one: by name, or by its place on PCI, where a network interface and an InfiniBand
// adapter may share one card.
bool IsNic(const NcclNic& nic, const std::string& name, const Addresses& addresses) {
  if (nic.name == name) return true;
  const auto address = addresses.find(name);
  return address != addresses.end() && !nic.address.empty() && address->second == nic.address;
}

bool IsHere(const NcclNic& nic, const Machine& here, const Addresses& addresses) {
  return std::any_of(here.nics.begin(), here.nics.end(),
                     [&](const Nic& own) { return IsNic(nic, own.name, addresses); });
}

bool IsHere(const Gpu& gpu, const Machine& here) {
  return std::any_of(here.gpus.begin(), here.gpus.end(), [&](const Gpu& own) { return own.address == gpu.address; });
}

std::vector<int> ProcessorsOf(const Machine& machine, int node) {
  std::vector<int> processors;
  for (const Package& package : machine.packages) {
    for (const Group& group : package.groups) {
      for (const Core& core : group.cores) {
        if (group.node == node) processors.insert(processors.end(), core.processors.begin(), core.processors.end());
      }
    }
  }
  return processors;
}

void AddCpu(const NcclCpu& cpu, const Machine& here, std::set<int>* used, Machine* machine) {
  if (cpu.node == kNowhere) return;
  const std::vector<int> processors = cpu.processors.empty() ? ProcessorsOf(here, cpu.node) : cpu.processors;
  Group group;
  group.node = cpu.node;
  for (const int processor : processors) {
    if (used->insert(processor).second) group.cores.push_back(Core{0, 0, {processor}});
  }
  if (!group.cores.empty()) machine->packages.push_back(Package{{std::move(group)}});
}

// A NIC has the names that it has here, if it is here, otherwise that of the file, otherwise its address.
std::vector<std::string> NamesOf(const NcclNic& nic, const Addresses& addresses) {
  if (!nic.name.empty()) return {nic.name};
  std::vector<std::string> names;
  for (const auto& [name, address] : addresses) {
    if (address == nic.address) names.push_back(name);
  }
  if (names.empty()) names.push_back(nic.address);
  return names;
}

std::string Missing(size_t missing, size_t all, const char* what) {
  return missing == 0 ? "" : std::to_string(missing) + " of " + std::to_string(all) + " " + what;
}

}  // namespace

bool IsXml(std::string_view text) {
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
  const size_t first = text.find_first_not_of(" \t\r\n");
  return first != std::string_view::npos && text[first] == '<';
}

Machine MachineOf(const NcclFile& file, const Machine& here, const Addresses& addresses) {
  Machine machine;
  std::map<int, Node> nodes;
  std::set<int> used;
  for (const NcclCpu& cpu : file.cpus) {
    if (machine.processor.empty()) machine.processor = cpu.name;
    if (cpu.node != kNowhere) nodes[cpu.node] = {cpu.node, 0};
  }
  // First the processors that the file lists, so that none that is left to the system takes one of them.
  for (const bool listed : {true, false}) {
    for (const NcclCpu& cpu : file.cpus) {
      if (cpu.processors.empty() != listed) AddCpu(cpu, here, &used, &machine);
    }
  }
  if (machine.packages.empty()) {
    machine.packages = here.packages;
    for (const Node& node : here.nodes) nodes[node.id] = node;
  }
  for (const auto& [id, node] : nodes) machine.nodes.push_back(node);
  std::set<std::string> names;
  for (const NcclNic& nic : file.nics) {
    for (const std::string& name : NamesOf(nic, addresses)) {
      if (names.insert(name).second) machine.nics.push_back({name, nic.kind, nic.megabits, nic.node});
    }
  }
  machine.gpus = file.gpus;
  return machine;
}

Machine Corrected(const NcclFile& file, Machine here, const Addresses& addresses) {
  for (Nic& own : here.nics) {
    for (const NcclNic& nic : file.nics) {
      if (!IsNic(nic, own.name, addresses)) continue;
      if (nic.node != kNowhere) own.node = nic.node;
      if (nic.megabits != 0) own.megabits = nic.megabits;
    }
  }
  for (Gpu& own : here.gpus) {
    for (const Gpu& gpu : file.gpus) {
      if (gpu.address != own.address) continue;
      if (gpu.node != kNowhere) own.node = gpu.node;
      if (gpu.megabits != 0) own.megabits = gpu.megabits;
    }
  }
  return here;
}

std::string Remark(const NcclFile& file, const Machine& here, const Addresses& addresses) {
  std::string remark;
  for (const std::string& name : file.ignored) remark += (remark.empty() ? "" : ", ") + name;
  if (!remark.empty()) remark = "elements that are not known there are ignored: " + remark;
  if (!file.repeated.empty())
    remark += std::string(remark.empty() ? "" : "; ") + "several cpus list the processors " +
              RangeText({file.repeated.begin(), file.repeated.end()}) + ", which belong to the first of them";
  const auto nics = static_cast<size_t>(std::count_if(
      file.nics.begin(), file.nics.end(), [&](const NcclNic& nic) { return !IsHere(nic, here, addresses); }));
  const auto gpus = static_cast<size_t>(
      std::count_if(file.gpus.begin(), file.gpus.end(), [&](const Gpu& gpu) { return !IsHere(gpu, here); }));
  if (nics + gpus == 0) return remark;
  const std::string missing_gpus = Missing(gpus, file.gpus.size(), "GPUs"),
                    missing_nics = Missing(nics, file.nics.size(), "NICs");
  return remark + (remark.empty() ? "" : "; ") + missing_gpus +
         (missing_gpus.empty() || missing_nics.empty() ? "" : " and ") + missing_nics +
         " of the file are not on this machine: communicators leave them out, as NCCL does";
}

}  // namespace axccl::topo
