// What the library's threads for other machines do to the process that they are in: its signals.
#include <dirent.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>
#include <string>

#include "tests/harness/client.h"
#include "tests/harness/gpu.h"
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

}  // namespace
}  // namespace axccl::tests
