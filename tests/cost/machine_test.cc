// The machine's measurement, its text and its file.
#include "src/cost/machine.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "src/base/param.h"
#include "tests/cost/cache_test.h"

namespace axccl::cost {
namespace {

using harness::Contents;

class MachineFile : public CacheTest {
 protected:
  static void Write(const std::string& file, const std::string& text) { std::ofstream(file) << text; }
};

Machine Odd() {
  Machine m;
  m.signal_seconds = 1.2345678901234567e-7;
  m.op_seconds = 3e-9;
  m.switch_seconds = 0.1 + 0.2 - 0.29;
  m.cached_bytes_per_second = 123456789012.3;
  m.cache_bytes = (5u << 20) + 1;
  m.cache_cores = 6;
  return m;
}

TEST(MachineText, KeepsEveryDigit) {
  const Machine m = Odd();
  Result<Machine> back = FromText(ToText(m));
  ASSERT_TRUE(back.ok()) << back.status().message();
  EXPECT_EQ(back->signal_seconds, m.signal_seconds);
  EXPECT_EQ(back->op_seconds, m.op_seconds);
  EXPECT_EQ(back->switch_seconds, m.switch_seconds);
  EXPECT_EQ(back->cached_bytes_per_second, m.cached_bytes_per_second);
  EXPECT_EQ(back->cache_bytes, m.cache_bytes);
  EXPECT_EQ(back->cache_cores, m.cache_cores);
}

TEST(MachineText, RefusesWhatItDidNotWrite) {
  const std::string good = ToText(Machine());
  std::vector<std::string> bad = {"", "\n", "axccl-machine 3\n", good + "more 1\n", good + "\n", "x" + good};
  for (size_t cut = 1; cut + 1 < good.size(); cut += 7) bad.push_back(good.substr(0, cut));
  const auto replaced = [&](const std::string& what, const std::string& by) {
    std::string text = good;
    text.replace(text.find(what), what.size(), by);
    bad.push_back(text);
  };
  replaced("signal_seconds 1.5e-07", "signal_seconds -1");
  replaced("signal_seconds 1.5e-07", "signal_seconds nan");
  replaced("signal_seconds 1.5e-07", "signal_seconds inf");
  replaced("signal_seconds 1.5e-07", "signal_seconds 1.5e-07x");
  replaced("signal_seconds 1.5e-07", "signal_seconds 12");
  replaced("op_seconds", "OP_seconds");
  replaced("cache_bytes 33554432", "cache_bytes 0");
  replaced("cache_cores 2", "cache_cores 0");
  for (const std::string& text : bad) {
    const Result<Machine> result = FromText(text);
    ASSERT_FALSE(result.ok()) << text;
    EXPECT_EQ(result.status().code(), Code::kInvalidArgument);
    EXPECT_NE(result.status().message().find("line"), std::string_view::npos);
  }
}

// Ranks share the cache with each other, and only ranks on its cores do.
TEST(RankCache, IsAShare) {
  Machine m;
  m.cache_bytes = 48u << 20;
  m.cache_cores = 8;
  m.cores = 64;
  const auto share = [&](int ranks) {
    m.ranks = ranks;
    return m.RankCacheBytes() >> 20;
  };
  EXPECT_EQ(share(1), 48u);
  EXPECT_EQ(share(2), 24u);
  EXPECT_EQ(share(8), 6u);
  EXPECT_EQ(share(64), 6u);
  EXPECT_EQ(share(128), 3u);
  m.cores = 1;  // bound
  EXPECT_EQ(share(2), 24u);
  EXPECT_EQ(share(64), 6u);
  EXPECT_EQ(GpuMachine(8, 4).RankCacheBytes(), 8u << 20);
}

TEST(Measure, YieldsWhatAFileMayHold) {
  const Machine m = Measure();
  Result<Machine> back = FromText(ToText(m));
  EXPECT_TRUE(back.ok()) << back.status().message();
  EXPECT_LE(m.memory_bytes_per_second, m.cached_bytes_per_second);
  EXPECT_LE(m.call_bytes_per_second, m.cached_bytes_per_second);
  EXPECT_GE(m.RankCacheBytes(), 1u << 14);
}

TEST(Measure, KeepsTheCallersAffinity) {
  cpu_set_t before, after;
  ASSERT_EQ(sched_getaffinity(0, sizeof(before), &before), 0);
  (void)Measure();
  ASSERT_EQ(sched_getaffinity(0, sizeof(after), &after), 0);
  EXPECT_TRUE(CPU_EQUAL(&before, &after));
}

TEST_F(MachineFile, IsWrittenOnceAndReadBack) {
  const std::string file = CacheFile();
  ASSERT_EQ(file.compare(0, folder_.size() + 9, folder_ + "/machine-"), 0) << file;
  const Machine first = MeasureOnce(file);
  EXPECT_EQ(Contents(file), ToText(first));
  const Machine second = MeasureOnce(file);
  EXPECT_EQ(ToText(second), ToText(first));
  // The file's figures are used, without measuring.
  Write(file, ToText(Odd()));
  EXPECT_EQ(ToText(MeasureOnce(file)), ToText(Odd()));
}

TEST_F(MachineFile, ACorruptFileIsReplaced) {
  const std::string file = folder_ + "/machine";
  for (const std::string& text : {std::string("junk"), std::string(100000, 'x'), std::string()}) {
    Write(file, text);
    const Machine m = MeasureOnce(file);
    EXPECT_EQ(Contents(file), ToText(m));
  }
}

TEST_F(MachineFile, MissingFoldersAreMade) {
  const std::string file = folder_ + "/a/b/machine";
  const Machine m = MeasureOnce(file);
  EXPECT_EQ(Contents(file), ToText(m));
}

TEST_F(MachineFile, AnUnusableFolderIsNoError) {
  const std::string not_a_folder = folder_ + "/plain";
  Write(not_a_folder, "kept");
  EXPECT_TRUE(FromText(ToText(MeasureOnce(not_a_folder + "/machine"))).ok());
  EXPECT_EQ(Contents(not_a_folder), "kept");
  EXPECT_TRUE(FromText(ToText(MeasureOnce(std::string()))).ok());
}

TEST_F(MachineFile, NoOtherFileIsLeft) {
  (void)MeasureOnce(folder_ + "/machine");
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
    ++files;
    EXPECT_EQ(entry.path().filename(), "machine");
  }
  EXPECT_EQ(files, 1);
}

TEST_F(MachineFile, ConcurrentMeasurementsLeaveAWholeFile) {
  const std::string file = folder_ + "/machine";
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) threads.emplace_back([&] { (void)MeasureOnce(file); });
  for (std::thread& t : threads) t.join();
  EXPECT_TRUE(FromText(Contents(file)).ok());
}

TEST_F(MachineFile, FollowsTheEnvironment) {
  const char* home = getenv("HOME");
  const std::string kept_home = home == nullptr ? "" : home;
  const char* xdg = getenv("XDG_CACHE_HOME");
  const std::string kept_xdg = xdg == nullptr ? "" : xdg;
  unsetenv("AXCCL_CACHE_DIR");
  param::Reset();
  setenv("HOME", "/somewhere", 1);
  setenv("XDG_CACHE_HOME", "/cache", 1);
  EXPECT_EQ(CacheFile().rfind("/cache/axccl/machine-", 0), 0u);
  unsetenv("XDG_CACHE_HOME");
  EXPECT_EQ(CacheFile().rfind("/somewhere/.cache/axccl/machine-", 0), 0u);
  unsetenv("HOME");
  EXPECT_EQ(CacheFile(), "");
  if (home != nullptr) setenv("HOME", kept_home.c_str(), 1);
  if (xdg != nullptr) setenv("XDG_CACHE_HOME", kept_xdg.c_str(), 1);
}

}  // namespace
}  // namespace axccl::cost
