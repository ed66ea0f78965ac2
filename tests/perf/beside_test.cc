// beside_perf on host ranks, which run on every machine.

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/harness/folder.h"
#include "tests/perf/tool_runner.h"

namespace axccl::perf {
namespace {

const Tool::Environment kOnHost = {{"AXCCL_DEVICE", "host"}};

TEST(Beside, TimesCommunicatorsAloneAndTogether) {
  const harness::Folder folder;
  const std::string path = folder.Path("a.json");
  Tool run("beside_perf", {"-t", "2", "-b", "64", "-e", "1K", "-f", "16", "-N", "1", "-J", path}, kOnHost);
  EXPECT_EQ(run.Finish(), 0) << run.err();
  EXPECT_NE(run.out().find("2 communicators of 2 ranks on"), std::string::npos) << run.out();
  std::ifstream file(path);
  const auto json = nlohmann::json::parse(file, nullptr, false);
  ASSERT_FALSE(json.is_discarded());
  EXPECT_EQ(json["ranks"], 2);
  EXPECT_EQ(json["comms"], 2);
  ASSERT_EQ(json["results"].size(), 2u);
  for (const size_t i : {0, 1}) {
    EXPECT_EQ(json["results"][i]["bytes"], i == 0 ? 64 : 1024);
    EXPECT_GT(json["results"][i]["alone_us"].get<double>(), 0);
    ASSERT_EQ(json["results"][i]["together_us"].size(), 2u);
    for (const auto& time : json["results"][i]["together_us"]) EXPECT_GT(time.get<double>(), 0);
  }
}

TEST(Beside, RefusesWhatItDoesNotMeasure) {
  Tool many("beside_perf", {"-t", "9"}, kOnHost);
  EXPECT_EQ(many.Finish(), 2);
  EXPECT_NE(many.err().find("option -t 9: at most 8"), std::string::npos) << many.err();
  Tool groups("beside_perf", {"-t", "2", "-g", "2"}, kOnHost);
  EXPECT_EQ(groups.Finish(), 2);
  EXPECT_NE(groups.err().find("option -g 2: has to be 1"), std::string::npos) << groups.err();
}

}  // namespace
}  // namespace axccl::perf
