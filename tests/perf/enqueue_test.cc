// enqueue_perf on host ranks, which run on every machine.

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/harness/folder.h"
#include "tests/perf/tool_runner.h"

namespace axccl::perf {
namespace {

const Tool::Environment kOnHost = {{"AXCCL_DEVICE", "host"}};

TEST(Enqueue, TimesGroupsAndCallsOfEveryRank) {
  const harness::Folder folder;
  const std::string path = folder.Path("a.json");
  Tool run("enqueue_perf", {"-g", "3", "-n", "4", "-N", "3", "-b", "64", "-J", path}, kOnHost);
  EXPECT_EQ(run.Finish(), 0) << run.err();
  EXPECT_NE(run.out().find("3 ranks (host), all_reduce of 64 bytes, medians of 3 rounds of 4 operations"),
            std::string::npos)
      << run.out();
  std::ifstream file(path);
  const auto json = nlohmann::json::parse(file, nullptr, false);
  ASSERT_FALSE(json.is_discarded());
  EXPECT_EQ(json["ranks"], 3);
  EXPECT_EQ(json["where"], "host");
  EXPECT_EQ(json["bytes"], 64);
  ASSERT_EQ(json["results"].size(), 2u);
  for (const size_t i : {0, 1}) {
    EXPECT_EQ(json["results"][i]["case"], i == 0 ? "group" : "call");
    EXPECT_GT(json["results"][i]["median_us"].get<double>(), 0);
  }
}

TEST(Enqueue, RefusesMoreThanALaunchQueueTakes) {
  Tool run("enqueue_perf", {"-n", "201"}, kOnHost);
  EXPECT_EQ(run.Finish(), 2);
  EXPECT_NE(run.err().find("option -n 201: from 1 to 200"), std::string::npos) << run.err();
}

}  // namespace
}  // namespace axccl::perf
