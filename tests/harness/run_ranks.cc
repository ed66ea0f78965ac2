#include "tests/harness/run_ranks.h"

#include <fcntl.h>
#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>
#include <linux/futex.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>
#include <thread>

#include "tests/harness/containers.h"
#include "tests/harness/gpus_here.h"
#include "tests/harness/networks.h"
#include "tests/harness/random.h"
#include "tests/harness/starvation.h"
#include "tests/harness/test_hosts.h"

#if defined(__SANITIZE_THREAD__)
#define AXCCL_TEST_TIME_SCALE 8
// Otherwise every process of the tests would sleep for a second before it ends. Weak: a test may have options of its
// own.
extern "C" __attribute__((weak, visibility("default"))) const char* __tsan_default_options() {
  return "atexit_sleep_ms=20";
}
#elif defined(__SANITIZE_ADDRESS__)
#define AXCCL_TEST_TIME_SCALE 4
#else
#define AXCCL_TEST_TIME_SCALE 1
#endif

namespace axccl::harness {
namespace internal {

constexpr int kMaxThreads = 288;
constexpr int kCells = 64;
constexpr int kBarriers = 16;
constexpr size_t kStepBytes = 240;
constexpr size_t kFailureBytes = 4000;

struct Slot {
  std::atomic<int> state{0};  // 0 not started, 1 running, 2 done, 3 meant to die
  char step[kStepBytes] = {};
  std::atomic<size_t> failure_bytes{0};
  char failures[kFailureBytes] = {};
};

struct Shared {
  std::atomic<uint32_t> changes{0};  // futex word: something that a thread may wait for has changed
  std::atomic<uint32_t> failed{0};
  std::atomic<uint64_t> cells[kCells] = {};
  std::atomic<uint32_t> arrived[kBarriers] = {};
  int alarm = -1;  // write end of the pipe that wakes the test process
  Slot slots[kMaxThreads];
  alignas(4096) std::byte board[RankContext::kBoardBytes];

  void Announce() {
    changes.fetch_add(1);
    syscall(SYS_futex, &changes, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
  }
  // Waits until `done`; returns false when a rank has failed first.
  template <class Done>
  bool AwaitUntil(Done done) {
    for (;;) {
      const uint32_t seen = changes.load();
      if (done()) return true;
      if (failed.load() != 0) return false;
      syscall(SYS_futex, &changes, FUTEX_WAIT, seen, nullptr, nullptr, 0);
    }
  }
};

}  // namespace internal

namespace {

using internal::Shared;
using internal::Slot;
using Clock = std::chrono::steady_clock;

// Exit status of a child whose rank has reported what failed; any other status but 0 needs a report of its own (for
// example a sanitizer's).
constexpr int kToldExit = 9;

// Ranks that wait for a failed one are no longer useful, but may still have something to report.
constexpr std::chrono::seconds kGrace{3};
// A run gets the time for which its threads have waited for a core in addition, up to this multiple of its own.
constexpr int kMostForCores = 4;

void ApplyEnvironment(const RunOptions& options) {
  const char* device = getenv("AXCCL_TEST_DEVICE");
  setenv("AXCCL_DEVICE", device != nullptr ? device : "host", 1);
  setenv("AXCCL_NET_MEASURE", "never", 0);  // the choice of plans must not depend on how busy the machine is
  for (const auto& [name, value] : options.environment) {
    if (value.empty()) {
      unsetenv(name.c_str());
    } else {
      setenv(name.c_str(), value.c_str(), 1);
    }
  }
}

std::string Describe(const testing::TestPartResult& result) {
  const char* file = result.file_name() == nullptr ? "?" : result.file_name();
  return std::string(file) + ":" + std::to_string(result.line_number()) + ": " + result.message();
}

}  // namespace

// ---- RankContext ----

std::string Layout::Text() const {
  return std::to_string(processes) + "p" + std::to_string(threads) + "t" + std::to_string(ranks) + "r";
}

bool RankContext::Step(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(shared_->slots[thread_].step, internal::kStepBytes, format, arguments);
  va_end(arguments);
  return !AnyFailed();
}

void RankContext::Fail(const std::string& text) {
  Slot& slot = shared_->slots[thread_];
  const size_t used = slot.failure_bytes.load();
  const size_t room = internal::kFailureBytes - used;
  const std::string line = "  " + text + "\n";
  const size_t bytes = std::min(room, line.size());
  std::memcpy(slot.failures + used, line.data(), bytes);
  slot.failure_bytes.store(used + bytes);
  if (shared_->failed.exchange(1) == 0) {
    [[maybe_unused]] const ssize_t written = write(shared_->alarm, "!", 1);
  }
  shared_->Announce();
}

bool RankContext::AnyFailed() const { return shared_->failed.load() != 0; }

bool RankContext::Barrier(int id, int parties) {
  const uint32_t all = static_cast<uint32_t>(parties == 0 ? layout_.processes * layout_.threads : parties);
  const uint32_t ticket = shared_->arrived[id].fetch_add(1);
  const uint32_t target = (ticket / all + 1) * all;
  shared_->Announce();
  return shared_->AwaitUntil([&] { return shared_->arrived[id].load() >= target; });
}

void RankContext::Set(int cell, uint64_t value) {
  shared_->cells[cell].store(value);
  shared_->Announce();
}

uint64_t RankContext::Get(int cell) const { return shared_->cells[cell].load(); }

uint64_t RankContext::Await(int cell) {
  shared_->AwaitUntil([&] { return shared_->cells[cell].load() != 0; });
  return shared_->cells[cell].load();
}

std::byte* RankContext::board() const { return shared_->board; }

void RankContext::Die() {
  shared_->slots[thread_].state.store(3);
  kill(getpid(), SIGKILL);
  for (;;) pause();
}

void RankContext::Freeze() {
  shared_->slots[thread_].state.store(3);
  kill(getpid(), SIGSTOP);
  for (;;) pause();
}

// ---- Runner ----

class Runner {
 public:
  Runner(const Layout& layout, const Body& body, const RunOptions& options)
      : layout_(layout), body_(body), options_(options) {}
  ~Runner();

