#include "perf/common/report.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <ctime>

#include "nccl.h"
#include "perf/common/fail.h"
#include "src/base/format.h"

extern char** environ;

namespace axccl::perf {
namespace {

// The release of nccl-tests whose command line and output these tools follow.
constexpr char kVersion[] = "2.19.6-axccl";
constexpr int kJsonVersion = 3;
constexpr char kTimeFormat[] = "%Y-%m-%d %H:%M:%S";

std::string TimeText() {
  time_t now = time(nullptr);
  tm parts;
  char text[64];
  std::strftime(text, sizeof(text), kTimeFormat, localtime_r(&now, &parts));
  return text;
}

// Only variables that can explain a result: the whole environment could put secrets into files that are shared.
bool ExplainsResults(const char* variable) {
  for (const char* prefix : {"NCCL_", "AXCCL_", "CUDA_", "OMPI_COMM_WORLD_", "SLURM_", "PMI_RANK", "PMI_SIZE", "RANK=",
                             "WORLD_SIZE=", "LOCAL_RANK=", "LOCAL_WORLD_SIZE=", "MASTER_", "OMP_NUM_THREADS"}) {
    if (std::strncmp(variable, prefix, std::strlen(prefix)) == 0) return true;
  }
  return false;
}

// Creates `path`, or the first free of path.0, path.1, ...: results are never overwritten.
FILE* CreateNew(const std::string& path, std::string* name) {
  *name = path;
  for (int i = 0;; ++i) {
    FILE* file = std::fopen(name->c_str(), "wx");
    if (file != nullptr || errno != EEXIST) return file;
    *name = path + "." + std::to_string(i);
  }
}

std::string MemoryText(uint64_t bytes) {
  double amount = static_cast<double>(bytes);
  const char* units[] = {"B", "KB", "MB", "GB"};
  int unit = 0;
  while (amount >= 1024 && unit < 3) amount /= 1024, ++unit;
  int decimals = unit == 0 || amount >= 100 ? 0 : amount >= 10 ? 1 : 2;
  return Format("%.*f %s", decimals, amount, units[unit]);
}

struct Statistics {
  double min, max, mean, p50, p95, p99, deviation;
};

// Percentiles by nearest rank.
Statistics Summarise(std::vector<double> x) {
  std::sort(x.begin(), x.end());
  size_t n = x.size();
  auto percentile = [&](size_t p) { return x[std::min(n, (n * p + 99) / 100) - 1]; };
  Statistics s{x.front(), x.back(), 0, x[n / 2], percentile(95), percentile(99), 0};
  for (double value : x) s.mean += value / static_cast<double>(n);
  for (double value : x) s.deviation += (value - s.mean) * (value - s.mean) / static_cast<double>(n);
  s.deviation = std::sqrt(s.deviation);
  return s;
}

// As text: nccl-tests' habit.
const char* TrueOrFalse(bool value) { return value ? "true" : "false"; }

void MicrosecondList(JsonWriter* json, const std::vector<double>& seconds) {
  json->BeginList();
  for (double s : seconds) json->Double(s * 1e6);
  json->EndList();
}

}  // namespace

std::string FixedWidth(double value, int width) {
  for (int decimals = 2; decimals >= 0; --decimals) {
    std::string text = Format("%*.*f", width, decimals, value);
    if (text.size() <= static_cast<size_t>(width)) return text;
  }
  return Format(width >= 7 ? "%*.1e" : "%*.0e", width, value);
}

Report::Report(const Options& options, int argc, char** argv, int library_version)
    : options_(options), library_version_(library_version) {
  std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);
  if (options.json_path.empty()) return;
  std::string name;
  FILE* const opened = CreateNew(options.json_path, &name);
  if (opened == nullptr) Fail(kExitUsage, "option -J: cannot create %s: %s", name.c_str(), std::strerror(errno));
  std::printf("# Writing JSON output to %s\n", name.c_str());
  file_ = std::make_unique<JsonFile>(opened, name);
  json_ = file_->json();
  json_->BeginObject();
  json_->Key("version").Int(kJsonVersion);
  json_->Key("start_time").String(TimeText());
  json_->Key("args").BeginList();
  for (int i = 0; i < argc; ++i) json_->String(argv[i]);
  json_->EndList();
  json_->Key("env").BeginList();
  for (char** e = environ; *e != nullptr; ++e) {
    if (ExplainsResults(*e)) json_->String(*e);
  }
  json_->EndList();
  json_->Key("nccl_version").Int(library_version);
}

