// axccl-info: the version of this library, its configuration, the links between ranks on this machine, and the machine
// itself.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "axccl/axccl.h"
#include "nccl.h"
#include "src/base/command_line.h"
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

void PrintLibrary() {
  int nccl = 0, own = 0;
  if (ncclGetVersion(&nccl) != ncclSuccess || axcclGetVersion(&own) != ncclSuccess) {
    fprintf(stderr, "axccl-info: cannot read the version of the library: %s\n", ncclGetLastError(nullptr));
    exit(1);
  }
  printf("AxCCL %d.%d.%d, API of NCCL %d.%d.%d\n", own / 10000, own / 100 % 100, own % 100, nccl / 10000,
         nccl / 100 % 100, nccl % 100);
  printf("processor  %s, %ld cores online\n", ProcessorName().c_str(), sysconf(_SC_NPROCESSORS_ONLN));
  printf("devices    host (memory of this machine; every rank has a device of its own)\n");
}

void PrintParameters() {
  printf("\n%-28s %-24s %-12s %s\n", "parameter", "value", "source", "meaning");
  const char *name, *value, *source, *meaning;
  for (int i = 0; axcclParamGetByIndex(i, &name, &value, &source, &meaning) == ncclSuccess; ++i)
    printf("%-28s %-24s %-12s %s\n", name, *value == '\0' ? "-" : value, source, meaning);
}

void PrintLinks(const std::vector<RankReport>& reports) {
  printf("\nlinks (from row to column)\nrank ");
  for (size_t peer = 0; peer < reports.size(); ++peer) printf(" %8zu", peer);
  printf("\n");
  for (size_t rank = 0; rank < reports.size(); ++rank) {
    printf("%4zu ", rank);
    for (size_t peer = 0; peer < reports.size(); ++peer) printf(" %8s", reports[rank].links[peer]);
    printf("\n");
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
  if (options.topology) return axccl_info::ShowTopology(options);
  const int ranks = options.ranks;
  const std::vector<RankReport> reports = ranks > 0 ? axccl_info::RunRanks(ranks) : std::vector<RankReport>();
  PrintLibrary();
  if (ranks > 0) {
    if (!CheckRanks(reports)) return 1;
    PrintLinks(reports);
    PrintRanks(reports);
  }
  PrintParameters();
  return 0;
}
