#include "src/base/log.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include "tests/base/environment.h"

namespace axccl::log {
namespace {

using test::Environment;

bool Matches(const std::string& line, const std::string& regex) {
  return testing::Matcher<const std::string&>(testing::MatchesRegex(regex)).Matches(line);
}

TEST(Log, LineHasNcclsFormat) {
  Environment environment{{"NCCL_DEBUG", "INFO"}, {"NCCL_DEBUG_SUBSYS", "COLL"}};
  Write(Level::kInfo, kColl, 3, "count %d of %s", 7, "x");
  Write(Level::kWarn, kColl, -1, "careful");
  const std::vector<std::string> lines = environment.Log();
  ASSERT_EQ(lines.size(), 2u);
  const std::string head = "[^:. ]+:" + std::to_string(getpid()) + ":" + std::to_string(gettid()) + " ";
  EXPECT_TRUE(Matches(lines[0], head + "\\[3\\] NCCL INFO count 7 of x")) << lines[0];
  EXPECT_TRUE(Matches(lines[1], head + "\\[-1\\] NCCL WARN careful")) << lines[1];
}

TEST(Log, VersionLineHasNoPrefix) {
  Environment environment{{"NCCL_DEBUG", "VERSION"}};
  Write(Level::kVersion, kInit, 0, "NCCL version 2");
  Write(Level::kWarn, kInit, 0, "not shown");
  EXPECT_EQ(environment.Log(), std::vector<std::string>{"NCCL version 2"});
}

TEST(Log, NoticesGoToStderrAtEveryLevel) {
  Environment environment{{"NCCL_DEBUG", "NONE"}, {"NCCL_DEBUG_FILE", "/nonexistent/log"}};
  testing::internal::CaptureStderr();
  WriteNotice("mind the %s", "gap");
  const std::string line = testing::internal::GetCapturedStderr();
  EXPECT_TRUE(
      Matches(line, "[^:. ]+:" + std::to_string(getpid()) + ":" + std::to_string(gettid()) + " AxCCL: mind the gap\n"))
      << line;
}

TEST(Log, LevelsIncludeTheLowerOnes) {
  const std::pair<const char*, int> cases[] = {{"", 0},     {"NONE", 0}, {"VERSION", 1},
                                               {"WARN", 2}, {"info", 3}, {"TRACE", 4}};
  for (const auto& [level, lines] : cases) {
    Environment environment{{"NCCL_DEBUG", level}, {"NCCL_DEBUG_SUBSYS", "COLL"}};
    for (int i = 0; i <= 4; ++i) Write(static_cast<Level>(i), kColl, 0, "line");
    EXPECT_EQ(environment.CountLog({"line"}), lines) << level;
    EXPECT_EQ(Enabled(Level::kInfo, kColl), lines >= 3) << level;
  }
}

TEST(Log, SubsystemsSelectAndExclude) {
  const struct {
    const char* list;
    bool init, coll, p2p;
  } cases[] = {{"", true, false, false},      {"COLL", false, true, false},   {"coll,P2P", false, true, true},
               {"ALL", true, true, true},     {"^COLL", true, false, true},   {"^INIT,P2P", false, true, false},
               {"^ALL", false, false, false}, {",COLL,,", false, true, false}};
  for (const auto& c : cases) {
    Environment environment{{"NCCL_DEBUG", "INFO"}, {"NCCL_DEBUG_SUBSYS", c.list}};
    EXPECT_EQ(Enabled(Level::kInfo, kInit), c.init) << c.list;
    EXPECT_EQ(Enabled(Level::kInfo, kColl), c.coll) << c.list;
    EXPECT_EQ(Enabled(Level::kInfo, kP2p), c.p2p) << c.list;
    EXPECT_EQ(Enabled(Level::kInfo, kColl | kP2p), c.coll || c.p2p) << c.list;
    EXPECT_TRUE(Enabled(Level::kWarn, 0)) << c.list;
  }
}

TEST(Log, UnknownSubsystemIsReported) {
  Environment environment{{"NCCL_DEBUG", "WARN"}, {"NCCL_DEBUG_SUBSYS", "COLL,COLLS"}};
  EXPECT_TRUE(Enabled(Level::kWarn, kInit));
  EXPECT_EQ(environment.CountLog({"NCCL_DEBUG_SUBSYS", "COLLS is not a subsystem"}), 1);
}

TEST(Log, FileNameTakesHostAndProcess) {
  Environment environment{{"NCCL_DEBUG", "WARN"}};
  environment.Set("NCCL_DEBUG_FILE", environment.folder() + "/%h.%p.%%.%x");
  environment.Forget();
  Write(Level::kWarn, kInit, 0, "here");
  char host[256] = {};
  ASSERT_EQ(gethostname(host, sizeof(host) - 1), 0);
  const std::string name = std::string(host, strcspn(host, ".")) + "." + std::to_string(getpid()) + ".%.%x";
  EXPECT_TRUE(std::filesystem::exists(environment.folder() + "/" + name)) << name;
}

TEST(Log, WithoutALineThereIsNoFile) {
  Environment environment{{"NCCL_DEBUG", "WARN"}};
  Write(Level::kInfo, kInit, 0, "too fine");
  EXPECT_FALSE(std::filesystem::exists(environment.folder() + "/log"));
}

TEST(Log, UnusableFileFallsBackToStdoutWithAWarning) {
  Environment environment{{"NCCL_DEBUG", "WARN"}, {"NCCL_DEBUG_FILE", "/nonexistent/folder/log"}};
  testing::internal::CaptureStdout();
  Write(Level::kWarn, kInit, 0, "still written");
  const std::string text = testing::internal::GetCapturedStdout();
  EXPECT_NE(text.find("cannot open /nonexistent/folder/log"), text.npos) << text;
  EXPECT_NE(text.find("NCCL WARN still written\n"), text.npos) << text;
}

// The number of the log's descriptor; -1 if it has none.
int NumberOf(const std::string& path) {
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    if (std::filesystem::read_symlink(entry.path(), gone) == path) return std::stoi(entry.path().filename().string());
  }
  return -1;
}

TEST(Log, AFileThatTheProgramHasClosedIsOpenedAgain) {
  Environment environment{{"NCCL_DEBUG", "WARN"}};
  Write(Level::kWarn, kInit, 0, "first");
  const int number = NumberOf(environment.folder() + "/log");
  ASSERT_GE(number, 0);
  const int file = memfd_create("program", MFD_CLOEXEC);
  ASSERT_EQ(dup2(file, number), number);  // a file of the program
  close(file);
  Write(Level::kWarn, kInit, 0, "second");
  EXPECT_EQ(environment.CountLog({"first"}), 1);
  EXPECT_EQ(environment.CountLog({"second"}), 1);
  EXPECT_EQ(lseek(number, 0, SEEK_END), 0);
  environment.Forget();
  EXPECT_EQ(close(number), 0);
}

TEST(Log, FileIsNoStandardStream) {
  const int input = dup(STDIN_FILENO);
  close(STDIN_FILENO);
  Environment environment{{"NCCL_DEBUG", "WARN"}};
  Write(Level::kWarn, kInit, 0, "line");
  EXPECT_GT(NumberOf(environment.folder() + "/log"), STDERR_FILENO);
  if (input < 0) return;
  dup2(input, STDIN_FILENO);
  close(input);
}

TEST(Log, StderrIsADestination) {
  Environment environment{{"NCCL_DEBUG", "WARN"}, {"NCCL_DEBUG_FILE", "stderr"}};
  testing::internal::CaptureStderr();
  Write(Level::kWarn, kInit, 0, "over here");
  EXPECT_NE(testing::internal::GetCapturedStderr().find("over here\n"), std::string::npos);
}

TEST(Log, WriteAlwaysIgnoresTheLevel) {
  Environment environment;
  WriteAlways("%s", "asked for");
  EXPECT_EQ(environment.CountLog({"NCCL INFO asked for"}), 1);
}

TEST(Log, KeepsErrno) {
  Environment environment{{"NCCL_DEBUG", "WARN"}, {"NCCL_DEBUG_FILE", "/nonexistent/folder/log"}};
  testing::internal::CaptureStdout();
  errno = EBUSY;
  Write(Level::kWarn, kInit, 0, "x");
  EXPECT_EQ(errno, EBUSY);
  (void)testing::internal::GetCapturedStdout();
}

TEST(Log, LongLinesAreWhole) {
  Environment environment{{"NCCL_DEBUG", "WARN"}};
  const std::string text(100000, 'a');
  Write(Level::kWarn, kInit, 0, "%s", text.c_str());
  EXPECT_EQ(environment.CountLog({text}), 1);
}

TEST(Log, LinesOfThreadsDoNotMix) {
  constexpr int kThreads = 8, kLines = 200;
  Environment environment{{"NCCL_DEBUG", "WARN"}};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([t] {
      for (int i = 0; i < kLines; ++i) Write(Level::kWarn, kInit, t, "thread %d line %d end", t, i);
    });
  }
  for (std::thread& thread : threads) thread.join();
  const std::string whole("[^ ]+ \\[[0-7]\\] NCCL WARN thread [0-7] line [0-9]+ end");
  const std::vector<std::string> lines = environment.Log();
  EXPECT_EQ(lines.size(), size_t{kThreads} * kLines);
  for (const std::string& line : lines) EXPECT_TRUE(Matches(line, whole)) << line;
}

TEST(Log, ResetWhileOthersWriteLosesNothing) {
  constexpr int kLines = 500;
  Environment environment{{"NCCL_DEBUG", "WARN"}};
  std::atomic<bool> done{false};
  std::thread writer([&done] {
    for (int i = 0; i < kLines; ++i) Write(Level::kWarn, kInit, 0, "line %d", i);
    done = true;
  });
  while (!done) Reset();
  writer.join();
  EXPECT_EQ(environment.Log().size(), size_t{kLines});
}

}  // namespace
}  // namespace axccl::log
