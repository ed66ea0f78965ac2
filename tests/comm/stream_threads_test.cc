// When threads cannot be started (ulimit -u, the pids limit of a container): calls return an error, nothing stays half
// done, and everything works again once threads can be started. Threads of different priority. And application
// functions that throw.
#include <gtest/gtest.h>
#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <list>
#include <stdexcept>
#include <thread>
#include <vector>

#include "tests/comm/streams.h"
#include "tests/harness/client.h"
#include "tests/harness/restrict.h"
#include "tests/harness/timing.h"

namespace axccl::tests {
namespace {

using harness::Clique;
using harness::Cuda;
using harness::Processes;
using harness::RankContext;
using harness::RunCliques;
using harness::RunRanks;
using harness::Threads;

// While it exists, this process can start no thread. The limit does not apply to root, so the process becomes the user
// "nobody" for good.
class NoThreads {
 public:
  NoThreads() {
    if (geteuid() == 0) {
      EXPECT_EQ(setgid(65534), 0);
      EXPECT_EQ(setuid(65534), 0);
    }
    EXPECT_EQ(getrlimit(RLIMIT_NPROC, &before_), 0);
    const rlimit none{0, before_.rlim_max};
    EXPECT_EQ(setrlimit(RLIMIT_NPROC, &none), 0);
    pthread_t thread;
    EXPECT_NE(pthread_create(
                  &thread, nullptr, [](void*) -> void* { return nullptr; }, nullptr),
              0);
  }
  ~NoThreads() { EXPECT_EQ(setrlimit(RLIMIT_NPROC, &before_), 0); }

