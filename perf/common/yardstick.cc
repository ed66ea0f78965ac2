#include "perf/common/yardstick.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "perf/common/fail.h"
#include "perf/common/types.h"

namespace axccl::perf {
namespace {

constexpr size_t kFloatBytes = 4;

std::string Describe(const Status& status) { return std::string(status.message()); }

}  // namespace

YardstickTask ParseYardstick(int argc, char** argv, const std::string& what) {
  BeginProgram(argc, argv);
  YardstickTask task;
  if (argc < 2 || std::strcmp(argv[1], "-h") == 0 || std::strcmp(argv[1], "--help") == 0) {
    std::printf(
        "USAGE: %s COLLECTIVE [-b min] [-e max] [-i step | -f factor] [-n iterations] [-w warm-up] [--ranks N] "
        "[-J file]\n%s\nCOLLECTIVE: %s. Type float, reduction sum.\n",
        ProgramName().c_str(), what.c_str(), RuleNames().c_str());
    std::exit(argc < 2 ? kExitUsage : kExitOk);
  }
  task.rule = FindRule(argv[1]);
  if (task.rule == nullptr) Fail(kExitUsage, "'%s' is none of %s", argv[1], RuleNames().c_str());
  Result<Options> options = ParseOptions(argc - 1, argv + 1);
  if (!options.ok()) Fail(kExitUsage, "%s", Describe(options.status()).c_str());
  task.options = options.value();
  const ViewOptions& views = task.options.views;
  if (!views.given) return task;
  // Operations for which MPI needs a copy afterwards.
  if (std::strcmp(task.rule->name, "all_gather") != 0 || views.shapes.size() != 1 || !views.strides.empty() ||
      !views.out_strides.empty() || !views.groups.empty()) {
    Fail(kExitUsage, "option %s: of the collectives on views there is only all_gather with --shape and --dim",
         ViewText(views).c_str());
  }
  std::string refusal = RefuseViews(task.rule->name, ViewKind::kConcat, views, 1);
  if (!refusal.empty()) Fail(kExitUsage, "%s", refusal.c_str());
  if (task.options.type == kAllTypes) Fail(kExitUsage, "option -d all: give one type");
  return task;
}

std::vector<YardstickSize> SizesOf(const YardstickTask& task, int ranks) {
  const Options& o = task.options;
  std::vector<YardstickSize> sizes;
  if (!o.views.shapes.empty()) {
    size_t bytes = ElementBytes(o.type);
    for (int64_t size : o.views.shapes[0]) bytes *= static_cast<size_t>(size);
    return {{bytes * static_cast<size_t>(ranks), bytes / kFloatBytes}};
  }
  for (size_t bytes = o.min_bytes;;) {
    size_t elements = bytes / kFloatBytes;
    size_t argument = task.rule->parts ? PartCount(elements, kFloatBytes, ranks) : elements;
    size_t whole = argument * (task.rule->parts ? static_cast<size_t>(ranks) : 1) * kFloatBytes;
    sizes.push_back({whole, argument});
    size_t next = o.step_factor > 1 ? bytes * o.step_factor : bytes + o.step_bytes;
    if (next <= bytes || next > o.max_bytes) return sizes;
    bytes = next;
  }
}

YardstickReport::YardstickReport(const YardstickTask& task, int ranks, int argc, char** argv)
    : task_(task), ranks_(ranks) {
  std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);
  std::printf("# %s %s, %d ranks, float sum, %d iterations\n", ProgramName().c_str(), task.rule->name, ranks,
              task.options.iterations);
  std::printf("#%11s  %12s  %10s  %10s  %8s  %8s  how\n", "size (B)", "count", "mean (us)", "median", "algbw", "busbw");
  const std::string& path = task.options.json_path;
  if (path.empty()) return;
  file_ = CreateJsonFile(path);
  json_ = file_->json();
  json_->BeginObject();
  json_->Key("tool").String(ProgramName());
  json_->Key("collective").String(task.rule->name);
  json_->Key("ranks").Int(ranks);
  json_->Key("args").BeginList();
  for (int i = 0; i < argc; ++i) json_->String(argv[i]);
  json_->EndList();
  json_->Key("results").BeginList();
}

void YardstickReport::Row(const YardstickSize& size, double mean, double median, const std::string& note) {
  double alg_bw = static_cast<double>(size.bytes) / 1e9 / mean;
  double bus_bw = alg_bw * task_.rule->bus_factor(ranks_);
  std::printf("%12zu  %12zu  %10.3f  %10.3f  %8.2f  %8.2f  %s\n", size.bytes, size.argument, mean * 1e6, median * 1e6,
              alg_bw, bus_bw, note.c_str());
  if (!json_) return;
  json_->BeginObject();
  json_->Key("size").Int(static_cast<int64_t>(size.bytes));
  json_->Key("count").Int(static_cast<int64_t>(size.argument));
  json_->Key("type").String("float");
  json_->Key("out_of_place").BeginObject();
  json_->Key("time").Double(mean * 1e6);
  json_->Key("median_us").Double(median * 1e6);
  json_->Key("alg_bw").Double(alg_bw);
  json_->Key("bus_bw").Double(bus_bw);
  json_->EndObject();
  if (!note.empty()) json_->Key("how").String(note);
  json_->EndObject();
  file_->Flush();
}

}  // namespace axccl::perf
