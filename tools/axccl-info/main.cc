// axccl-info: the version of this library, its configuration, the links between ranks on this machine, and the machine
// itself.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "axccl/axccl.h"
#include "nccl.h"
#include "src/base/command_line.h"
#include "src/base/format.h"
#include "src/base/json.h"
#include "src/base/param.h"
#include "src/base/standard_output.h"
#include "tools/axccl-info/gpus.h"
#include "tools/axccl-info/options.h"
#include "tools/axccl-info/ranks.h"
#include "tools/axccl-info/topology.h"

namespace {

using axccl_info::Options;
using axccl_info::RankReport;

double Mib(uint64_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

std::string ProcessorName() {
  std::ifstream in("/proc/cpuinfo");
  std::string line;
  while (std::getline(in, line)) {
    const size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown";
}

struct Versions {
  std::string own, nccl;
};

Versions VersionsOfLibrary() {
  int nccl = 0, own = 0;
  if (ncclGetVersion(&nccl) != ncclSuccess || axcclGetVersion(&own) != ncclSuccess) {
    fprintf(stderr, "axccl-info: cannot read the version of the library: %s\n", ncclGetLastError(nullptr));
    exit(1);
  }
  return {axccl::Format("%d.%d.%d", own / 10000, own / 100 % 100, own % 100),
          axccl::Format("%d.%d.%d", nccl / 10000, nccl / 100 % 100, nccl % 100)};
}

void PrintLibrary() {
  const Versions versions = VersionsOfLibrary();
  printf("AxCCL %s, API of NCCL %s\n", versions.own.c_str(), versions.nccl.c_str());
  printf("processor  %s, %ld cores online\n", ProcessorName().c_str(), sysconf(_SC_NPROCESSORS_ONLN));
  printf("devices    host (memory of this machine; every rank has a device of its own)\n");
  axccl_info::PrintGpus(axccl_info::FindGpus());
}

// What axcclParamGetByIndex shows.
struct Parameter {
  const char *name, *value, *source, *meaning;
};

std::vector<Parameter> Parameters() {
  std::vector<Parameter> all(axccl::param::Table().size());
  for (size_t i = 0; i < all.size(); ++i) {
    Parameter& p = all[i];
    if (axcclParamGetByIndex(static_cast<int>(i), &p.name, &p.value, &p.source, &p.meaning) == ncclSuccess) continue;
    all.resize(i);  // another library, with fewer
  }
  return all;
}

// Prints the text in lines of `width` bytes at most, the first behind what is in its line already, broken at spaces.
void PrintWrapped(std::string_view text, size_t indent, size_t width) {
  while (text.size() > width - indent) {
    size_t end = text.rfind(' ', width - indent);
    if (end == std::string_view::npos) end = text.find(' ');
    if (end == std::string_view::npos) break;
    printf("%.*s\n%*s", static_cast<int>(end), text.data(), static_cast<int>(indent), "");
    text.remove_prefix(end + 1);
  }
  printf("%.*s\n", static_cast<int>(text.size()), text.data());
}

constexpr size_t kWidth = 100, kIndent = 4;

void PrintParameters() {
  printf("\nparameter = value (source), and what it means\n");
  for (const Parameter& p : Parameters()) {
    printf("%s = %s (%s)\n%*s", p.name, *p.value == '\0' ? "-" : p.value, p.source, static_cast<int>(kIndent), "");
    PrintWrapped(p.meaning, kIndent, kWidth);
  }
}

void WriteRank(const RankReport& r, size_t rank, size_t ranks, axccl::JsonWriter* json) {
  json->BeginObject();
  json->Key("rank").Int(static_cast<int64_t>(rank));
  json->Key("pid").Int(r.pid);
  json->Key("device").Int(r.device);
  json->Key("init_us").Double(r.init_seconds * 1e6);
  json->Key("memory_before_bytes").Int(static_cast<int64_t>(r.memory_before));
  json->Key("memory_after_bytes").Int(static_cast<int64_t>(r.memory_after));
  json->Key("algorithm").String(r.algorithm);
  json->Key("links").Strings({r.links, r.links + ranks});
  json->EndObject();
}

void PrintJson(const std::vector<RankReport>& reports) {
  const Versions versions = VersionsOfLibrary();
  axccl::JsonWriter json(stdout);
  json.BeginObject();
  json.Key("axccl").String(versions.own);
  json.Key("nccl").String(versions.nccl);
  json.Key("processor").String(ProcessorName());
  json.Key("cores").Int(sysconf(_SC_NPROCESSORS_ONLN));
  axccl_info::WriteGpus(axccl_info::FindGpus(), &json);
  json.Key("ranks").BeginList();
  for (size_t rank = 0; rank < reports.size(); ++rank) WriteRank(reports[rank], rank, reports.size(), &json);
  json.EndList();
  json.Key("parameters").BeginList();
  for (const Parameter& p : Parameters()) {
    json.BeginObject();
    json.Key("name").String(p.name);
    json.Key("value").String(p.value);
    json.Key("source").String(p.source);
    json.Key("meaning").String(p.meaning);
    json.EndObject();
  }
  json.CloseTo(0);
}

// Columns that do not fit into a line follow as another table.
void PrintLinks(const std::vector<RankReport>& reports) {
  constexpr size_t kColumns = (kWidth - 5) / 9;
  for (size_t first = 0; first < reports.size(); first += kColumns) {
    const size_t after = std::min(first + kColumns, reports.size());
    printf("\nlinks (from row to column)\nrank ");
    for (size_t peer = first; peer < after; ++peer) printf(" %8zu", peer);
    printf("\n");
    for (size_t rank = 0; rank < reports.size(); ++rank) {
      printf("%4zu ", rank);
      for (size_t peer = first; peer < after; ++peer) printf(" %8s", reports[rank].links[peer]);
      printf("\n");
    }
  }
}

void PrintRanks(const std::vector<RankReport>& reports) {
  printf("\nrank      pid  device   init ms   MiB before use   MiB after all_reduce of 64 MiB   algorithm\n");
  double slowest = 0;
  for (size_t rank = 0; rank < reports.size(); ++rank) {
    const RankReport& r = reports[rank];
    printf("%4zu %8d %7d %9.1f %16.2f %32.2f   %s\n", rank, r.pid, r.device, r.init_seconds * 1e3, Mib(r.memory_before),
           Mib(r.memory_after), r.algorithm);
    slowest = r.init_seconds > slowest ? r.init_seconds : slowest;
  }
  printf("init of %zu ranks: %.1f ms\n", reports.size(), slowest * 1e3);
}

// Returns whether all ranks are done; otherwise prints why not.
bool CheckRanks(const std::vector<RankReport>& reports) {
  if (reports.empty()) fprintf(stderr, "axccl-info: no memory or no file descriptors to start processes\n");
  bool good = !reports.empty();
  for (size_t rank = 0; rank < reports.size(); ++rank) {
    if (reports[rank].done) continue;
    fprintf(stderr, "axccl-info: rank %zu: %s\n", rank, reports[rank].error);
    good = false;
  }
  return good;
}

}  // namespace

int main(int argc, char** argv) {
  axccl::ExpectOutputAtExit("axccl-info", 1);
  const axccl::Result<Options> parsed = axccl_info::ParseOptions({argv + 1, argv + argc});
  if (!parsed.ok()) {
    fprintf(stderr, "axccl-info: %s\n", std::string(parsed.status().message()).c_str());
    return 2;
  }
  const Options& options = parsed.value();
  if (options.help) {
    fputs(axccl_info::kUsage, stdout);
    return 0;
  }
  if (options.version) {
    fputs(axccl::command_line::VersionText("axccl-info").c_str(), stdout);
    return 0;
  }
  if (options.json) axccl::LogToStderr();
  if (options.topology) return axccl_info::ShowTopology(options);
  const int ranks = options.ranks;
  const std::vector<RankReport> reports = ranks > 0 ? axccl_info::RunRanks(ranks) : std::vector<RankReport>();
  if (ranks > 0 && !CheckRanks(reports)) return 1;
  if (options.json) {
    PrintJson(reports);
    return 0;
  }
  PrintLibrary();
  if (ranks > 0) {
    PrintLinks(reports);
    PrintRanks(reports);
  }
  PrintParameters();
  return 0;
}