Report::~Report() = default;

void Report::Start() {
  const Options& o = options_;
  bool by_factor = o.step_factor > 1;
  std::printf("# nccl-tests version %s nccl-headers=%d nccl-library=%d\n", kVersion, NCCL_VERSION_CODE,
              library_version_);
  std::printf("# Collective test starting: %s\n", ProgramName().c_str());
  std::printf(
      "# nThread %d nGpus %d minBytes %zu maxBytes %zu step: %zu(%s) warmup iters: %d iters: %d agg iters: %d "
      "validation: %d graph: 0 unalign: %zu\n",
      o.threads, o.ranks_per_thread, o.min_bytes, o.max_bytes, by_factor ? o.step_factor : o.step_bytes,
      by_factor ? "factor" : "bytes", o.warmup, o.iterations, o.aggregate, o.checks, o.unalign);
  const char* blocking[] = {"", "wait and barrier after each inner iteration (-m)",
                            "wait after each inner iteration (-m), no barrier",
                            "wait and barrier after each outer iteration (-n); time excludes barrier"};
  if (o.blocking != Blocking::kNone) {
    std::printf("# Blocking Enabled: %s \n", blocking[static_cast<int>(o.blocking)]);
  }
  if (o.per_iteration) {
    std::printf(
        "# Per-Iteration Report: host clock, wait after each iteration; i_* uses max over process rows%s \n",
        o.per_iteration_skip ? Format("; summary skips first %d iterations", o.per_iteration_skip).c_str() : "");
  }
  if (o.parallel_init) std::printf("# Parallel Init Enabled: threads call into NcclInitRank concurrently \n");
  if (o.views.given) std::printf("# Views: %s \n", ViewText(o.views).c_str());
  std::printf("#\n");
  if (json_) Config();
}

void Report::Config() {
  const Options& o = options_;
  json_->Key("config").BeginObject();
  json_->Key("nthreads").Int(o.threads);
  json_->Key("ngpus").Int(o.ranks_per_thread);
  json_->Key("minimum_bytes").Int(static_cast<int64_t>(o.min_bytes));
  json_->Key("maximum_bytes").Int(static_cast<int64_t>(o.max_bytes));
  if (o.step_factor > 1) {
    json_->Key("step_factor").Int(static_cast<int64_t>(o.step_factor));
  } else {
    json_->Key("step_bytes").Int(static_cast<int64_t>(o.step_bytes));
  }
  json_->Key("warmup_iters").Int(o.warmup);
  json_->Key("iterations").Int(o.iterations);
  json_->Key("aggregated_iterations").Int(o.aggregate);
  json_->Key("validation").Int(o.checks);
  json_->Key("graph").Int(0);
  json_->Key("blocking_collectives").String(TrueOrFalse(o.blocking != Blocking::kNone));
  json_->Key("per_iter_timing").String(TrueOrFalse(o.per_iteration));
  json_->Key("per_iter_skip").Int(o.per_iteration_skip);
  json_->Key("parallel_init").String(TrueOrFalse(o.parallel_init));
  if (o.views.given) ViewConfig();
}

void Report::ViewConfig() {
  const ViewOptions& v = options_.views;
  auto numbers = [this](const std::vector<int64_t>& list) {
    json_->BeginList();
    for (int64_t number : list) json_->Int(number);
    json_->EndList();
  };
  json_->Key("views").BeginObject();
  json_->Key("shapes").BeginList();
  for (const Shape& shape : v.shapes) numbers(shape);
  json_->EndList();
  if (v.dim) json_->Key("dim").Int(*v.dim);
  if (v.split_dim) json_->Key("split_dim").Int(*v.split_dim);
  if (v.concat_dim) json_->Key("concat_dim").Int(*v.concat_dim);
  if (!v.strides.empty()) {
    json_->Key("strides");
    numbers(v.strides);
  }
  if (!v.out_strides.empty()) {
    json_->Key("out_strides");
    numbers(v.out_strides);
  }
  if (!v.groups.empty()) {
    json_->Key("groups").BeginList();
    for (const std::vector<int64_t>& group : v.groups) numbers(group);
    json_->EndList();
  }
  json_->EndObject();
}

