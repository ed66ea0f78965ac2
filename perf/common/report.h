// What a perf run prints and writes as JSON: nccl-tests' lines, column for column, and its JSON schema version 3.
//
// One object in the process that reports; the others have none. Used by one thread, except that a failing thread may
// call CloseJson. Every line is flushed as it ends, so that a long run shows its progress.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "perf/common/json_file.h"
#include "perf/common/options.h"

namespace axccl::perf {

// One line of "# Using devices".
struct RankInfo {
  int rank;
  int group;
  int pid;
  int device;
  char host[64];
  char device_name[96];
};

// One half of a row.
struct Measurement {
  double seconds = 0;  // per operation, as printed
  double alg_bw = 0;   // GB/s
  double bus_bw = 0;
  bool checked = false;
  uint64_t wrong = 0;
};

// -I.
struct IterationReport {
  std::vector<double> seconds;                    // slowest rank, per iteration
  std::vector<std::vector<double>> process_rows;  // slowest thread of each process; empty for one process
};

// -M, slowest or largest of all ranks.
struct MemoryReport {
  double init_seconds = 0;
  uint64_t after_init = 0;  // bytes held by a rank's communicator before its first operation
  uint64_t buffers = 0;     // bytes of a rank's send and receive buffers
  uint64_t after_run = 0;   // bytes held by the communicator after the last operation
};

// A number in `width` columns with as many decimals as fit.
std::string FixedWidth(double value, int width);

class Report {
 public:
  // Opens the JSON file, if any. `argv` and the environment are written to it.
  Report(const Options& options, int argc, char** argv, int library_version);
  ~Report();
  Report(const Report&) = delete;
  Report& operator=(const Report&) = delete;

  void Start();
  void Devices(const std::vector<RankInfo>& ranks);
  void TableHeader();
  void BeginRow(size_t bytes, size_t count, const char* type, const char* op, int root);
  // Out of place first, then in place.
  void Half(bool out_of_place, const Measurement& m, const IterationReport* iterations);
  void EndRow();
  // `min_bandwidth` < 0: no minimum was given.
  void Footer(int failed_checks, double average_bus_bw, double min_bandwidth);
  void Memory(const MemoryReport& memory);
  void End(const std::string& last_error);
  // Ends the JSON file at its current position, with `error` (if not empty) as its list of errors. Does nothing while
  // another thread is writing to it. An error if the file does not hold all of it.
  Status CloseJson(const std::string& error);

 private:
  void Config();
  void ViewConfig();
  void Iterations(bool out_of_place, const IterationReport& report);

  const Options options_;
  int library_version_;
  std::string row_;
  std::mutex mutex_;  // of the JSON file, once other threads can fail
  std::unique_ptr<JsonFile> file_;
  JsonWriter* json_ = nullptr;  // of the file, while it is open
};

}  // namespace axccl::perf
