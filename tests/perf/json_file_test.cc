// A JSON file that the file system does not take fails the run, and says so.
#include "perf/common/json_file.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>

#include <cstdio>
#include <memory>
#include <string>

#include "perf/common/report.h"
#include "tests/harness/folder.h"

namespace axccl::perf {
namespace {

TEST(JsonFileTest, IsCompleteInTheEnd) {
  const harness::Folder folder;
  const std::string path = folder.Path("a.json");
  {
    const std::unique_ptr<JsonFile> file = CreateJsonFile(path);
    file->json()->BeginObject();
    file->json()->Key("list").BeginList();
    file->json()->Int(1);
  }
  EXPECT_EQ(harness::Contents(path), "{\"list\":[1]}\n");
  EXPECT_EXIT(CreateJsonFile(path), testing::ExitedWithCode(2), "option -J: cannot create .*a.json: File exists");
}

TEST(JsonFileTest, AFullDiskFailsTheRun) {
  const auto write = [] { JsonFile(std::fopen("/dev/full", "w"), "a.json").json()->Int(1); };
  EXPECT_EXIT(write(), testing::ExitedWithCode(1), "write\\(a.json\\): No space left on device");
}

// Files of the process grow to 1000 bytes at most. What GoogleTest keeps of stderr fits.
TEST(JsonFileTest, AFullDiskFailsTheRunOfACollective) {
  const harness::Folder folder;
  Options options;
  options.json_path = folder.Path("a.json");
  const auto write = [&] {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit = {1000, RLIM_INFINITY};
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
    setenv("NCCL_OF_THIS_TEST", std::string(2000, 'x').c_str(), 1);  // is written
    Report report(options, 0, nullptr, 0);
    report.End("");
  };
  EXPECT_EXIT(write(), testing::ExitedWithCode(1), "write\\(.*a.json\\): File too large");
}

}  // namespace
}  // namespace axccl::perf
