// Every call that may fail for want of memory, mappings, descriptors or threads fails once, the k-th of its kind, for
// k = 1, 2, ... until none is left: two ranks of a process make a communicator, split it, reduce, send and receive, and end
// all of it. Whatever fails, each call returns in time, with an error that has a text or with right data; nothing is left
// open; and the same process does the same again, without a fault this time.
//
// POSIX lets any of these calls fail at any time.
#include <dirent.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

#include "axccl/axccl.h"
#include "nccl.h"
#include "tests/api/failing_calls.h"
#include "tests/harness/run_ranks.h"

namespace axccl::test {
namespace {

constexpr int kRanks = 2;
constexpr size_t kCount = 1000;
constexpr unsigned kSeconds = 60;  // for a process, which takes milliseconds

// What the two ranks of a round share.
struct Round {
  ncclUniqueId id{};
  std::atomic<int> has_id{0};      // 1: yes, -1: there will be none
  std::atomic<bool> failed{false};  // one of them; the other gives up
  std::atomic<int> ended{0};
};

[[gnu::format(printf, 1, 2), noreturn]] void Die(const char* format, ...) {
  Disarm();
  va_list args;
  va_start(args, format);
  std::vfprintf(stderr, format, args);
  va_end(args);
  std::fputc('\n', stderr);
  _exit(1);
}

void Nap() {
  const timespec time{0, 200000};
  nanosleep(&time, nullptr);
}

class Rank {
 public:
  Rank(Round* round, int rank) : round_(round), rank_(rank) {}

  // Uses no memory of its own from malloc: the faults are for the library.
  void Run() {
    if (!Work()) round_->failed = true;
    // Ranks free what peers may still read only when all have ended.
    for (ncclComm_t& comm : comms_) {
      if (comm == nullptr) continue;
      if (round_->failed) {
        (void)ncclCommAbort(comm);
      } else if (!Good(ncclCommDestroy(comm), "ncclCommDestroy")) {
        round_->failed = true;
      }
    }
    if (stream_ != nullptr) (void)axcclStreamDestroy(stream_);
    round_->ended.fetch_add(1);
    while (round_->ended != kRanks) Nap();
    if (buffer_ != nullptr) (void)ncclMemFree(buffer_);
  }

 private:
  // An error must have a text and must come from a fault. False also when the other rank has failed.
  bool Good(ncclResult_t result, const char* call) {
    if (result == ncclSuccess) return true;
    if (result < 0 || result >= ncclNumResults || result == ncclInProgress) Die("%s returned %d", call, result);
    if (*ncclGetLastError(nullptr) == '\0') Die("%s returned %d without a text", call, result);
    if (!HasFailed()) Die("rank %d: %s, without a fault: %s", rank_, call, ncclGetLastError(nullptr));
    return false;
  }

  bool Await(ncclComm_t comm, ncclResult_t started, const char* call) {
    if (started != ncclInProgress) return Good(started, call);
    for (ncclResult_t now = ncclInProgress;; Nap()) {
      if (!Good(ncclCommGetAsyncError(comm, &now), "ncclCommGetAsyncError")) return false;
      if (now != ncclInProgress) return Good(now, call);
      if (round_->failed) return false;
    }
  }

  bool Meet() {
    if (rank_ == 0) {
      const bool made = Good(ncclGetUniqueId(&round_->id), "ncclGetUniqueId");
      round_->has_id = made ? 1 : -1;
    }
    while (round_->has_id == 0) Nap();
    return round_->has_id == 1;
  }

  bool Work() {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    if (!Meet()) return false;
    if (!Await(comms_[1], ncclCommInitRankConfig(&comms_[1], kRanks, round_->id, rank_, &config), "ncclCommInitRankConfig"))
      return false;
    if (!Await(comms_[0], ncclCommSplit(comms_[1], 0, rank_, &comms_[0], &config), "ncclCommSplit")) return false;
    if (!Good(axcclStreamCreate(&stream_, 0), "axcclStreamCreate")) return false;
    if (!Good(ncclMemAlloc(&buffer_, 2 * kCount * sizeof(int)), "ncclMemAlloc")) return false;
    return Reduce() && Exchange();
  }

