// Every function that the library exports, while each of its calls of the C library that can fail does so, one at a
// time: memory, threads, mappings, descriptors. No exception leaves a C function, each error has a text, no group is
// left open, and the function works afterwards. kth_failure_test covers ranks in several threads and processes; GPUs
// are not covered.
#include <gtest/gtest.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <new>
#include <set>
#include <sstream>
#include <string>

#include "tests/api/every_function.h"
#include "tests/api/failing_calls.h"
#include "tests/api/faulty_round.h"
#include "tests/harness/run_ranks.h"

namespace axccl::test {
namespace {

constexpr Failing kKinds[] = {Failing::kMalloc, Failing::kThread,      Failing::kMmap,    Failing::kMemfd,
                              Failing::kSocket, Failing::kEpollCreate, Failing::kEpollCtl};

// The progress of a process, in memory that its parent sees, too.
struct Progress {
  Failing kind = Failing::kNone;
  long k = 0;
  long faults = 0;
};

void Check(const ExportedFunction& function, ncclResult_t result, bool fault) {
  const bool answers_later = std::strstr(function.name, "Query") != nullptr;
  if (result == ncclInProgress && answers_later) return;
  if (result < 0 || result >= ncclNumResults || result == ncclInProgress) Die("it returned %d", result);
  if (!fault && result != function.expected)
    Die("without a fault it returned %d: %s", result, ncclGetLastError(nullptr));
  if (function.expected != ncclSuccess && result == ncclSuccess) Die("it returned ncclSuccess");
  if (result != ncclSuccess && *ncclGetLastError(nullptr) == '\0') Die("it returned %d without a text", result);
  if (ncclGroupEnd() != ncclInvalidUsage) Die("it left a group open");
}

// Called before the library reads any parameter.
void SetParameters(const ExportedFunction& function) {
  setenv("AXCCL_DEVICE", "host", 1);
  setenv("NCCL_SOCKET_IFNAME", "lo", 1);
  setenv("NCCL_DEBUG_FILE", "/dev/null", 1);  // every error is logged
  // No rank waits for one that has failed: the alarm comes long before these deadlines. But a rank that joins may fail
  // before it has met any other, and then no rank can know.
  setenv("AXCCL_TIMEOUT", "600", 1);
  setenv("AXCCL_INIT_TIMEOUT", std::strcmp(function.name, "ncclCommGrow") == 0 ? "2" : "600", 1);
}

// Up to the last call of each kind; if not `all`, the first ones and some later ones.
void MeetEachFault(const ExportedFunction& function, bool all, Progress* progress) {
  World world;
  for (const Failing kind : kKinds) {
    bool fault = true;
    for (long k = 1; fault; k += all ? 1 : 1 + k / 8) {
      world.Repair();
      progress->kind = kind;
      progress->k = k;
      Arm(kind, k);
      const ncclResult_t result = function.call(world);
      fault = HasFailed();
      Disarm();
      Check(function, result, fault);
      progress->faults += fault;
      // One of the ranks may be waiting for the other.
      if (result != function.expected) world.Close();
    }
  }
}

class EveryFunctionTest : public testing::TestWithParam<ExportedFunction> {};

TEST_P(EveryFunctionTest, TurnsFailuresIntoErrors) {
  const ExportedFunction& function = GetParam();
  auto* const progress =
      new (mmap(nullptr, sizeof(Progress), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) Progress;
  const bool all = harness::FullTests();
  const pid_t pid = fork();
  if (pid == 0) {
    alarm(all ? 10 * kSeconds : kSeconds);
    SetParameters(function);
    MeetEachFault(function, all, progress);
    _exit(0);
  }
  int status = 0;
  waitpid(pid, &status, 0);
  EXPECT_FALSE(WIFSIGNALED(status)) << "signal " << WTERMSIG(status) << " (" << strsignal(WTERMSIG(status)) << ")";
  EXPECT_EQ(status, 0) << function.name << ", " << NameOf(progress->kind) << " number " << progress->k
                       << ": see the line above";
  printf("%ld faults\n", progress->faults);
  munmap(progress, sizeof(Progress));
}

INSTANTIATE_TEST_SUITE_P(Calls, EveryFunctionTest, testing::ValuesIn(EveryFunction().begin(), EveryFunction().end()),
                         [](const auto& info) { return std::string(info.param.name); });

// Every exported function is called here.
TEST(EveryFunction, IsCalledHere) {
  std::set<std::string> exported, called;
  FILE* const pipe = popen("nm -D --defined-only '" AXCCL_TEST_LIBRARY "'", "r");
  ASSERT_NE(pipe, nullptr);
  char line[4096];
  while (fgets(line, sizeof(line), pipe) != nullptr) {
    std::istringstream in(line);
    std::string address, type, name;
    in >> address >> type >> name;
    // Each ncclX has pnccl and axccl_pnccl twins at the same address.
    if (name.starts_with("nccl") || (name.starts_with("axccl") && !name.starts_with("axccl_"))) exported.insert(name);
  }
  EXPECT_EQ(pclose(pipe), 0);
  for (const ExportedFunction& function : EveryFunction())
    EXPECT_TRUE(called.insert(function.name).second) << function.name << " is called twice";
  EXPECT_EQ(called, exported);
}

}  // namespace
}  // namespace axccl::test
