#include "tools/axccl-program/simulate.h"

#include <algorithm>
#include <vector>

#include "src/base/files.h"
#include "src/base/format.h"
#include "src/program/kinds.h"
#include "src/program/simulate/distir.h"
#include "src/program/simulate/machines.h"
#include "src/program/simulate/on_machines.h"

namespace axccl::tools {

using program::Operation;
using program::PartMemory;
using program::RankTimes;
using program::Simulation;

namespace {

constexpr size_t kMostFabricBytes = 1 << 16;

std::string NameOfOperation(const Operation& operation) {
  return "%" + std::to_string(operation.id) + " " + std::string(program::InfoOf(operation.kind).name);
}

// What follows the numbers of the ranks.
std::string TimesText(const RankTimes& times, const PartMemory& memory, double total) {
  const auto of_total = [&](double seconds) { return total > 0 ? 100 * seconds / total : 0; };
  const double idle = std::max(0.0, total - times.compute - times.exposed);
  std::string text = Format(
      "compute %.6g us (%.1f %%), exposed communication %.6g us (%.1f %%), idle %.6g us (%.1f %%)", times.compute * 1e6,
      of_total(times.compute), times.exposed * 1e6, of_total(times.exposed), idle * 1e6, of_total(idle));
  return text + Format(", peak %llu bytes ", static_cast<unsigned long long>(memory.peak)) +
         (memory.at == nullptr ? "of arguments" : "at " + NameOfOperation(*memory.at));
}

}  // namespace

Result<std::unique_ptr<program::Model>> ModelOf(const Options& o) {
  if (o.distir) return std::unique_ptr<program::Model>(new program::DistirModel({}));
  program::Machines machines;
  if (!o.fabric.empty()) {
    AXCCL_ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(o.fabric, kMostFabricBytes));
    Result<program::Machines> parsed = program::ParseMachines(text);
    if (!parsed.ok()) return InFile(o.fabric, parsed.status());
    machines = parsed.value();
  }
  return std::unique_ptr<program::Model>(new program::MachinesModel(machines));
}

std::string ReportOf(const program::Program& program, const Simulation& simulation) {
  std::string text = Format("time %.6g us\n", simulation.seconds * 1e6);
  for (size_t i = 0; i < program.parts.size(); ++i) {
    const program::Part& part = program.parts[i];
    text += "part " + part.function.name + "\n";
    for (size_t first = 0, next = 0; first < part.ranks.size(); first = next) {
      const auto line = [&](size_t r) {
        return TimesText(simulation.ranks[static_cast<size_t>(part.ranks[r])], simulation.parts[i], simulation.seconds);
      };
      const std::string own = line(first);
      for (next = first + 1; next < part.ranks.size() && line(next) == own;) ++next;
      text += next == first + 1 ? Format("  rank %lld: ", static_cast<long long>(part.ranks[first]))
                                : Format("  ranks %lld to %lld: ", static_cast<long long>(part.ranks[first]),
                                         static_cast<long long>(part.ranks[next - 1]));
      text += own + "\n";
    }
  }
  return text;
}

}  // namespace axccl::tools
