// After ncclCommAbort, and after a call that has failed, a buffer belongs to the application alone.
//
// NCCL says that ncclCommAbort frees what the communicator has and that its memory may then be freed; a library that
// goes on writing there silently corrupts whatever the application does next. So the buffers here are filled with a
// canary as soon as the call is over, and every byte is checked when all peers have ended, however late they continue:
// they are stopped (SIGSTOP) in the middle of a step.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/harness/client.h"
#include "tests/harness/random.h"
#include "tests/harness/run_ranks.h"
#include "tests/harness/timing.h"

namespace axccl::tests {
namespace {

using harness::Clique;
using harness::Cuda;
using harness::FullTests;
using harness::NowNs;
using harness::Processes;
using harness::Random;
using harness::RankContext;
using harness::RunOptions;
using harness::RunRanks;
using harness::Scramble;
using harness::Seed;

constexpr unsigned char kCanary = 0x77;

enum class From { kMemAlloc, kPlain, kRegistered };
constexpr std::array kSources = {From::kMemAlloc, From::kPlain, From::kRegistered};

// The buffers of a call, large enough for every operation: n blocks in, n blocks out.
class Buffers {
 public:
  Buffers(From from, size_t block, int ranks)
      : heap_(from == From::kMemAlloc), block_(block), bytes_(block * static_cast<size_t>(ranks)) {
    for (unsigned char** p : {&in_, &out_}) {
      void* memory = nullptr;
      if (heap_) {
        EXPECT_OK(ncclMemAlloc(&memory, bytes_));
      } else {
        memory = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      }
      *p = static_cast<unsigned char*>(memory);
    }
  }
  Buffers(const Buffers&) = delete;
  ~Buffers() {
    for (unsigned char* p : {in_, out_}) {
      if (heap_) {
        EXPECT_OK(ncclMemFree(p));
      } else {
        munmap(p, bytes_);
      }
    }
  }

  // For as long as the communicator lives.
  void Register(ncclComm_t comm) {
    for (unsigned char* p : {in_, out_}) {
      void* handle = nullptr;
      EXPECT_OK(ncclCommRegister(comm, p, bytes_, &handle));
    }
  }
  void Fill(unsigned char in, unsigned char out) {
    std::memset(in_, in, bytes_);
    std::memset(out_, out, bytes_);
  }
  // The number of bytes that no longer hold the canary.
  size_t Changed() const {
    size_t changed = 0;
    for (const unsigned char* p : {in_, out_}) {
      for (size_t i = 0; i < bytes_; ++i) changed += p[i] != kCanary;
    }
    return changed;
  }
  unsigned char* in() const { return in_; }
  unsigned char* out() const { return out_; }
  size_t block() const { return block_; }

