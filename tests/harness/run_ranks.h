// Runs ranks of a test as processes, threads, or several in one thread, under a hard deadline.
//
// RunRanks forks `layout.processes` children; each makes `layout.threads` threads; each thread runs `body` once with a
// RankContext that stands for `layout.ranks` consecutive ranks. The test process itself never runs `body` and so never
// touches the library: it can always fork again, and a crash or a hang costs one run, not the whole program.
//
// In `body` use GoogleTest's assertions as usual: every failure is passed to the test process together with the rank
// and its last step. Once a rank has failed, the others get a short grace and are then killed. At the deadline all are
// killed, and the failure names every rank's last step. The deadline does not count the time for which the run's
// threads could run but had no core (starvation.h), up to four times its length.
//
// Everything that a run shares (steps, cells, barriers) is in one anonymous shared mapping made before the fork. Its
// atomics are sequentially consistent; waiting is on a futex, and ends with `false` once any rank has failed.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace axccl::harness {

// The distribution of ranks: processes x threads of a process x ranks of a thread; rank r = (process * threads +
// thread) * ranks + i.
struct Layout {
  int processes = 1;
  int threads = 1;
  int ranks = 1;

  int nranks() const { return processes * threads * ranks; }
  std::string Text() const;  // "4p1t1r"
};

inline Layout Processes(int n) { return {n, 1, 1}; }
inline Layout Threads(int n) { return {1, n, 1}; }
inline Layout OneThread(int n) { return {1, 1, n}; }

class Containers;
class TestHosts;

struct RunOptions {
  // Time for the whole run, besides that without a core; sanitizers get more (see TimeScale).
  std::chrono::milliseconds deadline{20000};
  // Set in the children before `body`, on top of AXCCL_DEVICE=host (or what AXCCL_TEST_DEVICE says) and, unless it is
  // set, AXCCL_NET_MEASURE=never. An empty value unsets.
  std::vector<std::pair<std::string, std::string>> environment;
  // Process p runs on host p % hosts->size(), and the library uses that host's network. Null: all on this machine.
  const TestHosts* hosts = nullptr;
  // Process p runs in container p % containers->size(). Null: in none.
  const Containers* containers = nullptr;
};

namespace internal {
struct Shared;
}

// One thread's view of a run. Used by that thread only, except where said.
class RankContext {
 public:
  int nranks() const { return layout_.nranks(); }
  int first_rank() const { return first_; }
  int local_ranks() const { return layout_.ranks; }
  // The rank, where a thread has only one.
  int rank() const { return first_; }
  const Layout& layout() const { return layout_; }

  // Records what the thread is about to do, for the report of a hang. Returns false once any rank has failed.
  [[gnu::format(printf, 2, 3)]] bool Step(const char* format, ...);
  // Records a failure of this thread without GoogleTest.
  void Fail(const std::string& text);
  // True once any thread of the run has failed.
  bool AnyFailed() const;

  // Waits until `parties` threads (0: all of the run) have called with the same id. Returns false when a rank has
  // failed.
  bool Barrier(int id = 0, int parties = 0);
  // 64 shared words, zero at first. Await waits until the word is non-zero and returns it; 0 when a rank has failed.
  void Set(int cell, uint64_t value);
  uint64_t Get(int cell) const;
  uint64_t Await(int cell);
  // A shared byte area of kBoardBytes; what is written before a Barrier or Set can be read after it.
  static constexpr size_t kBoardBytes = size_t{1} << 20;
  std::byte* board() const;

  // Ends this process as SIGKILL does; the run does not count it as a failure. Does not return.
  [[noreturn]] void Die();
  // Stops this process as SIGSTOP does. Another rank is to kill it; the run does not count that as a failure.
  [[noreturn]] void Freeze();

 private:
  friend class Runner;
  RankContext(internal::Shared* shared, const Layout& layout, int first, int thread)
      : shared_(shared), layout_(layout), first_(first), thread_(thread) {}

  internal::Shared* shared_;
  Layout layout_;
  int first_;
  int thread_;  // index over all processes
};

using Body = std::function<void(RankContext&)>;

// Runs and returns what went wrong, one text per failed rank or process; empty if nothing did.
std::vector<std::string> RunRanksReport(const Layout& layout, const Body& body, const RunOptions& options = {});
// Runs and adds a GoogleTest failure for each of those texts. Skips the test where the GPUs lack what it sets
// (gpus_here.h).
void RunRanks(const Layout& layout, const Body& body, const RunOptions& options = {});

// The factor by which everything may take longer under a sanitizer: 1 without.
int TimeScale();
// Whether AXCCL_TEST_FULL=1 selects the large grids, and complete instead of sampled tests.
bool FullTests();
// Whether AXCCL_TEST_ALL=1 (or FULL) selects what is otherwise sampled: all cases of a test, and all tests of a CTest
// entry for which AXCCL_TEST_ONE_OF=n has the seed draw every nth one.
bool AllTests();
// Whether a test that samples its cases runs this one: AllTests() selects all, otherwise the seed draws half of them,
// or one in `one_in`.
bool IsSampled(uint64_t a, uint64_t b, uint64_t one_in = 2);

}  // namespace axccl::harness
