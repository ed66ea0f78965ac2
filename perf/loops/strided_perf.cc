// strided_perf: AxCCL on any dimension and on lists of operands, compared with AxCCL on the first dimension, with that
// followed by the fastest copy, and with plain loops over memory that all ranks share; and the cost of a channel.
//
// Every rank is a process. The contestants of a case alternate, round after round. For each operation all ranks start
// together and wait for its end, and the slowest one's time counts. A round's time is the median over its operations, a
// contestant's the median over the rounds. Every contestant's result is checked first. perf/strided makes a table of
// this.

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "perf/common/fail.h"
#include "perf/common/json_file.h"
#include "perf/common/launch.h"
#include "perf/common/types.h"
#include "perf/loops/cases.h"

namespace axccl::perf {
namespace {

struct Task {
  std::vector<std::string> names;
  bool quick = false;
  Options options;
};

std::string Names() {
  std::string all;
  for (const std::string& name : CaseNames()) all += (all.empty() ? "" : ",") + name;
  return all;
}

[[noreturn]] void Help() {
  std::printf(
      "USAGE: %s CASE[,CASE...]|all [-d type] [-N rounds] [-c 0|1] [--ranks N] [-J file] [--quick]\n"
      "CASE: %s. Other perf options have no effect. --quick: small operands, to see that everything runs.\n",
      ProgramName().c_str(), Names().c_str());
  std::exit(kExitOk);
}

std::vector<std::string> NamesIn(const std::string& text) {
  if (text == "all") return CaseNames();
  std::vector<std::string> names;
  for (size_t begin = 0; begin <= text.size();) {
    size_t end = std::min(text.find(',', begin), text.size());
    std::string name = text.substr(begin, end - begin);
    if (std::find(CaseNames().begin(), CaseNames().end(), name) == CaseNames().end()) {
      Fail(kExitUsage, "case '%s' is none of %s; 'all' is all of them", name.c_str(), Names().c_str());
    }
    names.push_back(std::move(name));
    begin = end + 1;
  }
  return names;
}

Task Parse(int argc, char** argv) {
  BeginProgram(argc, argv);
  if (argc < 2 || std::strcmp(argv[1], "-h") == 0 || std::strcmp(argv[1], "--help") == 0) Help();
  Task task;
  task.names = NamesIn(argv[1]);
  std::vector<char*> rest;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--quick") == 0) {
      task.quick = true;
    } else {
      rest.push_back(argv[i]);
    }
  }
  rest.push_back(nullptr);
  Result<Options> options = ParseOptions(static_cast<int>(rest.size()) - 1, rest.data());
  if (!options.ok()) Fail(kExitUsage, "%s", std::string(options.status().message()).c_str());
  task.options = std::move(options).value();
  if (task.options.help) Help();
  if (task.options.type == kAllTypes) Fail(kExitUsage, "option -d 'all': give one type");
  return task;
}

// The table and the JSON of the process that reports.
class Table {
 public:
  Table(const Task& task, int ranks) {
    std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);
    std::printf("# %s, %d ranks, %s, medians of %d rounds\n", ProgramName().c_str(), ranks,
                DataTypeName(task.options.type), std::max(task.options.cycles, 1));
    if (task.options.json_path.empty()) return;
    file_ = CreateJsonFile(task.options.json_path);
    json_ = file_->json();
    json_->BeginObject();
    json_->Key("ranks").Int(ranks);
    json_->Key("type").String(DataTypeName(task.options.type));
    json_->Key("results").BeginList();
  }

  void Row(const Case& c, const std::vector<double>& seconds) {
    std::printf("%s\n", c.title.c_str());
    if (json_) {
      json_->BeginObject();
      json_->Key("case").String(c.key);
      json_->Key("title").String(c.title);
      json_->Key("contestants").BeginList();
    }
    for (size_t i = 0; i < seconds.size(); ++i) {
      const Contestant& contestant = c.contestants[i];
      std::printf("  %12.2f us  %5.2f x  %s%s%s\n", seconds[i] * 1e6, seconds[i] / seconds[0], contestant.name.c_str(),
                  contestant.how.empty() ? "" : ": ", contestant.how.c_str());
      if (!json_) continue;
      json_->BeginObject();
      json_->Key("name").String(contestant.name);
      json_->Key("how").String(contestant.how);
      json_->Key("median_us").Double(seconds[i] * 1e6);
      json_->EndObject();
    }
    if (!json_) return;
    json_->EndList();
    json_->EndObject();
    file_->Flush();
  }

 private:
  std::unique_ptr<JsonFile> file_;
  JsonWriter* json_ = nullptr;  // of the file
};

int StridedMain(int argc, char** argv) {
  Task task = Parse(argc, argv);
  const CaseTask of_cases = {task.options.type, task.quick};
  const int ranks = task.options.ranks > 0 ? task.options.ranks : 2;
  if (ranks > 16) Fail(kExitUsage, "option --ranks %d: at most 16", ranks);
  const FieldSizes sizes = SizesFor(task.names, of_cases, ranks);
  auto page = SharedPage::CreateAnonymous(ranks, ranks);
  if (!page.ok()) Fail(kExitFailed, "%s", std::string(page.status().message()).c_str());
  char* for_loops = Field::MapForLoops(sizes, ranks);
  Result<int> rank = ForkProcesses(ranks, 1, page.value().get());
  if (!rank.ok()) Fail(kExitFailed, "%s", std::string(rank.status().message()).c_str());
  SetWho("rank " + std::to_string(rank.value()));
  OnFail([&page](const std::string& message) { page.value()->Abort(message); });
  page.value()->Register(rank.value(), getpid());
  std::unique_ptr<Table> table;
  if (rank.value() == 0) table = std::make_unique<Table>(task, ranks);
  Field field(page.value().get(), rank.value(), ranks, sizes, for_loops);
  for (const std::string& name : task.names) {
    ForEachCase(name, of_cases, &field, [&](const Case& c) {
      for (const Contestant& contestant : c.contestants) {
        if (task.options.checks > 0) field.Check(c.title, contestant, c.sequence);
      }
      std::vector<double> seconds = field.Compete(c.contestants, std::max(task.options.cycles, 1));
      if (table) table->Row(c, seconds);
    });
  }
  return kExitOk;
}

}  // namespace
}  // namespace axccl::perf

int main(int argc, char** argv) {
  setenv("AXCCL_DEVICE", "host", 0);  // its buffers and streams are the host's
  return axccl::perf::StridedMain(argc, argv);
}
