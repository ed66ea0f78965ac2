// What the library's threads for other machines do to the process that they are in: its signals, its children, and the
// descriptors that it closes.
#include <dirent.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
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

// ---- closed descriptors ----

// Whether the thread waits for something, and not only for a moment.
bool Rests(const std::string& thread) {
  long number = -1;
  std::array<unsigned long, 4> arguments{};
  const std::string call = ReadTask(thread, "syscall");
  if (std::sscanf(call.c_str(), "%ld %lx %lx %lx %lx", &number, &arguments[0], &arguments[1], &arguments[2],
                  &arguments[3]) != 5)
    return false;  // it runs
#ifdef SYS_epoll_wait
  if (number == SYS_epoll_wait) number = SYS_epoll_pwait;
#endif
  return number != SYS_epoll_pwait || static_cast<int>(arguments[3]) == -1;
}

// Until the descriptors are closed, the thread that receives looks now and then, because calls keep coming.
TEST(ClosedDescriptors, LeaveThreadsAtRest) {
  RunOnHosts(2, 2, [](const TestHosts&, RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    DeviceVector<int> data(2, 1);
    for (int i = 0; i < 200; ++i) ASSERT_OK(Max(clique, &data));
    if (context.rank() == 0) {
      closefrom(3);
      for (const std::string& thread : Threads()) {
        if (ReadTask(thread, "comm").rfind("axccl-", 0) != 0) continue;
        while (!Rests(thread) && !context.AnyFailed()) harness::LookLater();
      }
    }
    ASSERT_TRUE(context.Barrier(1));
    if (context.rank() == 0) context.Die();
    EXPECT_OK(ncclCommAbort(clique.comm()));
    clique.ForgetComms();
  });
}

}  // namespace
}  // namespace axccl::tests
