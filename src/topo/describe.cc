// The words of the pictures.
#include <cstdio>

#include "src/topo/draw.h"

namespace axccl::topo {
namespace {

std::string Scaled(uint64_t amount, uint64_t step, const std::vector<const char*>& units) {
  size_t unit = 0;
  double value = static_cast<double>(amount);
  for (; value >= static_cast<double>(step) && unit + 1 < units.size(); ++unit) value /= static_cast<double>(step);
  char digits[32];
  const bool whole = value >= 10 || value == static_cast<double>(static_cast<int>(value));
  std::snprintf(digits, sizeof(digits), whole ? "%.0f" : "%.1f", value);
  return std::string(digits) + " " + units[unit];
}

std::string Several(size_t count, const char* what) {
  return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
}

}  // namespace

std::string BytesText(uint64_t bytes) { return Scaled(bytes, 1024, {"B", "KiB", "MiB", "GiB", "TiB", "PiB"}); }
std::string SpeedText(uint64_t megabits) { return Scaled(megabits, 1000, {"Mbit/s", "Gbit/s", "Tbit/s"}); }

std::string Describe(const Nic& nic) {
  return nic.name + " (" + Name(nic.kind) + (nic.megabits == 0 ? "" : ", " + SpeedText(nic.megabits)) + ")";
}

std::string Describe(const Gpu& gpu) {
  return "GPU " + gpu.address + (gpu.megabits == 0 ? "" : " (PCI, " + SpeedText(gpu.megabits) + ")");
}

std::string Describe(const Core& core) {
  std::string text = "core";
  if (core.processors.size() > 1) text += " (" + Several(core.processors.size(), "thread") + ")";
  if (core.l2 != 0) text += ", L2 " + BytesText(core.l2);
  if (core.l1 != 0) text += ", L1 " + BytesText(core.l1);
  return text;
}

std::string Describe(const Group& group) { return group.l3 == 0 ? "cores" : "L3 " + BytesText(group.l3); }

std::string Describe(const Node& node) {
  return "node " + std::to_string(node.id) + (node.bytes == 0 ? "" : ", " + BytesText(node.bytes));
}

std::string Describe(const Machine& machine) {
  size_t cores = 0;
  for (const Package& package : machine.packages)
    for (const Group& group : package.groups) cores += group.cores.size();
  return (machine.processor.empty() ? "machine" : machine.processor) + ": " +
         Several(machine.packages.size(), "package") + ", " + Several(machine.nodes.size(), "node") + ", " +
         Several(cores, "core") + ", " + Several(machine.Processors().size(), "processor") + ", " +
         Several(machine.nics.size(), "NIC") + ", " + Several(machine.gpus.size(), "GPU");
}

}  // namespace axccl::topo
