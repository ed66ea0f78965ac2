// What the yardsticks (floor_perf, mpi_perf) have in common: a command line `TOOL COLLECTIVE [perf options]`, the
// sizes, and a table with JSON that perf/compare reads.
//
// The element type is float and the reduction sum. Of the perf options they use -b -e -i -f -n -w -J --ranks, mpi_perf
// also -I, -N and, of all_gather, --shape, --dim and -d; they ignore the others. One object in the process that
// reports. Not thread-safe.
#pragma once

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "perf/common/collective_rules.h"
#include "perf/common/json_file.h"
#include "perf/common/options.h"

namespace axccl::perf {

struct YardstickTask {
  const Rule* rule = nullptr;
  Options options;
};

// Parses the command line; if there is no task, prints the help or the error and ends the process.
YardstickTask ParseYardstick(int argc, char** argv, const std::string& what);

// One size of a rule: what the columns and the tools need.
struct YardstickSize {
  size_t bytes;     // of the larger buffer
  size_t argument;  // elements: the whole, or one rank's part
};
std::vector<YardstickSize> SizesOf(const YardstickTask& task, int ranks);

class YardstickReport {
 public:
  YardstickReport(const YardstickTask& task, int ranks, int argc, char** argv);
  // Seconds per operation; `note` says how it was done ("" leaves it out).
  void Row(const YardstickSize& size, double mean, double median, const std::string& note);

 private:
  YardstickTask task_;
  int ranks_;
  std::unique_ptr<JsonFile> file_;
  JsonWriter* json_ = nullptr;  // of the file
};

}  // namespace axccl::perf
