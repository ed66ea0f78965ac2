// What the library's threads for other machines do to the process that they are in: its signals and its children.
#include <dirent.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <thread>

#include "tests/harness/client.h"
#include "tests/harness/gpu.h"
#include "tests/harness/timing.h"
#include "tests/net/run_on_hosts.h"

namespace axccl::tests {
namespace {

using harness::Clique;
using harness::Cuda;
using harness::DeviceVector;
using harness::RankContext;
using harness::TestHosts;

ncclResult_t Max(const Clique& clique, DeviceVector<int>* data) {
  return harness::AwaitCall(
      ncclAllReduce(data->data(), data->data(), data->size(), ncclInt32, ncclMax, clique.comm(), Cuda(clique.stream())),
      clique.stream(), clique.comm());
}

std::string ReadTask(const std::string& thread, const char* file) {
  std::ifstream in("/proc/self/task/" + thread + "/" + file);
  std::stringstream content;
  content << in.rdbuf();
  return content.str();
}

std::set<std::string> Threads() {
  std::set<std::string> threads;
  DIR* const folder = opendir("/proc/self/task");
  while (const dirent* const entry = readdir(folder))
    if (entry->d_name[0] != '.') threads.insert(entry->d_name);
  closedir(folder);
  return threads;
}

// ---- signals ----

// The names of the threads that would take the signal.
std::multiset<std::string> TakersOf(int signal) {
  std::multiset<std::string> names;
  for (const std::string& thread : Threads()) {
    const std::string status = ReadTask(thread, "status"), field = "\nSigBlk:";
    const size_t at = status.find(field);
    if (at == std::string::npos) continue;  // it has ended
    const uint64_t blocked = std::strtoull(status.c_str() + at + field.size(), nullptr, 16);
    if ((blocked >> (signal - 1) & 1) == 0) names.insert(ReadTask(thread, "comm"));
  }
  return names;
}

TEST(Signals, AreOnlyForThreadsOfTheApplication) {
  RunOnHosts(2, 2, [](const TestHosts&, RankContext& context) {
    const auto before = TakersOf(SIGTERM);
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    DeviceVector<int> data(1000, 1);
    ASSERT_OK(Max(clique, &data));
    if (!harness::OnGpu()) {
      EXPECT_EQ(TakersOf(SIGTERM), before);
    }
    ASSERT_TRUE(context.Barrier());
  });
}

// ---- children ----

// A child that ends by exit() runs the handlers that the library has registered, without the library's threads, which
// hold locks most of the time when data move.
TEST(Children, MayExitWhileTheirParentCommunicates) {
  if (harness::TimeScale() > 1) GTEST_SKIP() << "sanitizers have handlers of their own";
  RunOnHosts(2, 2, [](const TestHosts&, RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    DeviceVector<int> data(100'000, 0);
    ASSERT_OK(Max(clique, &data));
    std::atomic<bool> over{false};
    std::jthread parent;
    if (context.rank() == 0)
      parent = std::jthread([&] {
        for (int i = 0; i < 50 && !context.AnyFailed(); ++i) {
          std::fflush(nullptr);
          const pid_t child = fork();
          if (child == 0) std::exit(0);
          int status = -1;
          EXPECT_EQ(waitpid(child, &status, 0), child);
          EXPECT_EQ(status, 0);
        }
        over = true;
      });
    for (int last = 0; last == 0;) {
      data.assign(data.size(), over ? 1 : 0);
      ASSERT_OK(Max(clique, &data));
      last = data[0];
    }
  });
}

}  // namespace
}  // namespace axccl::tests