 private:
  rlimit before_{};
};

void Alone(void (*body)()) {
  RunRanks(Processes(1), [body](RankContext&) { body(); });
}

void AloneAndLimited(void (*body)()) {
  if (geteuid() == 0 && !harness::MayActForOthers())
    GTEST_SKIP() << "the limit does not apply to root, and this root may not change its user";
  Alone(body);
}

TEST(NoThreads, WorkOnStreamsIsRefusedAndNothingStaysBehind) {
  AloneAndLimited([] {
    Stream stream;
    int from = 1, to = 0;
    Gate gate;
    {
      NoThreads none;
      for (const axcclStream_t on : {axcclStream_t(stream), axcclStream_t(nullptr)}) {
        EXPECT_EQ(axcclLaunchHostFunc(on, OpenGate, &gate), ncclSystemError);
        harness::ExpectLastErrorHas({"axcclLaunchHostFunc", "no thread can be started", "ulimit -u"});
        EXPECT_EQ(axcclMemcpyAsync(&to, &from, sizeof(int), on), ncclSystemError);
        harness::ExpectLastErrorHas({"axcclMemcpyAsync", "ulimit -u"});
        EXPECT_EQ(axcclStreamQuery(on), ncclSuccess) << "nothing was enqueued";
        EXPECT_OK(axcclStreamSynchronize(on));
      }
    }
    EXPECT_FALSE(gate.is_open());
    ASSERT_OK(axcclMemcpyAsync(&to, &from, sizeof(int), stream));
    ASSERT_OK(axcclLaunchHostFunc(stream, OpenGate, &gate));
    gate.Wait();  // no thread waits in the library
    EXPECT_EQ(to, 1);
  });
}

// CUDA: host functions "may be serialized".
TEST(NoThreads, HostFunctionsShareTheWorkerThereIs) {
  AloneAndLimited([] {
    Stream first;
    Gate gate, all[5];
    ASSERT_OK(axcclLaunchHostFunc(first, WaitAtGate, &gate));
    std::list<Stream> streams;
    {
      NoThreads none;
      for (Gate& one : all) {
        streams.emplace_back();
        ASSERT_OK(axcclLaunchHostFunc(streams.back(), OpenGate, &one));
      }
      gate.Open();
      for (Gate& one : all) one.Wait();
    }
    for (Stream& stream : streams) ASSERT_OK(axcclStreamSynchronize(stream));
  });
}

// The missing worker is started once threads are available again, although nothing else is called.
TEST(NoThreads, MissingWorkersAreStartedLater) {
  AloneAndLimited([] {
    Stream first, second;
    Gate gate;
    ASSERT_OK(axcclLaunchHostFunc(first, WaitAtGate, &gate));
    {
      NoThreads none;
      ASSERT_OK(axcclLaunchHostFunc(second, OpenGate, &gate));  // the only worker waits for it
    }
    gate.Wait();
    ASSERT_OK(axcclStreamSynchronize(first));
    ASSERT_OK(axcclStreamSynchronize(second));
  });
}

// Work that was left running meanwhile continues although no thread waits for it.
TEST(NoThreads, CallsContinueByThemselvesAfterwards) {
  AloneAndLimited([] {
    ncclComm_t comms[2];
    ASSERT_OK(ncclCommInitAll(comms, 2, nullptr));
    int x[2] = {1, 2};
    Gate gate;
    {
      NoThreads none;
      ASSERT_OK(ncclAllReduce(&x[0], &x[0], 1, ncclInt32, ncclSum, comms[0], nullptr));
    }
    ASSERT_OK(axcclHostSetDevice(0));
    ASSERT_OK(axcclLaunchHostFunc(nullptr, OpenGate, &gate));
    ASSERT_OK(ncclAllReduce(&x[1], &x[1], 1, ncclInt32, ncclSum, comms[1], nullptr));
    gate.Wait();
    EXPECT_EQ(x[0], 3);
    ASSERT_OK(axcclStreamSynchronize(nullptr));
    for (const ncclComm_t comm : comms) ASSERT_OK(ncclCommDestroy(comm));
  });
}

// A program that polls an event helps, as one that polls a stream does.
TEST(NoThreads, AQueryOfAnEventMovesItsWork) {
  AloneAndLimited([] {
    ncclComm_t comms[2];
    ASSERT_OK(ncclCommInitAll(comms, 2, nullptr));
    Event event;
    int x[2] = {1, 2};
    {
      NoThreads none;
      for (int rank = 0; rank < 2; ++rank) {
        ASSERT_OK(axcclHostSetDevice(rank));
        ASSERT_OK(ncclAllReduce(&x[rank], &x[rank], 1, ncclInt32, ncclSum, comms[rank], nullptr));
        if (rank == 0) {
          ASSERT_OK(axcclEventRecord(event, nullptr));
        }
      }
      ncclResult_t state = ncclInProgress;
      for (int look = 0; look < 1000 && state == ncclInProgress; ++look) state = axcclEventQuery(event);
      EXPECT_OK(state);
      EXPECT_EQ(x[0], 3);
    }
    for (int rank = 0; rank < 2; ++rank) {
      ASSERT_OK(axcclHostSetDevice(rank));
      ASSERT_OK(axcclStreamSynchronize(nullptr));
    }
    for (const ncclComm_t comm : comms) ASSERT_OK(ncclCommDestroy(comm));
  });
}

// ---- threads of different priority ----

// A thread with a real-time priority needs a lock that a thread without one holds on the same core. Giving up the core
// does not let that thread run. (The kernel does after 0.95 s, or never: sched_rt_runtime_us.)
TEST(Priorities, ARealTimeThreadWaitsForOrdinaryOnesOfItsCore) {
  const sched_param priority{10}, none{0};
  if (sched_setscheduler(0, SCHED_FIFO, &priority) != 0) GTEST_SKIP() << "this process may have no real-time priority";
  ASSERT_EQ(sched_setscheduler(0, SCHED_OTHER, &none), 0);
  Alone([] {
    cpu_set_t first;
    CPU_ZERO(&first);
    CPU_SET(static_cast<unsigned>(sched_getcpu()), &first);
    ASSERT_EQ(sched_setaffinity(0, sizeof(first), &first), 0);  // of the threads below, too
    std::atomic<bool> ended{false};
    const auto copy = [](axcclStream_t stream) {
      char from[8] = {}, to[8];
      EXPECT_OK(axcclMemcpyAsync(to, from, sizeof(to), stream));
      EXPECT_OK(axcclStreamSynchronize(stream));
    };
    std::thread ordinary([&] {
      EXPECT_OK(axcclHostSetDevice(0));
      Stream stream;
      while (!ended) copy(stream);
    });
    std::thread urgent([&] {
      EXPECT_OK(axcclHostSetDevice(0));
      Stream stream;
      const sched_param high{10};
      EXPECT_EQ(pthread_setschedparam(pthread_self(), SCHED_FIFO, &high), 0);
      int late = 0;
      for (int call = 0; call < 2000 && late < 3; ++call) {
        usleep(100);
        const uint64_t before = harness::NowNs();
        copy(stream);
        late += harness::NowNs() - before > 500'000'000;
      }
      EXPECT_LT(late, 3) << "calls of more than half a second";
      ended = true;
    });
    urgent.join();
    ordinary.join();
  });
}

// ---- functions of the application that throw ----

TEST(Throwing, AHostFunctionFailsItsStreamAlone) {
  Alone([] {
    for (const bool null : {false, true}) {
      Stream made, other;
      const axcclStream_t stream = null ? nullptr : axcclStream_t(made);
      bool ran = false;
      ASSERT_OK(axcclLaunchHostFunc(
          stream, [](void*) { throw std::runtime_error("out of luck"); }, nullptr));
      ASSERT_OK(axcclLaunchHostFunc(
          stream, [](void* r) { *static_cast<bool*>(r) = true; }, &ran));
      EXPECT_EQ(axcclStreamSynchronize(stream), ncclInvalidUsage);
      harness::ExpectLastErrorHas({"axcclLaunchHostFunc", "out of luck"});
      EXPECT_TRUE(ran) << "work behind a failure still runs";
      EXPECT_OK(axcclStreamSynchronize(stream)) << "reported once";
      ASSERT_OK(axcclLaunchHostFunc(
          stream, [](void*) { throw 7; }, nullptr));
      EXPECT_EQ(axcclStreamSynchronize(stream), ncclInvalidUsage);
      harness::ExpectLastErrorHas({"axcclLaunchHostFunc"});
      EXPECT_OK(axcclStreamSynchronize(other));
    }
  });
}

TEST(Throwing, AReductionFailsItsCommunicatorAlone) {
  for (const auto& layout : {Processes(2), Threads(2)}) {
    RunCliques(layout, [](RankContext& context, Clique& clique) {
      Clique healthy;
      ASSERT_TRUE(healthy.Init(context));
      ncclRedOp_t op;
      ASSERT_OK(axcclRedOpCreateCallback(
          &op, [](void*, const void*, size_t, void*) { throw std::runtime_error("cannot add"); }, nullptr, ncclInt32,
          clique.comm()));
      std::vector<int> data(1000, 1);
      ASSERT_OK(
          ncclAllReduce(data.data(), data.data(), data.size(), ncclInt32, op, clique.comm(), Cuda(clique.stream())));
      const ncclResult_t result = axcclStreamSynchronize(clique.stream());
      EXPECT_TRUE(result == ncclInvalidUsage || result == ncclRemoteError) << result;
      harness::ExpectLastErrorHas({"cannot add"});
      int x = 1;
      ASSERT_OK(ncclAllReduce(&x, &x, 1, ncclInt32, ncclSum, healthy.comm(), Cuda(healthy.stream())));
      ASSERT_OK(axcclStreamSynchronize(healthy.stream()));
      EXPECT_EQ(x, 2);
      ASSERT_TRUE(context.Barrier());
      ASSERT_OK(ncclCommAbort(clique.comm()));
      clique.ForgetComms();
    });
  }
}

// The text comes from the rank that ran the reduction, and names it on the other ranks.
TEST(Throwing, AFailedReductionNamesTheRankThatRanIt) {
  RunCliques(Processes(2), [](RankContext& context, Clique& clique) {
    const auto fails = [](void*, const void*, size_t, void*) { throw std::runtime_error("cannot add"); };
    const auto works = [](void*, const void*, size_t, void*) {};
    ncclRedOp_t op;
    ASSERT_OK(axcclRedOpCreateCallback(&op, context.rank() == 1 ? +fails : +works, nullptr, ncclInt32, clique.comm()));
    std::vector<int> data(1000, 1);
    (void)ncclAllReduce(data.data(), data.data(), data.size(), ncclInt32, op, clique.comm(), Cuda(clique.stream()));
    (void)axcclStreamSynchronize(clique.stream());
    ncclResult_t state = ncclSuccess;
    while (state == ncclSuccess) ASSERT_OK(ncclCommGetAsyncError(clique.comm(), &state));
    EXPECT_EQ(state, ncclInvalidUsage);
    const std::string text = ncclGetLastError(nullptr);
    EXPECT_EQ(text.find(context.rank() == 0 ? "rank 1: a reduction" : "a reduction"), 0u) << text;
    ASSERT_TRUE(context.Barrier());
    ASSERT_OK(ncclCommAbort(clique.comm()));
    clique.ForgetComms();
  });
}

}  // namespace
}  // namespace axccl::tests