 private:
  const bool heap_;
  const size_t block_, bytes_;
  unsigned char *in_ = nullptr, *out_ = nullptr;
};

enum class Op { kAllReduce, kAllGather, kBroadcast, kReduce, kReduceScatter, kAllToAll, kGather, kScatter, kSendRecv };
constexpr std::array kOps = {Op::kAllReduce, Op::kAllGather, Op::kBroadcast, Op::kReduce,  Op::kReduceScatter,
                             Op::kAllToAll,  Op::kGather,    Op::kScatter,   Op::kSendRecv};

// Rank 0 is the root, and sends to all others.
ncclResult_t Start(Op op, const Buffers& b, ncclComm_t comm, int rank, int ranks, cudaStream_t stream) {
  const size_t n = b.block();
  switch (op) {
    case Op::kAllReduce:
      return ncclAllReduce(b.in(), b.out(), n, ncclUint8, ncclMax, comm, stream);
    case Op::kAllGather:
      return ncclAllGather(b.in(), b.out(), n, ncclUint8, comm, stream);
    case Op::kBroadcast:
      return ncclBroadcast(b.in(), b.out(), n, ncclUint8, 0, comm, stream);
    case Op::kReduce:
      return ncclReduce(b.in(), b.out(), n, ncclUint8, ncclMax, 0, comm, stream);
    case Op::kReduceScatter:
      return ncclReduceScatter(b.in(), b.out(), n, ncclUint8, ncclMax, comm, stream);
    case Op::kAllToAll:
      return ncclAlltoAll(b.in(), b.out(), n, ncclUint8, comm, stream);
    case Op::kGather:
      return ncclGather(b.in(), b.out(), n, ncclUint8, 0, comm, stream);
    case Op::kScatter:
      return ncclScatter(b.in(), b.out(), n, ncclUint8, 0, comm, stream);
    case Op::kSendRecv:
      break;
  }
  ncclResult_t result = ncclGroupStart();
  for (int peer = 1; peer < ranks && result == ncclSuccess; ++peer) {
    if (rank == 0) result = ncclSend(b.in(), n, ncclUint8, peer, comm, stream);
    if (rank == peer) result = ncclRecv(b.out(), n, ncclUint8, 0, comm, stream);
  }
  const ncclResult_t end = ncclGroupEnd();
  return result == ncclSuccess ? end : result;
}

// The value of block `block` of the output after a call that succeeded, where the inputs hold the rank's number + 1; 0:
// not written.
unsigned char Wanted(Op op, int block, int rank, int ranks) {
  switch (op) {
    case Op::kAllReduce:
    case Op::kReduceScatter:
      return static_cast<unsigned char>(block == 0 ? ranks : 0);
    case Op::kReduce:
      return static_cast<unsigned char>(block == 0 && rank == 0 ? ranks : 0);
    case Op::kBroadcast:
    case Op::kScatter:
      return block == 0 ? 1 : 0;
    case Op::kSendRecv:
      return block == 0 && rank != 0 ? 1 : 0;
    case Op::kGather:
      return static_cast<unsigned char>(rank == 0 ? block + 1 : 0);
    default:
      return static_cast<unsigned char>(block + 1);
  }
}

void ExpectRight(Op op, const Buffers& b, int rank, int ranks) {
  for (int block = 0; block < ranks; ++block) {
    const unsigned char* p = b.out() + static_cast<size_t>(block) * b.block();
    const unsigned char wanted = Wanted(op, block, rank, ranks);
    ASSERT_TRUE(p[0] == wanted && std::memcmp(p, p + 1, b.block() - 1) == 0)
        << "operation " << static_cast<int>(op) << ", rank " << rank << ", block " << block << " is not all "
        << +wanted;
  }
}

// One communicator. One rank is stopped, or aborts, at some point in the middle of the calls that all ranks make.
struct Trial {
  Op op;
  From from;
  bool stop;          // the last rank is stopped; otherwise rank 1 aborts by itself
  bool by_deadline;   // the others wait for their deadline; otherwise they abort once the last rank is stopped
  uint64_t after_ns;  // counted from the first call
  std::string Text() const {
    constexpr std::array kNames = {", ncclMemAlloc", ", plain memory", ", registered memory"};
    return "operation " + std::to_string(static_cast<int>(op)) + kNames[static_cast<size_t>(from)] +
           (stop ? ", a rank is stopped" : ", a rank aborts") + (by_deadline ? ", deadline" : "");
  }
};

bool IsStopped(pid_t process) {
  std::ifstream stat("/proc/" + std::to_string(process) + "/stat");
  std::string text;
  std::getline(stat, text);
  const size_t name = text.rfind(')');
  return name != std::string::npos && text.compare(name, 3, ") T") == 0;
}

class Run {
 public:
  Run(RankContext& context, const Trial& trial, int number) : context_(context), trial_(trial), base_(number % 2 * 8) {}

  void Go() {
    const int rank = context_.rank(), ranks = context_.nranks(), last = ranks - 1;
    for (int cell = 0; cell < 8; ++cell) {
      if (rank == 0) context_.Set((8 - base_) + cell, 0);  // for the next trial
    }
    ASSERT_TRUE(context_.Step("%s", trial_.Text().c_str()));
    Clique clique;
    ASSERT_TRUE(clique.Init(context_));
    auto buffers = std::make_unique<Buffers>(trial_.from, kBlock, ranks);
    if (trial_.from == From::kRegistered) buffers->Register(clique.comm());
    buffers->Fill(static_cast<unsigned char>(rank + 1), 0);
    if (rank == last) Set(kProcess, static_cast<uint64_t>(getpid()));
    ASSERT_TRUE(context_.Barrier(1));
    std::thread giving_up([&] { GiveUp(clique.comm()); });
    ncclResult_t result = ncclSuccess;
    while (result == ncclSuccess) {
      result = Start(trial_.op, *buffers, clique.comm(), rank, ranks, Cuda(clique.stream()));
      if (result == ncclSuccess) result = axcclStreamSynchronize(clique.stream());
      // A call that returns success has written correct results, whatever other ranks now do with their inputs.
      if (result == ncclSuccess) ExpectRight(trial_.op, *buffers, rank, ranks);
    }
    giving_up.join();
    if (!aborted_) {
      EXPECT_OK(ncclCommAbort(clique.comm()));
    }
    clique.ForgetComms();
    // The buffers are the application's again: it reuses them, or allocates others at the same addresses.
    if (trial_.after_ns % 2 == 0) buffers = nullptr, buffers = std::make_unique<Buffers>(trial_.from, kBlock, ranks);
    buffers->Fill(kCanary, kCanary);
    if (trial_.stop && rank != last) {
      ASSERT_TRUE(context_.Barrier(2, last));
      if (rank == 0) kill(static_cast<pid_t>(Get(kProcess)), SIGCONT);
    }
    // Every rank has finished everything it started.
    ASSERT_TRUE(context_.Barrier(3));
    EXPECT_EQ(buffers->Changed(), 0u) << "bytes written into a buffer that belonged to the application, "
                                      << trial_.Text();
    ASSERT_TRUE(context_.Barrier(4));
  }