  cudaStream_t Stream() const { return reinterpret_cast<cudaStream_t>(stream_); }

  // Waits for the stream. True: all is done, and the data is to be right.
  bool Done(ncclComm_t comm, ncclResult_t launched, const char* call) {
    if (!Await(comm, launched, call)) return false;
    // Where the other rank has failed, it may not even have a communicator to abort.
    for (ncclResult_t now; (now = axcclStreamQuery(stream_)) != ncclSuccess; Nap()) {
      if (now != ncclInProgress) return Good(now, "axcclStreamQuery");
      if (round_->failed) return false;
    }
    if (!Good(axcclStreamSynchronize(stream_), "axcclStreamSynchronize")) return false;
    ncclResult_t error = ncclSuccess;
    return Good(ncclCommGetAsyncError(comm, &error), "ncclCommGetAsyncError") && Good(error, call);
  }

  bool Reduce() {
    int* const data = static_cast<int*>(buffer_);
    for (size_t i = 0; i < kCount; ++i) data[i] = static_cast<int>(i) + rank_;
    const ncclResult_t launched = ncclAllReduce(data, data, kCount, ncclInt32, ncclSum, comms_[0], Stream());
    if (!Done(comms_[0], launched, "ncclAllReduce")) return false;
    for (size_t i = 0; i < kCount; ++i)
      if (data[i] != 2 * static_cast<int>(i) + 1) Die("rank %d: reduced element %zu is %d", rank_, i, data[i]);
    return true;
  }

  bool Exchange() {
    const int peer = 1 - rank_;
    int* const from = static_cast<int*>(buffer_);
    int* const to = from + kCount;
    for (size_t i = 0; i < kCount; ++i) from[i] = 7 * static_cast<int>(i) + rank_;
    if (!Good(ncclGroupStart(), "ncclGroupStart")) return false;
    bool good = Good(ncclSend(from, kCount, ncclInt32, peer, comms_[1], Stream()), "ncclSend");
    good &= Good(ncclRecv(to, kCount, ncclInt32, peer, comms_[1], Stream()), "ncclRecv");
    const ncclResult_t ended = ncclGroupEnd();
    if (!good) {
      if (ended == ncclSuccess) Die("a call of the group failed, and its end did not");
      return false;
    }
    if (!Done(comms_[1], ended, "ncclGroupEnd")) return false;
    for (size_t i = 0; i < kCount; ++i)
      if (to[i] != 7 * static_cast<int>(i) + peer) Die("rank %d: received element %zu is %d", rank_, i, to[i]);
    return true;
  }

  Round* const round_;
  const int rank_;
  ncclComm_t comms_[2] = {nullptr, nullptr};  // the split one first: it ends first
  axcclStream_t stream_ = nullptr;
  void* buffer_ = nullptr;
};

// The two ranks' threads are there before the fault is armed: it is for the library.
bool RunRound(Failing kind, long k, long* calls) {
  Round round;
  std::atomic<bool> go{false};
  const auto body = [&](int rank) {
    while (!go) Nap();
    Rank(&round, rank).Run();
  };
  std::thread first(body, 0), second(body, 1);
  Arm(kind, k);
  go = true;
  first.join();
  second.join();
  const bool fault = HasFailed();
  *calls = Disarm();
  if (round.failed && !fault) Die("a round failed without a fault");
  return !round.failed;
}

int EntriesOf(const char* folder) {
  DIR* const open = opendir(folder);
  if (open == nullptr) return -1;
  int entries = 0;
  while (readdir(open) != nullptr) ++entries;
  closedir(open);
  return entries;
}

int SharedMappings() {
  std::FILE* const maps = std::fopen("/proc/self/maps", "r");
  int shared = 0;
  for (char line[4096]; std::fgets(line, sizeof(line), maps) != nullptr;) shared += std::strstr(line, "memfd:") != nullptr;
  std::fclose(maps);
  return shared;
}

// What a process still holds when all communicators have ended.
struct Held {
  int descriptors = EntriesOf("/proc/self/fd"), threads = EntriesOf("/proc/self/task"), mappings = SharedMappings();
  long calls = 0;