void Report::Devices(const std::vector<RankInfo>& ranks) {
  std::printf("# Using devices\n");
  if (json_) json_->Key("devices").BeginList();
  for (const RankInfo& r : ranks) {
    std::printf("#  Rank %2d Group %2d Pid %6d on %10s device %2d [0000:00:00] %s\n", r.rank, r.group, r.pid, r.host,
                r.device, r.device_name);
    if (!json_) continue;
    json_->BeginObject();
    json_->Key("rank").Int(r.rank);
    json_->Key("group").Int(r.group);
    json_->Key("pid").Int(r.pid);
    json_->Key("hostname").String(r.host);
    json_->Key("device").Int(r.device);
    json_->Key("device_hex").String("0000:00:00");
    json_->Key("device_info").String(r.device_name);
    json_->EndObject();
  }
  if (!json_) return;
  json_->EndList();
  json_->EndObject();  // config
}

void Report::TableHeader() {
  const bool stamps = options_.report_timestamps;
  const char* time = options_.report_cpu_time ? "cputime" : "time";
  std::string columns[2];
  std::string units;
  for (std::string* c : {&columns[0], &columns[1]}) {
    *c = Format("  %7s  %6s  %6s  %6s", time, "algbw", "busbw", "#wrong");
    if (options_.per_iteration) *c += Format("  %7s  %7s  %7s  %7s", "i_min", "i_max", "i_p99", "i_cv%");
    units += Format("  %7s  %6s  %6s  %6s", "(us)", "(GB/s)", "(GB/s)", "");
    if (options_.per_iteration) units += Format("  %7s  %7s  %7s  %7s", "(us)", "(us)", "(us)", "(%)");
  }
  const char* titles =
      options_.per_iteration
          ? "              out-of-place (+ per-iteration)                                in-place (+ per-iteration)"
          : "           out-of-place                       in-place          ";
  std::printf("#\n# %10s  %12s  %8s  %6s  %6s%s\n", "", "", "", "", "", titles);
  std::printf("# %10s  %12s  %8s  %6s  %6s%s%s %*s\n", "size", "count", "type", "redop", "root", columns[0].c_str(),
              columns[1].c_str(), stamps ? 19 : 0, stamps ? "timestamp" : "");
  std::printf("# %10s  %12s  %8s  %6s  %6s%s %*s\n", "(B)", "(elements)", "", "", "", units.c_str(), stamps ? 19 : 0,
              stamps ? kTimeFormat : "");
  if (json_) json_->Key("results").BeginList();
}

void Report::BeginRow(size_t bytes, size_t count, const char* type, const char* op, int root) {
  std::lock_guard<std::mutex> lock(mutex_);
  row_ = Format("%12zu  %12zu  %8s  %6s  %6i", bytes, count, type, op, root);
  if (!json_) return;
  json_->BeginObject();
  json_->Key("size").Int(static_cast<int64_t>(bytes));
  json_->Key("count").Int(static_cast<int64_t>(count));
  json_->Key("type").String(type);
  json_->Key("redop").String(op);
  json_->Key("root").String(Format("%6i", root));
}

void Report::Half(bool out_of_place, const Measurement& m, const IterationReport* iterations) {
  std::lock_guard<std::mutex> lock(mutex_);
  double us = m.seconds * 1e6;
  std::string wrong = m.checked ? Format("%6g", static_cast<double>(m.wrong)) : "   N/A";
  row_ += "  " + FixedWidth(us, 7) + "  " + FixedWidth(m.alg_bw, 6) + "  " + FixedWidth(m.bus_bw, 6) + "  " + wrong;
  if (json_) {
    json_->Key(out_of_place ? "out_of_place" : "in_place").BeginObject();
    json_->Key(options_.report_cpu_time ? "cpu_time" : "time").Double(us);
    json_->Key("alg_bw").Double(m.alg_bw);
    json_->Key("bus_bw").Double(m.bus_bw);
    json_->Key("nwrong");
    if (m.checked) {
      json_->Double(static_cast<double>(m.wrong));
    } else {
      json_->Null();
    }
    json_->EndObject();
  }
  if (iterations != nullptr) Iterations(out_of_place, *iterations);
  if (!out_of_place && options_.report_timestamps) row_ += Format("%21s", TimeText().c_str());
}

