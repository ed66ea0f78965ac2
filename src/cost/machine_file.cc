// The cached measurement: its text form and its file.
#include <unistd.h>

#include <fstream>
#include <string>

#include "src/base/files.h"
#include "src/base/log.h"
#include "src/cost/figures.h"
#include "src/cost/machine.h"
#include "src/cost/usable_cache.h"

namespace axccl::cost {

namespace {

constexpr std::string_view kTitle = "axccl-machine 3";

struct Field {
  std::string_view name;
  double Machine::*value;
  double least;
  double most;
};

// Bounds wide enough for any machine and narrow enough that a damaged file does not mislead the choice of algorithms.
constexpr Field kFields[] = {
    {"signal_seconds", &Machine::signal_seconds, 1e-9, 1e-3},
    {"op_seconds", &Machine::op_seconds, 1e-10, 1e-3},
    {"switch_seconds", &Machine::switch_seconds, 1e-8, 1e-1},
    {"cached_bytes_per_second", &Machine::cached_bytes_per_second, 1e7, 1e13},
    {"memory_bytes_per_second", &Machine::memory_bytes_per_second, 1e7, 1e13},
    {"call_seconds", &Machine::call_seconds, 1e-9, 1e-1},
    {"call_bytes_per_second", &Machine::call_bytes_per_second, 1e6, 1e13},
};
constexpr std::string_view kCacheField = "cache_bytes", kCacheCoresField = "cache_cores";
constexpr double kLeastCache = 1 << 14, kMostCache = 1e12, kMostCacheCores = 1e5;

// The first "model name" of /proc/cpuinfo, or, if there is none, other fields that identify the CPU.
std::string CpuModel() {
  std::ifstream info("/proc/cpuinfo");
  std::string all;
  for (std::string line; std::getline(info, line);) {
    const bool tells = line.starts_with("model name") || line.starts_with("CPU implementer") ||
                       line.starts_with("CPU part") || line.starts_with("cpu\t");
    if (tells) all += line + ";";
    if (line.empty() && !all.empty()) break;
  }
  return all;
}

}  // namespace

std::string ToText(const Machine& machine) {
  FigureWriter writer(kTitle);
  for (const Field& f : kFields) writer.Add(f.name, machine.*f.value);
  return writer.AddCount(kCacheField, machine.cache_bytes).AddCount(kCacheCoresField, machine.cache_cores).text();
}

Result<Machine> FromText(std::string_view text) {
  Machine machine;
  FigureReader reader("machine file", text);
  AXCCL_RETURN_IF_ERROR(reader.Expect(kTitle));
  for (const Field& f : kFields) {
    AXCCL_ASSIGN_OR_RETURN(machine.*f.value, reader.Number(f.name, f.least, f.most));
  }
  AXCCL_ASSIGN_OR_RETURN(const double cache, reader.Number(kCacheField, kLeastCache, kMostCache));
  AXCCL_ASSIGN_OR_RETURN(const double cores, reader.Number(kCacheCoresField, 1, kMostCacheCores));
  machine.cache_bytes = static_cast<uint64_t>(cache);
  machine.cache_cores = static_cast<uint64_t>(cores);
  AXCCL_RETURN_IF_ERROR(reader.End());
  return machine;
}

std::string CacheFile() {
  // A build that cannot measure all of it has a file of its own.
  const std::string_view build = CanMeasureCache() ? "" : ";no cache";
  return CachedFile("machine", CpuModel() + std::to_string(sysconf(_SC_NPROCESSORS_ONLN)) + ";" + std::string(kTitle) +
                                   std::string(build));
}

Result<Machine> ReadMachine(const std::string& file) {
  AXCCL_ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(file, kMostFigureBytes));
  Result<Machine> machine = FromText(text);
  if (!machine.ok()) return InFile(file, machine.status());
  return machine;
}

Machine MeasureOnce(const std::string& file) {
  if (!file.empty()) {
    const Result<Machine> cached = ReadMachine(file);
    if (cached.ok()) return cached.value();
    if (cached.status().code() == Code::kInvalidArgument)
      AXCCL_INFO(kTuning, "%s; measuring again", std::string(cached.status().message()).c_str());
  }
  const Machine machine = Measure();
  if (!file.empty()) KeepFigures(file, ToText(machine), "this machine");
  return machine;
}

Machine MeasureOnce() {
  static const Machine kMachine = MeasureOnce(CacheFile());
  return kMachine;
}

}  // namespace axccl::cost
