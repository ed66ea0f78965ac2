// overlap_perf: every pattern in every mode, on processes and threads, and the trace. pipeline_cost and
// perf/overlap/run.

#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "tests/harness/folder.h"
#include "tests/perf/tool_runner.h"

namespace axccl::perf {
namespace {

const std::vector<std::string> kSmall = {"--m", "48", "--k", "24", "--n", "20", "--slices", "4", "-N", "1"};

nlohmann::json Read(const std::string& path) {
  std::ifstream file(path);
  return nlohmann::json::parse(file, nullptr, false);
}

std::vector<std::string> With(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), kSmall.begin(), kSmall.end());
  return arguments;
}

struct Form {
  std::string pattern;
  std::vector<std::string> ranks;
  size_t chunks;  // of the output of all ranks
};

class Overlap : public testing::TestWithParam<Form> {};

TEST_P(Overlap, RunsAndChecksEveryMode) {
  const harness::Folder folder;
  const std::string json_path = folder.Path("a.json"), trace_path = folder.Path("trace.json");
  std::vector<std::string> arguments = With({"--pattern", GetParam().pattern, "-J", json_path, "--trace", trace_path});
  arguments.insert(arguments.end(), GetParam().ranks.begin(), GetParam().ranks.end());
  Tool run("overlap_perf", arguments);
  EXPECT_EQ(run.Finish(), 0) << run.err();
  EXPECT_NE(run.out().find("every row of every result is correct"), std::string::npos) << run.out();
  const nlohmann::json json = Read(json_path);
  ASSERT_FALSE(json.is_discarded());
  EXPECT_EQ(json["pattern"], GetParam().pattern);
  ASSERT_EQ(json["results"].size(), 3u);
  for (const size_t i : {0, 1, 2}) {
    EXPECT_EQ(json["results"][i]["mode"], (std::vector<std::string>{"bulk", "calls", "pipeline"}[i]));
    EXPECT_GT(json["results"][i]["both_ms"].get<double>(), 0);
  }
  // Each rank multiplies in each mode, and sees each chunk once.
  const nlohmann::json trace = Read(trace_path);
  ASSERT_FALSE(trace.is_discarded());
  std::map<std::string, size_t> seen, multiplied;
  std::set<int64_t> ranks;
  for (const auto& event : trace["traceEvents"]) {
    ranks.insert(event["pid"].get<int64_t>());
    if (event["ph"] == "M") continue;
    EXPECT_GE(event["ts"].get<double>(), 0);
    const std::string name = event["name"], mode = event["cat"];
    if (name.starts_with("seen ")) ++seen[mode];
    if (name.starts_with("matmul")) ++multiplied[mode];
  }
  EXPECT_EQ(seen["bulk"], 0u);
  EXPECT_EQ(seen["calls"], 4 * ranks.size());
  EXPECT_EQ(seen["pipeline"], GetParam().chunks);
  EXPECT_EQ(multiplied["bulk"], ranks.size());
  EXPECT_GE(multiplied["pipeline"], 4 * ranks.size());
}

INSTANTIATE_TEST_SUITE_P(Patterns, Overlap,
                         testing::Values(Form{"ag_matmul", {}, 16}, Form{"matmul_ar", {"-t", "3"}, 12},
                                         Form{"matmul_rs", {}, 8}, Form{"ag_matmul_own", {"--ranks", "3"}, 36}),
                         [](const auto& info) { return info.param.pattern; });

TEST(OverlapTool, TakesHeapMemoryAndBalances) {
  Tool run("overlap_perf", With({"--mode", "pipeline", "--memory", "malloc", "--balance"}));
  EXPECT_EQ(run.Finish(), 0) << run.err();
  EXPECT_NE(run.out().find("heap memory"), std::string::npos) << run.out();
  EXPECT_EQ(run.out().find("bulk  "), std::string::npos) << run.out();
}

TEST(OverlapTool, RefusesSizesThatDoNotFit) {
  const auto refused = [](const std::vector<std::string>& arguments, const std::string& text) {
    Tool run("overlap_perf", With(arguments));
    EXPECT_EQ(run.Finish(), 2);
    EXPECT_NE(run.err().find(text), std::string::npos) << run.err();
  };
  refused({"--m", "36"}, "option --m 36: has to be a multiple of slices x ranks = 8");
  refused({"--pattern", "matmul_ar", "--k", "25"}, "option --k 25: has to be a multiple of ranks = 2");
  refused({"--mode", "blocks"}, "option --mode blocks: pass one of bulk, calls, pipeline");
  refused({"--engine", "copy"}, "options --plain and --engine are for --device cuda");
  refused({"--device", "cuda", "--memory", "malloc"}, "option --memory malloc: GPUs have memory of ncclMemAlloc only");
  refused({"--n", "0"}, "option --n 0: pass a number from 1 to 1048576");
}

TEST(OverlapRun, PutsEveryFigureBesideItsBar) {
  Tool run(AXCCL_OVERLAP_RUN, {"--quick", "--build", AXCCL_PERF_DIR "/.."});
  EXPECT_EQ(run.Finish(), 0) << run.err();
  EXPECT_EQ(run.out().find("not measured"), std::string::npos) << run.out() << run.err();
  for (const char* row : {"| a chunk of 64 B", "| start + finish", "| creation", "| memory", "| a ready chunk",
                          "| a rank dies", "| 1 of 3 ranks", "| allocations", "| ag_matmul, 2 ranks: pipeline",
                          "| matmul_ar, 2 ranks: calls", "| matmul_rs balanced"})
    EXPECT_NE(run.out().find(row), std::string::npos) << row << " is missing in\n" << run.out();
}

TEST(PipelineCost, RefusesWhatItDoesNotMeasure) {
  Tool run("pipeline_cost", {"everything"});
  EXPECT_EQ(run.Finish(), 2);
  EXPECT_NE(run.err().find("USAGE"), std::string::npos) << run.err();
}

}  // namespace
}  // namespace axccl::perf
