#include "src/topo/machine.h"

#include <algorithm>
#include <charconv>
#include <set>

namespace axccl::topo {
namespace {

constexpr const char* kKindNames[] = {"ethernet", "infiniband", "virtual", "other"};

Status Bad(const std::string& what) {
  return MakeStatus(Code::kInvalidArgument, "topology of a machine: %s", what.c_str());
}

bool Printable(std::string_view text, char least) {
  return std::all_of(text.begin(), text.end(), [least](char c) { return c >= least && c <= '~'; });
}
bool IsName(std::string_view text) { return !text.empty() && Printable(text, '!'); }

Status CheckCores(const Machine& machine, const std::set<int>& nodes) {
  std::set<int> seen;
  if (machine.packages.empty()) return Bad("there is no package");
  for (const Package& package : machine.packages) {
    if (package.groups.empty()) return Bad("a package has no cores");
    for (const Group& group : package.groups) {
      if (!nodes.contains(group.node))
        return Bad("cores are of node " + std::to_string(group.node) + ", which is not listed");
      if (group.cores.empty()) return Bad("a group has no cores");
      for (const Core& core : group.cores) {
        if (core.processors.empty()) return Bad("a core has no processors");
        for (const int processor : core.processors) {
          if (processor < 0 || processor > kMaxNumber || !seen.insert(processor).second)
            return Bad("processor " + std::to_string(processor) + " is there twice, or out of range");
        }
      }
    }
  }
  return Status();
}

Status CheckDevice(const char* kind, const std::string& name, int node, const std::set<int>& nodes,
                   std::set<std::string>* names) {
  if (!IsName(name)) return Bad(std::string(kind) + " '" + name + "' has no printable name");
  if (!names->insert(name).second) return Bad(std::string(kind) + " " + name + " is there twice");
  if (node != kNowhere && !nodes.contains(node))
    return Bad(std::string(kind) + " " + name + " is at node " + std::to_string(node) + ", which is not listed");
  return Status();
}

}  // namespace

const char* Name(NicKind kind) { return kKindNames[static_cast<size_t>(kind)]; }

bool FindNicKind(std::string_view name, NicKind* kind) {
  const auto* const found = std::find(std::begin(kKindNames), std::end(kKindNames), name);
  if (found == std::end(kKindNames)) return false;
  *kind = static_cast<NicKind>(found - kKindNames);
  return true;
}

int Machine::PackageOf(int node) const {
  for (size_t i = 0; i < packages.size(); ++i) {
    for (const Group& group : packages[i].groups) {
      if (group.node == node) return static_cast<int>(i);
    }
  }
  return kNowhere;
}

std::vector<int> Machine::Processors() const {
  std::vector<int> all;
  for (const Package& package : packages) {
    for (const Group& group : package.groups) {
      for (const Core& core : group.cores) all.insert(all.end(), core.processors.begin(), core.processors.end());
    }
  }
  std::sort(all.begin(), all.end());
  return all;
}

Status Check(const Machine& machine) {
  if (!Printable(machine.processor, ' ')) return Bad("the name of the processor is not printable");
  std::set<int> nodes;
  for (const Node& node : machine.nodes) {
    if (node.id < 0 || node.id > kMaxNumber || (!nodes.empty() && node.id <= *nodes.rbegin()))
      return Bad("node " + std::to_string(node.id) + " is out of range or out of order");
    nodes.insert(node.id);
  }
  AXCCL_RETURN_IF_ERROR(CheckCores(machine, nodes));
  std::set<std::string> nics, gpus;
  for (const Nic& nic : machine.nics) AXCCL_RETURN_IF_ERROR(CheckDevice("NIC", nic.name, nic.node, nodes, &nics));
  for (const Gpu& gpu : machine.gpus) AXCCL_RETURN_IF_ERROR(CheckDevice("GPU", gpu.address, gpu.node, nodes, &gpus));
  return Status();
}

std::string RangeText(const std::vector<int>& numbers) {
  std::string text;
  for (size_t i = 0; i < numbers.size();) {
    size_t last = i;
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) ++last;
    text += (text.empty() ? "" : ",") + std::to_string(numbers[i]);
    if (last > i) text += "-" + std::to_string(numbers[last]);
    i = last + 1;
  }
  return text;
}

std::vector<int> ParseRanges(std::string_view text) {
  std::vector<int> numbers;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (at != end) {
    int first = 0;
    auto parsed = std::from_chars(at, end, first);
    int last = first;
    if (parsed.ec == std::errc() && parsed.ptr != end && *parsed.ptr == '-')
      parsed = std::from_chars(parsed.ptr + 1, end, last);
    if (parsed.ec != std::errc() || first < 0 || last < first || last > kMaxNumber) return {};
    for (int number = first; number <= last; ++number) numbers.push_back(number);
    at = parsed.ptr;
    if (at != end && *at++ != ',') return {};
  }
  return numbers;
}

}  // namespace axccl::topo