  std::vector<std::string> Run();

 private:
  struct Child {
    pid_t pid = -1;
    int pidfd = -1;
    int status = 0;
    bool killed_here = false;
  };

  bool Prepare(std::string* error);
  void Start(int process);
  [[noreturn]] void ChildMain(int process);
  void ThreadMain(int thread);
  Clock::duration WaitedForCores();
  void AwaitChildren();
  void Reap(Child* child);
  void KillRest();
  std::string ReportOf(int thread) const;
  std::string ExitOf(int process) const;
  std::vector<std::string> Collect();

  const Layout layout_;
  const Body& body_;
  const RunOptions& options_;
  const pid_t parent_ = getpid();
  Shared* shared_ = nullptr;
  int alarm_read_ = -1;
  std::vector<Child> children_;
  bool timed_out_ = false;
  Clock::duration waited_for_cores_{};
};

Runner::~Runner() {
  if (alarm_read_ >= 0) close(alarm_read_);
  if (shared_ == nullptr) return;
  if (shared_->alarm >= 0) close(shared_->alarm);
  munmap(shared_, sizeof(Shared));
}

bool Runner::Prepare(std::string* error) {
  if (layout_.processes * layout_.threads > internal::kMaxThreads) {
    *error = "too many threads in one run";
    return false;
  }
  void* memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    *error = std::string("mmap of the shared page: ") + std::strerror(errno);
    return false;
  }
  shared_ = new (memory) Shared;
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    *error = std::string("pipe2: ") + std::strerror(errno);
    return false;
  }
  alarm_read_ = ends[0];
  shared_->alarm = ends[1];
  return true;
}

void Runner::ThreadMain(int thread) {
  RankContext context(shared_, layout_, thread * layout_.ranks, thread);
  shared_->slots[thread].state.store(1);
  testing::TestPartResultArray results;
  {
    testing::ScopedFakeTestPartResultReporter reporter(
        testing::ScopedFakeTestPartResultReporter::INTERCEPT_ONLY_CURRENT_THREAD, &results);
    body_(context);
  }
  for (int i = 0; i < results.size(); ++i) {
    if (results.GetTestPartResult(i).failed()) context.Fail(Describe(results.GetTestPartResult(i)));
  }
  shared_->slots[thread].state.store(2);
}

// AXCCL_TEST_HOSTS=n: processes share memory only with every n-th other one, as if on n machines.
int PretendedHosts() {
  const char* const hosts = std::getenv("AXCCL_TEST_HOSTS");
  return hosts == nullptr ? 1 : std::atoi(hosts);
}

void PretendHost(int process) {
  const int hosts = PretendedHosts();
  if (hosts > 1) setenv("NCCL_HOSTID", ("pretended-" + std::to_string(process % hosts)).c_str(), 1);
}

class NetworksForPretendedHosts : public testing::Environment {
 public:
  void SetUp() override {
    if (PretendedHosts() > 1 && access(kNetworks, F_OK) != 0) GTEST_SKIP() << kNoNetworks;
  }
};
[[maybe_unused]] const auto* const g_networks = testing::AddGlobalTestEnvironment(new NetworksForPretendedHosts);

