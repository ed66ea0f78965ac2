// Memory that runs out for a moment while a rank waits for another: the waiting rank cannot check on its peers then.
// Both ranks' calls end, with right data or an error, and the process continues.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "axccl/axccl.h"
#include "nccl.h"
#include "tests/api/failing_calls.h"

namespace axccl::test {
namespace {

constexpr int kRanks = 2;
constexpr unsigned kSeconds = 60;  // for a process, which takes a second at most

[[noreturn]] void Die(const char* call, ncclResult_t result, const char* text) {
  Disarm();
  std::fprintf(stderr, "%s returned %d: %s\n", call, result, text);
  _exit(1);
}

void Nap() {
  const timespec time{0, 200000};
  nanosleep(&time, nullptr);
}

// Two ranks as threads. Rank 0 waits for rank 1 and checks now and then whether it is alive; the k-th malloc of these
// checks fails. Then rank 1 makes the call, too.
class Waiting {
 public:
  Waiting(bool in_split, long k) : in_split_(in_split), k_(k) {}

  void Run() {
    std::thread first([this] { RunRank(0); }), second([this] { RunRank(1); });
    first.join();
    second.join();
  }

 private:
  static void Expect(ncclResult_t result, const char* call) {
    if (result != ncclSuccess) Die(call, result, ncclGetLastError(nullptr));
  }
  void Meet() {
    const int turn = met_.fetch_add(1) / kRanks + 1;
    while (met_ < turn * kRanks) Nap();
  }
  ncclComm_t Join(int rank) {
    if (rank == 0) Expect(ncclGetUniqueId(&id_), "ncclGetUniqueId");
    Meet();
    ncclComm_t comm = nullptr;
    Expect(ncclCommInitRank(&comm, kRanks, id_, rank), "ncclCommInitRank");
    return comm;
  }
  // `sum` outlives the communicator: a wait that fails for want of memory does not end the reduction.
  ncclResult_t Call(ncclComm_t comm, int rank, int* sum) const {
    *sum = 1;
    ncclComm_t made = nullptr;
    ncclResult_t result = ncclSuccess;
    if (in_split_) {
      result = ncclCommSplit(comm, 0, rank, &made, nullptr);
      if (result == ncclSuccess) Expect(ncclCommDestroy(made), "ncclCommDestroy");
    } else {
      result = ncclAllReduce(sum, sum, 1, ncclInt32, ncclSum, comm, nullptr);
      if (result == ncclSuccess) result = axcclStreamSynchronize(nullptr);
      if (result == ncclSuccess && *sum != kRanks) Die("ncclAllReduce", result, "a wrong sum");
    }
    return result;
  }

  void RunRank(int rank) {
    int reduced = 0;
    ncclComm_t comm = Join(rank);
    Expect(Call(comm, rank, &reduced), "the first call");  // creates what lives as long as the communicator
    Meet();
    if (rank == 0) Arm(Failing::kMalloc, 0);
    Meet();
    Expect(Call(comm, rank, &reduced), "the second call");
    Meet();
    // After more mallocs than a whole call takes, rank 0 can only be waiting.
    if (rank == 0) Arm(Failing::kMalloc, Disarm() + k_);
    Meet();
    if (rank == 1) {
      while (!HasFailed()) Nap();
      Disarm();
    }
    const ncclResult_t result = Call(comm, rank, &reduced);
    if (result != ncclSuccess && *ncclGetLastError(nullptr) == '\0') Die("the last call", result, "no text");
    Meet();
    Expect(ncclCommAbort(comm), "ncclCommAbort");
    Meet();
    // Afterwards everything continues, also work that no thread waits for in the library.
    comm = Join(rank);
    int one = 1;
    std::atomic<int> sum{0};
    Expect(ncclAllReduce(&one, &sum, 1, ncclInt32, ncclSum, comm, nullptr), "ncclAllReduce");
    while (sum != kRanks) Nap();
    Expect(ncclCommDestroy(comm), "ncclCommDestroy");
    Meet();
  }

  const bool in_split_;
  const long k_;
  ncclUniqueId id_{};
  std::atomic<int> met_{0};
};

TEST(WaitingFailure, AffectsOnlyTheCall) {
  setenv("AXCCL_DEVICE", "host", 1);
  setenv("NCCL_SOCKET_IFNAME", "lo", 1);
  for (const bool in_split : {false, true}) {
    for (long k = 1; k <= 6; ++k) {
      const pid_t pid = fork();
      if (pid == 0) {
        alarm(kSeconds);
        Waiting(in_split, k).Run();
        _exit(0);
      }
      int status = 0;
      waitpid(pid, &status, 0);
      EXPECT_EQ(status, 0) << (in_split ? "split, " : "reduction, ") << "malloc number " << k << ": signal "
                           << WTERMSIG(status);
    }
  }
}

}  // namespace
}  // namespace axccl::test
