// Every call that can fail for lack of memory, mappings, descriptors or threads fails once, the k-th of its kind, for k
// = 1, 2, ... until none is left, while two ranks execute all of faulty_round.h: as threads of a process, or as
// processes, one of which has the fault; blocking or not. Afterwards nothing is left open, and the same processes do
// the same again without a fault.
//
// POSIX lets any of these calls fail at any time.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>
#include <thread>
#include <tuple>

#include "tests/api/failing_calls.h"
#include "tests/api/faulty_round.h"
#include "tests/harness/run_ranks.h"

namespace axccl::test {
namespace {

// The two ranks' threads start before the fault is armed: it must hit the library.
bool RunThreads(Round* round, Failing kind, long k, long* calls) {
  std::atomic<bool> go{false};
  const auto body = [&](int rank) {
    while (!go) Nap();
    Rank(round, rank).Run();
  };
  std::thread first(body, 0), second(body, 1);
  Arm(kind, k);
  go = true;
  first.join();
  second.join();
  const bool fault = HasFailed();
  *calls = Disarm();
  if (round->failed && !fault) Die("a round failed without a fault");
  return !round->failed;
}

bool RunProcess(Round* round, int rank, Failing kind, long k, long* calls) {
  Arm(kind, k);
  Rank(round, rank).Run();
  *calls = Disarm();
  while (round->ended != kRanks) Nap();
  return !round->failed;
}

// A process's report of its two rounds.
struct Report {
  std::atomic<bool> whole{false};
  long calls = 0;  // of the kind, in the round with the fault
  bool fired = false;
  Held held;
};

// In memory that all processes share.
struct Shared {
  Round round[2];  // with the fault, then without
  Report report[kRanks];
};

class Experiment {
 public:
  Experiment(Ways ways, int victim) : ways_(ways), victim_(victim) {
    shared_ = new (mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) Shared;
    for (Round& round : shared_->round) round.ways = ways;
  }
  ~Experiment() { munmap(shared_, sizeof(Shared)); }
  Experiment(const Experiment&) = delete;
  Experiment& operator=(const Experiment&) = delete;

  // Runs separate processes: a round with the fault, then one without. Held is measured afterwards.
  bool Run(Failing kind, long k, const Held* usual) {
    pid_t pids[kRanks];
    const int processes = ways_.processes ? kRanks : 1;
    for (int p = 0; p < processes; ++p) {
      pids[p] = fork();
      if (pids[p] != 0) continue;
      alarm(kSeconds);
      RunRounds(p, kind, k, usual);
      _exit(0);
    }
    bool good = true;
    for (int p = 0; p < processes; ++p) good &= EndedWell(pids[p], p, kind, k);
    return good;
  }

  const Report& report() const { return shared_->report[ways_.processes ? victim_ : 0]; }

 private:
  void RunRounds(int process, Failing kind, long k, const Held* usual) {
    Report& report = shared_->report[process];
    const bool has_fault = !ways_.processes || process == victim_;
    RunRound(&shared_->round[0], process, has_fault ? kind : Failing::kNone, k, &report.calls);
    report.fired = HasFailed();
    long calls;
    if (!RunRound(&shared_->round[1], process, Failing::kNone, 0, &calls))
      Die("after the fault, the library does not work: %s", ncclGetLastError(nullptr));
    report.held = usual != nullptr ? Held::WhenWithin(*usual) : Held();
    report.whole = true;
  }

  bool RunRound(Round* round, int process, Failing kind, long k, long* calls) {
    return ways_.processes ? RunProcess(round, process, kind, k, calls) : RunThreads(round, kind, k, calls);
  }

