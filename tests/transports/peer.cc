#include "tests/transports/peer.h"

#include <errno.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

namespace axccl::shm {

void Publish(harness::RankContext& context, int slot, const transport::ProcessAddress& address) {
  std::memcpy(context.board() + slot * sizeof address, &address, sizeof address);
}

transport::ProcessAddress Published(harness::RankContext& context, int slot) {
  transport::ProcessAddress address;
  std::memcpy(static_cast<void*>(&address), context.board() + slot * sizeof address, sizeof address);
  return address;
}

int CountDescriptors() {
  const std::filesystem::directory_iterator entries("/proc/self/fd");
  return static_cast<int>(std::distance(begin(entries), end(entries)));
}

int CountMappings(const std::string& text) {
  std::ifstream maps("/proc/self/maps");
  int count = 0;
  for (std::string line; std::getline(maps, line);) count += line.find(text) != std::string::npos;
  return count;
}

void StopProcess(pid_t pid) {
  EXPECT_EQ(kill(pid, SIGSTOP), 0);
  const auto running = [](const std::filesystem::directory_entry& thread) {
    std::ifstream file(thread.path() / "stat");
    std::string text;
    std::getline(file, text);
    return text.find(") T ") == std::string::npos;
  };
  const std::string tasks = "/proc/" + std::to_string(pid) + "/task";
  for (;;) {
    const std::filesystem::directory_iterator entries(tasks);
    if (std::none_of(begin(entries), end(entries), running)) return;
    sched_yield();
  }
}

int AwaitChild(pid_t pid) {
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

}  // namespace axccl::shm
