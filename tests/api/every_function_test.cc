// Every function that the library exports, while each of its calls of the C library that can fail does so, one at a
// time: memory, threads, mappings, descriptors. No exception leaves a C function, each error has a text, no group is
// left open, and the function works afterwards. kth_failure_test covers ranks in several threads and processes; GPUs
// are not covered. In a forked child, the same functions are refused.
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
#include <string_view>

#include "tests/api/every_function.h"
#include "tests/api/failing_calls.h"
#include "tests/api/faulty_round.h"
#include "tests/api/pipeline_calls.h"
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

// ---- in a forked child ----

// The beginnings of the names that serve every process.
constexpr const char* kServeForkedChildren[] = {
    "ncclGetVersion", "axcclGetVersion", "ncclGetErrorString", "ncclGetLastError",  "ncclResetDebugInit",
    "ncclParam",      "axcclParam",      "axcclMalloc",        "axcclCalloc",       "axcclRealloc",
    "axcclAligned",   "axcclFree",       "ncclTeam",           "ncclLLA2ACalcSlots"};

ncclResult_t ExpectedInChild(const ExportedFunction& function) {
  for (const char* const name : kServeForkedChildren) {
    if (std::string_view(function.name).starts_with(name)) return function.expected;
  }
  return ncclInvalidUsage;
}

// The functions that a way to call them (every_function.h) reaches through another one, which is refused first. The
// pipeline runs, and a group is open.
constexpr ExportedFunction kLaterOnes[] = {
    {"ncclSend", [](World& w) { return ncclSend(w.In(0), 1, ncclInt8, 1, w.comms[0], w.Stream(0)); }},
    {"ncclRecv", [](World& w) { return ncclRecv(w.Out(0), 1, ncclInt8, 1, w.comms[0], w.Stream(0)); }},
    {"axcclSend",
     [](World& w) {
       const axcclView_t in = w.InView(0, 1);
       return axcclSend(1, &in, 1, w.channels[0], nullptr, w.Stream(0));
     }},
    {"axcclRecv",
     [](World& w) {
       const axcclView_t out = w.OutView(0, 1);
       return axcclRecv(1, &out, 1, w.channels[0], nullptr, w.Stream(0));
     }},
    {"ncclCommSplit", [](World& w) { return ncclCommSplit(w.comms[0], 0, 0, &w.made.comm, nullptr); }},
    {"ncclCommGrow", [](World& w) { return ncclCommGrow(w.spare.comm, 2, &w.id, -1, &w.made.comm, nullptr); }},
    {"axcclPipelineStart", [](World& w) { return axcclPipelineStart(w.pipelines[0], w.Stream(0)); }},
    {"axcclPipelineReady", [](World& w) { return axcclPipelineReady(w.pipelines[0], 0); }},
    {"axcclPipelineStreamReady", [](World& w) { return axcclPipelineStreamReady(w.pipelines[0], 0, w.Stream(0)); }},
    {"axcclPipelineWait", [](World& w) { return axcclPipelineWait(w.pipelines[0], 0); }},
    {"axcclPipelineStreamWait", [](World& w) { return axcclPipelineStreamWait(w.pipelines[0], 0, w.Stream(0)); }},
    {"axcclPipelineTest",
     [](World& w) {
       int done = 0;
       return axcclPipelineTest(w.pipelines[0], 0, &done);
     }},
    {"axcclPipelineGetChunk",
     [](World& w) {
       axcclChunk_t chunk = AXCCL_CHUNK_INITIALIZER;
       return axcclPipelineGetChunk(w.pipelines[0], axcclIn, 0, &chunk);
     }},
    {"axcclPipelineGetFlags",
     [](World& w) {
       uint32_t* words = nullptr;
       return axcclPipelineGetFlags(w.pipelines[0], axcclIn, &words, nullptr);
     }},
    {"axcclPipelineGetInfo",
     [](World& w) {
       axcclPipelineInfo_t info{};
       info.size = sizeof(info);
       return axcclPipelineGetInfo(w.pipelines[0], &info);
     }},
    {"axcclPipelineFinish", [](World& w) { return axcclPipelineFinish(w.pipelines[0], w.Stream(0)); }},
    {"axcclPipelineDestroy", [](World& w) { return axcclPipelineDestroy(w.pipelines[0]); }},
    {"ncclGroupSimulateEnd", [](World&) { return ncclGroupSimulateEnd(nullptr); }},
    {"ncclGroupEnd", [](World&) { return ncclGroupEnd(); }},
};

// In a child of a process that has used the library.
void ExpectRefused(World& world, const ExportedFunction& function) {
  const pid_t pid = fork();
  if (pid == 0) {
    alarm(10);
    const ncclResult_t result = function.call(world), expected = ExpectedInChild(function);
    if (result != expected) Die("%s returned %d in a forked child, not %d", function.name, result, expected);
    if (expected == ncclInvalidUsage && std::strstr(ncclGetLastError(world.comms[0]), "was forked after") == nullptr)
      Die("%s: %s", function.name, ncclGetLastError(nullptr));
    _exit(0);
  }
  int status = 0;
  waitpid(pid, &status, 0);
  if (status != 0) Die("%s in a forked child: status %d", function.name, status);
}

void ForkEverywhere() {
  alarm(kSeconds);
  SetParameters({"", nullptr});
  World world;
  world.Repair();
  for (const ExportedFunction& function : EveryFunction()) ExpectRefused(world, function);
  const auto must = [](ncclResult_t result) {
    if (result != ncclSuccess) Die("the parent: %s", ncclGetLastError(nullptr));
  };
  must(StartPipelines(world));
  must(ncclGroupStart());
  for (const ExportedFunction& function : kLaterOnes) ExpectRefused(world, function);
  must(ncclGroupEnd());
  must(FinishPipelines(world, Awaits::kWait, Declares::kReady));
  _exit(0);
}

TEST(EveryFunction, IsRefusedInAForkedChild) {
  const pid_t pid = fork();
  if (pid == 0) ForkEverywhere();
  int status = 0;
  waitpid(pid, &status, 0);
  EXPECT_EQ(status, 0) << "see the line above";
}

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
