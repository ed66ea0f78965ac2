#include "tests/malloc/family.h"

#include <dlfcn.h>
#include <malloc.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "tests/harness/random.h"

namespace axccl::test {

using harness::RankContext;
using harness::RunOptions;

bool IsPreloaded() {
  static const bool preloaded = dlsym(RTLD_DEFAULT, "axccl_malloc_attach_2") != nullptr;
  return preloaded;
}

const Family& CLibrary() {
  static const Family family = {"malloc",           std::malloc, std::calloc,        std::realloc,
                                std::aligned_alloc, std::free,   malloc_usable_size, IsPreloaded()};
  return family;
}

const Family& Axccl() {
  static const Family family = {"axcclMalloc",     axcclMalloc, axcclCalloc,           axcclRealloc,
                                axcclAlignedAlloc, axcclFree,   axcclMallocUsableSize, true};
  return family;
}

void WithHeap(const std::function<void(ncclComm_t comm)>& body,
              std::vector<std::pair<std::string, std::string>> environment) {
  RunOptions options;
  options.deadline = std::chrono::seconds(60);
  options.environment = std::move(environment);
  harness::RunRanks(
      harness::Processes(1),
      [&](RankContext&) {
        ncclComm_t comm = nullptr;
        ASSERT_OK(ncclCommInitAll(&comm, 1, nullptr));
        body(comm);
        EXPECT_OK(ncclCommDestroy(comm));
      },
      options);
}

bool CanBeMapped(ncclComm_t comm, void* memory, size_t bytes) {
  ncclWindow_t window = nullptr;
  if (ncclCommWindowRegister(comm, memory, bytes, &window, NCCL_WIN_COLL_SYMMETRIC) != ncclSuccess) return false;
  EXPECT_OK(ncclCommWindowDeregister(comm, window));
  return true;
}

int InChild(const std::function<int()>& body, const std::function<void()>& meanwhile) {
  const pid_t pid = fork();
  if (pid == 0) {
    alarm(40);
    _exit(body());
  }
  if (meanwhile) meanwhile();
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// Words of 8 bytes, the rest as the first bytes of another.
void Fill(void* memory, size_t bytes, uint64_t seed) {
  auto* const to = static_cast<char*>(memory);
  for (size_t at = 0; at < bytes; at += sizeof(uint64_t)) {
    const uint64_t word = seed * 0x9e3779b97f4a7c15u + at;
    std::memcpy(to + at, &word, std::min(sizeof word, bytes - at));
  }
}

size_t CountWrong(const void* memory, size_t bytes, uint64_t seed) {
  const auto* const from = static_cast<const char*>(memory);
  size_t wrong = 0;
  for (size_t at = 0; at < bytes; at += sizeof(uint64_t)) {
    const uint64_t word = seed * 0x9e3779b97f4a7c15u + at;
    wrong += std::memcmp(from + at, &word, std::min(sizeof word, bytes - at)) != 0;
  }
  return wrong;
}

int64_t TouchedSharedMemory() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    int64_t kib = 0;
    if (word == "RssShmem:" && status >> kib) return kib * 1024;
  }
  return -1;
}

}  // namespace axccl::test