void Runner::ChildMain(int process) {
  // If a test is killed, its ranks die with it.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  // The parent is not visible from inside a container.
  if (getppid() != (options_.containers == nullptr ? parent_ : 0)) std::exit(kToldExit);
  if (options_.hosts != nullptr) {
    setenv("NCCL_SOCKET_IFNAME", TestHosts::kInterface, 1);
    setenv("NCCL_NET", "Socket", 1);  // an adapter of the real machine would bypass the pretended hosts
    if (!options_.hosts->Enter(process % options_.hosts->size())) std::exit(1);
  }
  ApplyEnvironment(options_);
  PretendHost(process);
  std::vector<std::thread> threads;
  for (int i = 1; i < layout_.threads; ++i) {
    threads.emplace_back([this, thread = process * layout_.threads + i] { ThreadMain(thread); });
  }
  ThreadMain(process * layout_.threads);
  for (std::thread& thread : threads) thread.join();
  // Failed assertions on threads that `body` has started itself are not intercepted; they have been printed.
  if (testing::Test::HasFailure()) {
    RankContext context(shared_, layout_, process * layout_.threads * layout_.ranks, process * layout_.threads);
    context.Fail("an assertion failed on a thread of the test's own; see above");
  }
  // exit, not _exit: the library must survive static destruction, and sanitizers report at exit.
  std::exit(shared_->failed.load() != 0 ? kToldExit : 0);
}

void Runner::Start(int process) {
  const Containers* const containers = options_.containers;
  const pid_t pid = containers == nullptr ? fork() : containers->Fork(process % containers->size());
  if (pid == 0) ChildMain(process);
  Child& child = children_.emplace_back();
  child.pid = pid;
  if (pid > 0) child.pidfd = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
}

void Runner::Reap(Child* child) {
  while (waitpid(child->pid, &child->status, 0) < 0 && errno == EINTR) {
  }
  close(child->pidfd);
  child->pidfd = -1;
}

void Runner::KillRest() {
  if (const char* hold = std::getenv("AXCCL_TEST_HOLD"); hold != nullptr && hold[0] == '1') {
    std::fprintf(stderr, "AXCCL_TEST_HOLD: stuck ranks are left for a debugger; press enter to go on\n");
    std::getchar();
  }
  for (Child& child : children_) {
    if (child.pidfd < 0) continue;
    child.killed_here = true;
    kill(child.pid, SIGKILL);
    Reap(&child);
  }
}

// By all threads of the run, so never less than what it has lost by that.
Clock::duration Runner::WaitedForCores() {
  std::chrono::nanoseconds sum(0);
  for (const Child& child : children_) {
    if (child.pidfd >= 0) sum += harness::WaitedForCores(child.pid);
  }
  return waited_for_cores_ = std::max<Clock::duration>(waited_for_cores_, sum);
}

void Runner::AwaitChildren() {
  const auto time = options_.deadline * TimeScale();
  const auto began = Clock::now();
  auto deadline = began + time;
  bool alarmed = false;
  for (;;) {
    std::vector<pollfd> waits;
    for (const Child& child : children_) {
      if (child.pidfd >= 0) waits.push_back({child.pidfd, POLLIN, 0});
    }
    if (waits.empty()) return;
    if (!alarmed) waits.push_back({alarm_read_, POLLIN, 0});
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    const int ready = left > 0 ? poll(waits.data(), waits.size(), static_cast<int>(left) + 1) : 0;
    if (ready == 0) {
      const auto extended = began + time + std::min<Clock::duration>(WaitedForCores(), kMostForCores * time);
      if (!alarmed && extended > std::max(deadline, Clock::now())) {
        deadline = extended;
        continue;
      }
      timed_out_ = !alarmed;
      return KillRest();
    }
    if (!alarmed && (waits.back().revents & POLLIN) != 0) {
      alarmed = true;
      deadline = std::min(deadline, Clock::now() + kGrace * TimeScale());
    }
    for (Child& child : children_) {
      pollfd wait{child.pidfd, POLLIN, 0};
      if (child.pidfd < 0 || poll(&wait, 1, 0) != 1) continue;
      Reap(&child);
      // A rank that crashed leaves the others waiting, just as one that failed does.
      const bool meant = shared_->slots[static_cast<size_t>(&child - children_.data()) * layout_.threads].state == 3;
      if (child.status == 0 || meant || alarmed) continue;
      alarmed = true;
      shared_->failed.store(1);
      shared_->Announce();
      deadline = std::min(deadline, Clock::now() + kGrace * TimeScale());
    }
  }
}