  bool Within(const Held& usual) const {
    // An id is served until all its ranks have come: here, two connections and the listener.
    return descriptors <= usual.descriptors + 3 && threads <= usual.threads && mappings <= usual.mappings;
  }
};

// In a process of its own: a round with the fault and one without. Held is what is left then, once threads that were about
// to end have ended: for less than `usual` it waits a few seconds.
bool RunProcess(Failing kind, long k, const Held* usual, Held* held, bool* fired) {
  int pipe_ends[2];
  if (pipe(pipe_ends) != 0) return false;
  const pid_t pid = fork();
  if (pid == 0) {
    alarm(kSeconds);
    long calls = 0, again = 0;
    (void)RunRound(kind, k, &calls);
    const bool had_fault = HasFailed();
    if (!RunRound(Failing::kNone, 0, &again)) Die("after the fault, the library does not work: %s", ncclGetLastError(nullptr));
    Held now;
    for (int naps = 0; usual != nullptr && !now.Within(*usual) && naps < 10000; ++naps) {
      Nap();
      now = Held();
    }
    now.calls = calls;
    if (write(pipe_ends[1], &now, sizeof(now)) != sizeof(now) || write(pipe_ends[1], &had_fault, 1) != 1) _exit(2);
    _exit(0);
  }
  close(pipe_ends[1]);
  const bool whole = read(pipe_ends[0], held, sizeof(*held)) == sizeof(*held) && read(pipe_ends[0], fired, 1) == 1;
  close(pipe_ends[0]);
  int status = 0;
  waitpid(pid, &status, 0);
  if (WIFSIGNALED(status))
    ADD_FAILURE() << NameOf(kind) << " number " << k << ": the process ended by signal " << WTERMSIG(status) << " ("
                  << strsignal(WTERMSIG(status)) << (WTERMSIG(status) == SIGALRM ? ", a call never returned)" : ")");
  else
    EXPECT_TRUE(whole && WEXITSTATUS(status) == 0) << NameOf(kind) << " number " << k << ": see the line above";
  return whole && status == 0;
}

class KthFailure : public testing::TestWithParam<Failing> {};

TEST_P(KthFailure, IsAnErrorAndTheLibraryWorksAfterwards) {
  setenv("AXCCL_DEVICE", "host", 1);
  setenv("NCCL_SOCKET_IFNAME", "lo", 1);
  const Failing kind = GetParam();
  Held usual, held;
  bool fired = false;
  ASSERT_TRUE(RunProcess(kind, 0, nullptr, &usual, &fired));
  ASSERT_GT(usual.calls, 0) << "the library calls it no more";
  const bool all = harness::FullTests();
  // Otherwise 24 of them: the first ones are those that make what lives as long as the process.
  const long step = all ? 1 : std::max(1L, usual.calls / 24);
  long k = 1, faults = 0;
  for (; k <= usual.calls || (all && fired); k += step) {
    if (!RunProcess(kind, k, &usual, &held, &fired)) continue;
    faults += fired;
    EXPECT_TRUE(held.Within(usual)) << NameOf(kind) << " number " << k << ": " << held.descriptors << " descriptors, "
                                    << held.threads << " threads, " << held.mappings << " shared mappings are left; usual are "
                                    << usual.descriptors << ", " << usual.threads << ", " << usual.mappings;
  }
  std::printf("%s: %ld calls in a round, %ld made to fail\n", NameOf(kind), usual.calls, faults);
}

INSTANTIATE_TEST_SUITE_P(Calls, KthFailure,
                         testing::Values(Failing::kMmap, Failing::kMemfd, Failing::kSocket, Failing::kEpollCreate,
                                         Failing::kEpollCtl, Failing::kThread, Failing::kMalloc),
                         [](const auto& info) { return std::string(NameOf(info.param)); });

}  // namespace
}  // namespace axccl::test
