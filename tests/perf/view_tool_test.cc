// The perf tools with calls on views, end to end: columns, data checks, options in the JSON.

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/perf/tool_runner.h"

namespace axccl::perf {
namespace {

struct Case {
  const char* name;
  const char* tool;
  std::vector<std::string> options;
  long bytes;
  long count;
  bool in_place;
};

const Case kCases[] = {
    {"all_gather", "all_gather", {"--shape", "6,40", "--dim", "1"}, 1920, 240, true},
    {"all_gather_strides", "all_gather", {"--shape", "6,40", "--dim", "-1", "--strides", "1,6"}, 1920, 240, false},
    {"reduce_scatter", "reduce_scatter", {"--shape", "6,40", "--dim", "1"}, 960, 120, true},
    {"gather", "gather", {"--shape", "6,40", "--dim", "1", "-r", "1"}, 1920, 240, true},
    {"scatter", "scatter", {"--shape", "6,40", "--dim", "1", "-r", "1"}, 960, 120, true},
    {"alltoall", "alltoall", {"--shape", "2,6,4", "--split-dim", "2", "--concat-dim", "1"}, 192, 24, false},
    {"all_reduce", "all_reduce", {"--shape", "6,40", "--out-strides", "1,-7"}, 960, 240, false},
    {"broadcast", "broadcast", {"--shape", "6,40", "--strides", "0,1"}, 960, 240, false},
    {"reduce", "reduce", {"--shape", "6,40"}, 960, 240, true},
    {"list", "all_gather", {"--list", "4x6,8x3,2x1x5", "--dim", "1"}, 464, 58, true},
    {"list_of_parameters", "all_reduce", {"--list", "14"}, 794112, 198528, true},
    {"list_alltoall", "alltoall", {"--list", "4x6,2x4", "--split-dim", "0"}, 128, 16, false},
    {"one_dimension", "all_gather", {"--dim", "0", "-b", "4K", "-e", "4K"}, 4096, 512, true}};

class ViewTool : public testing::TestWithParam<Case> {};

TEST_P(ViewTool, PrintsTheSameColumnsWithRightData) {
  const Case& c = GetParam();
  for (const char* layout : {"-t", "--ranks"}) {
    std::vector<std::string> arguments = c.options;
    arguments.insert(arguments.end(), {layout, "2", "-n", "2", "-T", "60"});
    Tool run(std::string(c.tool) + "_perf", arguments);
    ASSERT_EQ(run.Finish(), 0) << run.out() << run.err();
    Output o = ParseOutput(run.out());
    ASSERT_EQ(o.error, "") << run.out();
    ASSERT_EQ(o.rows.size(), 1u);
    EXPECT_EQ(o.rows[0].bytes, c.bytes);
    EXPECT_EQ(o.rows[0].count, c.count);
    EXPECT_EQ(o.rows[0].out_of_place.wrong, "0");
    EXPECT_EQ(o.rows[0].in_place.wrong, c.in_place ? "0" : "N/A");
    EXPECT_NE(run.out().find("# Views: "), std::string::npos);
  }
}

INSTANTIATE_TEST_SUITE_P(Perf, ViewTool, testing::ValuesIn(kCases), [](const auto& info) { return info.param.name; });

TEST(ViewToolFailure, OneWrongElementIsCountedAndFails) {
  Tool run("all_gather_perf", {"--shape", "64,33", "--dim", "1", "-n", "2", "-T", "60"},
           {{"LD_PRELOAD", AXCCL_SPOILER}, {"ASAN_OPTIONS", "verify_asan_link_order=0"}});
  EXPECT_EQ(run.Finish(), 1) << run.err();
  Output o = ParseOutput(run.out());
  ASSERT_EQ(o.error, "") << run.out();
  EXPECT_EQ(o.rows.at(0).out_of_place.wrong, "1");
  EXPECT_EQ(o.rows.at(0).in_place.wrong, "1");
}

class GroupsTool : public testing::TestWithParam<Case> {};

const Case kGroupCases[] = {
    {"all_gather", "all_gather", {"--shape", "6,40", "--dim", "1"}, 1920, 240, true},
    {"reduce_scatter", "reduce_scatter", {"--shape", "6,40", "--dim", "1"}, 960, 120, true},
    {"alltoall", "alltoall", {"--shape", "2,6,4", "--split-dim", "2", "--concat-dim", "1"}, 192, 24, false},
    {"all_reduce", "all_reduce", {"--shape", "6,40"}, 960, 240, true},
    {"all_reduce_mulsum", "all_reduce", {"--shape", "6,40", "-o", "mulsum"}, 960, 240, true},
    {"scatter", "scatter", {"--shape", "6,40", "--dim", "1", "-r", "1"}, 960, 120, true},
    {"one_dimension", "all_gather", {"-b", "4K", "-e", "4K"}, 4096, 512, true}};

// Counts and data are for two ranks, whatever the size of the communicator.
TEST_P(GroupsTool, EveryGroupHasItsOwnDataInItsOwnOrder) {
  const Case& c = GetParam();
  for (const char* groups : {"[[0,1],[2,3]]", "[[3,1],[2,0]]"}) {
    for (const std::vector<std::string>& layout : {std::vector<std::string>{"--ranks", "4"}, {"-t", "2", "-g", "2"}}) {
      std::vector<std::string> arguments = c.options;
      arguments.insert(arguments.end(), {"--groups", groups, "-n", "2", "-T", "60"});
      arguments.insert(arguments.end(), layout.begin(), layout.end());
      Tool run(std::string(c.tool) + "_perf", arguments);
      ASSERT_EQ(run.Finish(), 0) << run.out() << run.err();
      Output o = ParseOutput(run.out());
      ASSERT_EQ(o.error, "") << run.out();
      EXPECT_EQ(o.ranks.size(), 4u);
      ASSERT_EQ(o.rows.size(), 1u);
      EXPECT_EQ(o.rows[0].bytes, c.bytes);
      EXPECT_EQ(o.rows[0].count, c.count);
      EXPECT_EQ(o.rows[0].out_of_place.wrong, "0");
      EXPECT_EQ(o.rows[0].in_place.wrong, c.in_place ? "0" : "N/A");
      EXPECT_NE(run.out().find(std::string("--groups ") + groups), std::string::npos) << run.out();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Perf, GroupsTool, testing::ValuesIn(kGroupCases),
                         [](const auto& info) { return info.param.name; });

TEST(GroupsToolFailure, OneWrongElementIsCountedAndFails) {
  Tool run("all_gather_perf",
           {"--shape", "64,33", "--dim", "1", "--groups", "[[3,1],[2,0]]", "--ranks", "4", "-n", "2", "-T", "60"},
           {{"LD_PRELOAD", AXCCL_SPOILER}, {"ASAN_OPTIONS", "verify_asan_link_order=0"}});
  EXPECT_EQ(run.Finish(), 1) << run.err();
  Output o = ParseOutput(run.out());
  ASSERT_EQ(o.error, "") << run.out();
  EXPECT_EQ(o.rows.at(0).out_of_place.wrong, "1");
  EXPECT_EQ(o.rows.at(0).in_place.wrong, "1");
}

TEST(ViewToolFailure, ContradictionsAreUsageErrors) {
  const std::vector<std::string> bad[] = {{"all_gather_perf", "--shape", "4,4", "--dim", "2"},
                                          {"reduce_scatter_perf", "--shape", "4,3", "--dim", "1"},
                                          {"sendrecv_perf", "--shape", "4,4"},
                                          {"all_gather_perf", "--shape", "4,four"},
                                          {"all_gather_perf", "--shape", "1000000,1000000"},
                                          {"all_gather_perf", "--groups", "[[0],[1,2]]"},
                                          {"all_gather_perf", "--groups", "[[0,1],[2,3]]"},
                                          {"all_gather_perf", "--groups", "[[0,0]]"},
                                          {"all_gather_perf", "--groups", "[[1]]"},
                                          {"all_gather_perf", "--groups", "0,1"},
                                          {"sendrecv_perf", "--groups", "[[0,1]]"},
                                          {"hypercube_perf", "--groups", "[[0],[1]]"}};
  for (const auto& arguments : bad) {
    Tool run(arguments[0], {arguments.begin() + 1, arguments.end()});
    EXPECT_EQ(run.Finish(), 2) << arguments[0];
    EXPECT_NE(run.err().find("option --"), std::string::npos) << run.err();
    EXPECT_EQ(run.err().find('\n'), run.err().size() - 1) << "one line: " << run.err();
  }
}

TEST(ViewToolFailure, AWrongElementOfAListIsFound) {
  Tool run("all_gather_perf", {"--list", "4x6,8x3", "--dim", "-1", "-n", "2", "-T", "60"},
           {{"LD_PRELOAD", AXCCL_SPOILER}, {"ASAN_OPTIONS", "verify_asan_link_order=0"}});
  EXPECT_EQ(run.Finish(), 1) << run.err();
  Output o = ParseOutput(run.out());
  ASSERT_EQ(o.error, "") << run.out();
  EXPECT_EQ(o.rows.at(0).out_of_place.wrong, "1");
}

TEST(ViewToolJson, NamesTheViews) {
  std::string path = testing::TempDir() + "axccl-views-" + std::to_string(getpid()) + ".json";
  Tool run("all_gather_perf",
           {"--shape", "6,40", "--dim", "1", "--strides", "1,6", "--groups", "[[1,0]]", "-n", "2", "-J", path});
  ASSERT_EQ(run.Finish(), 0) << run.err();
  std::ifstream file(path);
  nlohmann::json views = nlohmann::json::parse(file)["config"]["views"];
  std::remove(path.c_str());
  EXPECT_EQ(views["shapes"], nlohmann::json::parse("[[6,40]]"));
  EXPECT_EQ(views["dim"], 1);
  EXPECT_EQ(views["strides"], nlohmann::json::parse("[1,6]"));
  EXPECT_EQ(views["groups"], nlohmann::json::parse("[[1,0]]"));
}

size_t LinesWith(const std::string& text, const std::string& what) {
  size_t lines = 0;
  for (size_t at = 0; (at = text.find(what, at)) != std::string::npos; at = text.find('\n', at)) ++lines;
  return lines;
}

TEST(Strided, PrintsEveryRow) {
  Tool run("/usr/bin/env", {"python3", AXCCL_STRIDED, "--build", std::string(AXCCL_PERF_DIR) + "/..", "--quick",
                            "--no-mpi", "--markdown"});
  int status = run.Finish();
  if (status == 127) GTEST_SKIP() << "no python3";
  ASSERT_EQ(status, 0) << run.err();
  for (const char* type : {"| f32 |", "| bf16 |"}) EXPECT_EQ(LinesWith(run.out(), type), 15u) << run.out();
  EXPECT_EQ(LinesWith(run.out(), "| creation of a channel of 8 ranks, "), 2u) << run.out();
  EXPECT_EQ(LinesWith(run.out(), "not measured"), 2u) << "all except MPI's: " << run.out();
}

TEST(Strided, UnknownCasesAreUsageErrors) {
  Tool run("strided_perf", {"all_gather,nothing"});
  EXPECT_EQ(run.Finish(), 2);
  EXPECT_NE(run.err().find("'nothing' is none of all_gather,"), std::string::npos) << run.err();
}

}  // namespace
}  // namespace axccl::perf