std::string Runner::ExitOf(int process) const {
  const Child& child = children_[process];
  if (child.pid < 0) return "could not be forked";
  if (child.killed_here && !timed_out_) return "killed after another rank failed";
  if (child.killed_here) {
    const auto waited = std::chrono::duration_cast<std::chrono::milliseconds>(waited_for_cores_);
    return "hung and was killed at the deadline; all threads together waited " + std::to_string(waited.count()) +
           " ms for a core";
  }
  if (WIFSIGNALED(child.status)) return std::string("died of signal ") + strsignal(WTERMSIG(child.status));
  return "exited with status " + std::to_string(WEXITSTATUS(child.status));
}

std::string Runner::ReportOf(int thread) const {
  const Slot& slot = shared_->slots[thread];
  std::string text = "rank " + std::to_string(thread * layout_.ranks) + " of " + layout_.Text();
  text += std::string(slot.state == 2 ? " (done)" : slot.state == 1 ? " (running)" : "") + ", last step \"";
  text += std::string(slot.step, strnlen(slot.step, internal::kStepBytes)) + "\"";
  const size_t bytes = slot.failure_bytes.load();
  if (bytes > 0) text += ":\n" + std::string(slot.failures, bytes);
  return text;
}

std::vector<std::string> Runner::Collect() {
  bool failed = timed_out_;
  for (int p = 0; p < layout_.processes; ++p) {
    const int first = p * layout_.threads;
    bool meant_to_die = false;
    for (int i = 0; i < layout_.threads; ++i) meant_to_die |= shared_->slots[first + i].state == 3;
    if (children_[p].status != 0 && !meant_to_die) failed = true;
  }
  if (!failed && shared_->failed == 0) return {};
  std::vector<std::string> texts;
  for (int p = 0; p < layout_.processes; ++p) {
    for (int i = 0; i < layout_.threads; ++i) {
      const int thread = p * layout_.threads + i;
      const Slot& slot = shared_->slots[thread];
      const int status = children_[p].status;
      const bool quiet = status == 0 || (WIFEXITED(status) && WEXITSTATUS(status) == kToldExit);
      if (slot.failure_bytes == 0 && slot.state >= 2 && quiet) continue;
      texts.push_back(ReportOf(thread) + " [process " + ExitOf(p) + "]");
    }
  }
  if (texts.empty()) texts.push_back("the run failed, but no rank said why");
  return texts;
}

std::vector<std::string> Runner::Run() {
  std::string error;
  if (!Prepare(&error)) return {error};
  Seed();  // drawn before the fork, so that all ranks have the same seed
  std::fflush(nullptr);
  for (int p = 0; p < layout_.processes; ++p) Start(p);
  AwaitChildren();
  return Collect();
}

std::vector<std::string> RunRanksReport(const Layout& layout, const Body& body, const RunOptions& options) {
  return Runner(layout, body, options).Run();
}

void RunRanks(const Layout& layout, const Body& body, const RunOptions& options) {
  if (const std::string lack = GpusHere::Get().Lack(options.environment); !lack.empty()) GTEST_SKIP() << lack;
  const std::vector<std::string> texts = RunRanksReport(layout, body, options);
  for (const std::string& text : texts) ADD_FAILURE() << text;
  if (!texts.empty()) ADD_FAILURE() << "replay with AXCCL_TEST_SEED=" << Seed();
}

int TimeScale() { return AXCCL_TEST_TIME_SCALE; }

bool FullTests() {
  const char* value = std::getenv("AXCCL_TEST_FULL");
  return value != nullptr && value[0] == '1';
}

bool AllTests() {
  const char* value = std::getenv("AXCCL_TEST_ALL");
  return FullTests() || (value != nullptr && value[0] == '1');
}

bool IsSampled(uint64_t a, uint64_t b, uint64_t one_in) { return AllTests() || Scramble(Seed(), a, b) % one_in == 0; }

namespace {

// GoogleTest chooses the tests when main runs them.
[[maybe_unused]] const bool takes_some = [] {
  const char* const text = std::getenv("AXCCL_TEST_ONE_OF");
  const uint64_t one_of = text == nullptr ? 1 : std::strtoull(text, nullptr, 10);
  if (one_of < 2 || AllTests()) return false;
  setenv("GTEST_TOTAL_SHARDS", std::to_string(one_of).c_str(), 1);
  setenv("GTEST_SHARD_INDEX", std::to_string(Seed() % one_of).c_str(), 1);
  return true;
}();

}  // namespace

}  // namespace axccl::harness