void Report::Iterations(bool out_of_place, const IterationReport& report) {
  int skip = options_.per_iteration_skip;
  Statistics s = Summarise({report.seconds.begin() + skip, report.seconds.end()});
  double variation = s.mean > 0 ? s.deviation / s.mean * 100 : 0;
  for (double column : {s.min * 1e6, s.max * 1e6, s.p99 * 1e6, variation}) row_ += "  " + FixedWidth(column, 7);
  if (!json_) return;
  json_->Key(out_of_place ? "out_of_place_per_iter" : "in_place_per_iter").BeginObject();
  json_->Key("skipped_iterations").Int(skip);
  json_->Key("min_us").Double(s.min * 1e6);
  json_->Key("max_us").Double(s.max * 1e6);
  json_->Key("avg_us").Double(s.mean * 1e6);
  json_->Key("p50_us").Double(s.p50 * 1e6);
  json_->Key("p95_us").Double(s.p95 * 1e6);
  json_->Key("p99_us").Double(s.p99 * 1e6);
  json_->Key("stdev_us").Double(s.deviation * 1e6);
  json_->Key("cv_pct").Double(variation);
  json_->Key("times_us");
  MicrosecondList(json_, report.seconds);
  if (!report.process_rows.empty()) {
    json_->Key("per_process_max_times_us").BeginList();
    for (const auto& row : report.process_rows) MicrosecondList(json_, row);
    json_->EndList();
  }
  json_->EndObject();
}

void Report::EndRow() {
  std::lock_guard<std::mutex> lock(mutex_);
  std::printf("%s\n", row_.c_str());
  if (!json_) return;
  json_->Key("actual_iterations").Int(options_.iterations);
  json_->Key("experiment_name").String("");
  json_->EndObject();
  file_->Flush();
}

void Report::Footer(int failed_checks, double average_bus_bw, double min_bandwidth) {
  bool asked = min_bandwidth >= 0;
  bool reached = average_bus_bw >= min_bandwidth * 0.9;
  std::printf("# %-20s : %d %s\n", "Out of bounds values", failed_checks, failed_checks ? "FAILED" : "OK");
  std::printf("# %-20s : %g %s\n", "Avg bus bandwidth", average_bus_bw, !asked ? "" : reached ? "OK" : "FAILED");
  std::printf("#\n# Collective test concluded: %s\n", ProgramName().c_str());
  if (!json_) return;
  json_->EndList();  // results
  json_->Key("out_of_bounds").BeginObject();
  json_->Key("count").Int(failed_checks);
  json_->Key("okay").String(TrueOrFalse(failed_checks == 0));
  json_->EndObject();
  json_->Key("average_bus_bandwidth").BeginObject();
  json_->Key("bandwidth").Double(average_bus_bw);
  json_->Key("okay").String(!asked ? "unchecked" : reached ? "true" : "false");
  json_->EndObject();
}

void Report::Memory(const MemoryReport& m) {
  std::printf("# %-20s : Initialization %s | User-Allocated %s | Collective %s | Total  %s\n", "Memory per rank",
              MemoryText(m.after_init).c_str(), MemoryText(m.buffers).c_str(),
              MemoryText(m.after_run - std::min(m.after_init, m.after_run)).c_str(),
              MemoryText(m.after_run + m.buffers).c_str());
  std::printf("# %-20s : %.3f ms\n", "Initialization time", m.init_seconds * 1e3);
  if (!json_) return;
  json_->Key("memory").BeginObject();
  json_->Key("init_ms").Double(m.init_seconds * 1e3);
  json_->Key("communicator_after_init_bytes").Int(static_cast<int64_t>(m.after_init));
  json_->Key("communicator_after_run_bytes").Int(static_cast<int64_t>(m.after_run));
  json_->Key("buffer_bytes").Int(static_cast<int64_t>(m.buffers));
  json_->EndObject();
}

void Report::End(const std::string& last_error) {
  std::printf("#\n");
  std::printf("%s%s\n", last_error.empty() ? "" : "# error: ", last_error.c_str());
  std::fflush(stdout);
  const Status closed = CloseJson(last_error);
  if (!closed.ok()) Fail(kExitFailed, "%s", std::string(closed.message()).c_str());
}

Status Report::CloseJson(const std::string& error) {
  std::unique_lock<std::mutex> lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock() || json_ == nullptr) return Status();
  // A failing run leaves lists and objects open: end them down to the outermost before adding to it.
  json_->CloseTo(1);
  json_->Key("errors").BeginList();
  if (!error.empty()) json_->String(error);
  json_->EndList();
  json_->Key("end_time").String(TimeText());
  json_ = nullptr;
  return file_->Close();
}

}  // namespace axccl::perf