 private:
  static constexpr size_t kBlock = size_t{3} << 20;
  enum Cell { kProcess, kStopped };
  void Set(Cell cell, uint64_t value) { context_.Set(base_ + cell, value); }
  uint64_t Get(Cell cell) const { return context_.Get(base_ + cell); }

  // Runs on its own thread.
  void GiveUp(ncclComm_t comm) {
    const int rank = context_.rank(), last = context_.nranks() - 1;
    const uint64_t until = NowNs() + trial_.after_ns;
    if (trial_.stop && rank == last) return;
    if (rank == 0 && trial_.stop) {
      while (NowNs() < until) std::this_thread::yield();
      const auto process = static_cast<pid_t>(Get(kProcess));
      kill(process, SIGSTOP);
      while (!IsStopped(process) && !context_.AnyFailed()) harness::LookLater();
      Set(kStopped, 1);
    }
    if (trial_.stop ? trial_.by_deadline : rank != 1) return;
    while (trial_.stop ? Get(kStopped) == 0 && !context_.AnyFailed() : NowNs() < until) std::this_thread::yield();
    EXPECT_OK(ncclCommAbort(comm));
    aborted_ = true;
  }

  RankContext& context_;
  const Trial& trial_;
  const int base_;
  std::atomic<bool> aborted_{false};
};

void RunTrials(const std::vector<Trial>& trials) {
  RunOptions options;
  options.environment = {{"AXCCL_TIMEOUT", "1"}};
  options.deadline = std::chrono::milliseconds(20000 + 1000 * trials.size());
  const auto body = [&](RankContext& context) {
    for (size_t i = 0; i < trials.size(); ++i) {
      ASSERT_NO_FATAL_FAILURE(Run(context, trials[i], static_cast<int>(i)).Go());
      if (context.AnyFailed()) return;
    }
  };
  RunRanks(Processes(3), body, options);
}

// A rank that is stopped in the middle of a step, for longer than any rank waits, continues when the others have given
// up and use their memory for something else.
TEST(BuffersOfAFailedCall, AreNotTouchedByARankThatWasStopped) {
  Random random(Scramble(Seed(), 1));
  std::vector<Trial> trials;
  for (int round = 0; round < (FullTests() ? 20 : 1); ++round) {
    for (const Op op : kOps) {
      for (const From from : kSources) trials.push_back({op, from, true, false, 300'000 + random.Below(6'000'000)});
    }
  }
  RunTrials(trials);
}

TEST(BuffersOfAFailedCall, AreNotTouchedAfterADeadline) {
  Random random(Scramble(Seed(), 2));
  std::vector<Trial> trials;
  for (int round = 0; round < (FullTests() ? 20 : 1); ++round)
    trials.push_back({random.Pick(kOps), random.Pick(kSources), true, true, 300'000 + random.Below(6'000'000)});
  RunTrials(trials);
}

// A rank aborts at some time, while the others are anywhere in a call, and all ranks reuse their memory at once.
TEST(BuffersOfAFailedCall, AreNotTouchedAfterAnAbort) {
  Random random(Scramble(Seed(), 3));
  std::vector<Trial> trials;
  for (int round = 0; round < (FullTests() ? 1000 : 25); ++round)
    trials.push_back({random.Pick(kOps), random.Pick(kSources), false, false, random.Below(5'000'000)});
  RunTrials(trials);
}

}  // namespace
}  // namespace axccl::tests
