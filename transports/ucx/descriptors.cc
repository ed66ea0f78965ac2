#include "transports/ucx/descriptors.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>

namespace axccl::ucx {
namespace {

// Returns "anon_inode:[eventpoll]", "pipe:[4711]"; empty: unknown.
std::string NameOf(int fd) {
  char name[64];
  const ssize_t bytes = readlink(("/proc/self/fd/" + std::to_string(fd)).c_str(), name, sizeof(name));
  return bytes <= 0 ? std::string() : std::string(name, static_cast<size_t>(bytes));
}

void ForEachThatExecKeeps(const std::function<void(int fd)>& visit) {
  DIR* const folder = opendir("/proc/self/fd");
  if (folder == nullptr) return;
  while (const dirent* entry = readdir(folder)) {
    const int fd = std::atoi(entry->d_name);
    const int flags = entry->d_name[0] == '.' ? -1 : fcntl(fd, F_GETFD);
    if (flags >= 0 && (flags & FD_CLOEXEC) == 0) visit(fd);
  }
  closedir(folder);
}

// Adds what an epoll descriptor watches, recursively.
void AddWatched(int epoll, std::set<int>* found) {
  if (!found->insert(epoll).second) return;
  std::FILE* const file = std::fopen(("/proc/self/fdinfo/" + std::to_string(epoll)).c_str(), "re");
  if (file == nullptr) return;
  char line[256];
  int fd = -1;
  while (std::fgets(line, sizeof(line), file) != nullptr)
    if (std::sscanf(line, "tfd: %d", &fd) == 1) AddWatched(fd, found);
  std::fclose(file);
}

}  // namespace

std::set<int> EpollsThatExecKeeps() {
  std::set<int> epolls;
  ForEachThatExecKeeps([&](int fd) {
    if (NameOf(fd) == "anon_inode:[eventpoll]") epolls.insert(fd);
  });
  return epolls;
}

void CloseOnExec(const std::vector<int>& epolls) {
  std::set<int> found;
  for (const int epoll : epolls) AddWatched(epoll, &found);
  std::set<std::string> pipes;
  for (const int fd : found)
    if (std::string name = NameOf(fd); name.starts_with("pipe:")) pipes.insert(std::move(name));
  ForEachThatExecKeeps([&](int fd) {
    if (found.contains(fd) || (!pipes.empty() && pipes.contains(NameOf(fd)))) fcntl(fd, F_SETFD, FD_CLOEXEC);
  });
}

}  // namespace axccl::ucx