  bool EndedWell(pid_t pid, int process, Failing kind, long k) {
    int status = 0;
    waitpid(pid, &status, 0);
    const std::string what =
        std::string(NameOf(kind)) + " number " + std::to_string(k) + ", process " + std::to_string(process);
    if (WIFSIGNALED(status))
      ADD_FAILURE() << what << ": the process ended by signal " << WTERMSIG(status) << " ("
                    << strsignal(WTERMSIG(status)) << (WTERMSIG(status) == SIGALRM ? ", a call never returned)" : ")");
    else
      EXPECT_TRUE(shared_->report[process].whole && status == 0) << what << ": see the line above";
    return status == 0;
  }

  const Ways ways_;
  const int victim_;
  Shared* shared_;
};

struct Setting {
  Failing kind;
  Ways ways;
  int victim;   // if ranks are processes
  int samples;  // number of values of k, if not all are tested
};

std::string NameOfSetting(const Setting& setting) {
  std::string name = NameOf(setting.kind);
  if (setting.ways.blocking) name += "_blocking";
  if (setting.ways.processes) name += "_in_process_" + std::to_string(setting.victim);
  return name;
}

class KthFailure : public testing::TestWithParam<Setting> {};

TEST_P(KthFailure, IsAnErrorAndTheLibraryWorksAfterwards) {
  const Setting& setting = GetParam();
  const Failing kind = setting.kind;
  const bool bounded = setting.ways.blocking || setting.ways.processes;
  setenv("AXCCL_DEVICE", "host", 1);
  setenv("NCCL_SOCKET_IFNAME", "lo", 1);
  // The other rank may have failed without reporting it, so waits need a deadline.
  if (bounded) setenv("AXCCL_INIT_TIMEOUT", "2", 1);
  if (bounded) setenv("AXCCL_TIMEOUT", "2", 1);
  Experiment without(setting.ways, setting.victim);
  ASSERT_TRUE(without.Run(kind, 0, nullptr));
  Held usual = without.report().held;
  // A peer's heap stays mapped (in three windows) until the next communicator if the peer released it after this
  // process did.
  if (setting.ways.processes) usual.mappings = 4;
  const long usual_calls = without.report().calls;
  ASSERT_GT(usual_calls, 0) << "the library no longer calls it";
  const bool all = harness::FullTests();
  // Otherwise only some: the first ones create what lives as long as the process.
  const long step = all ? 1 : std::max(1L, usual_calls / setting.samples);
  long faults = 0;
  bool fired = false;
  for (long k = 1; k <= usual_calls || (all && fired); k += step) {
    Experiment with(setting.ways, setting.victim);
    if (!with.Run(kind, k, &usual)) continue;
    const Held& held = with.report().held;
    fired = with.report().fired;
    faults += fired;
    EXPECT_TRUE(held.Within(usual)) << NameOf(kind) << " number " << k << ": " << held.descriptors << " descriptors, "
                                    << held.threads << " threads, " << held.mappings
                                    << " shared mappings are left; usual are " << usual.descriptors << ", "
                                    << usual.threads << ", " << usual.mappings;
  }
  std::printf("%s: %ld calls in a round, %ld made to fail\n", NameOfSetting(setting).c_str(), usual_calls, faults);
}

constexpr Failing kKinds[] = {Failing::kMmap,     Failing::kMemfd,  Failing::kSocket, Failing::kEpollCreate,
                              Failing::kEpollCtl, Failing::kThread, Failing::kMalloc};

std::vector<Setting> Settings() {
  std::vector<Setting> settings;
  for (const Failing kind : kKinds) settings.push_back({kind, {}, 0, 120});
  for (const Failing kind : kKinds) {
    settings.push_back({kind, {false, true}, 0, 6});
    for (const bool blocking : {false, true}) {
      for (const int victim : {0, 1}) settings.push_back({kind, {true, blocking}, victim, 3});
    }
  }
  return settings;
}

INSTANTIATE_TEST_SUITE_P(Calls, KthFailure, testing::ValuesIn(Settings()),
                         [](const auto& info) { return NameOfSetting(info.param); });

}  // namespace
}  // namespace axccl::test
