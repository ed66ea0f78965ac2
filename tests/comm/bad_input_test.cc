// Wrong arguments: the documented code at once, a text that names call and argument, and a library that still works.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "tests/harness/case_runner.h"
#include "tests/harness/timing.h"

namespace axccl::tests {
namespace {

using harness::AllowedNs;
using harness::Call;
using harness::CaseRunner;
using harness::Clique;
using harness::Cuda;
using harness::Fold;
using harness::LastErrorHas;
using harness::NowNs;
using harness::Processes;
using harness::RankContext;
using harness::RunRanks;
using harness::Seed;
using harness::Threads;

// Arguments for the calls of the rows below.
struct Args {
  ncclComm_t comm;
  cudaStream_t stream;
  int* send;
  int* recv;
};

struct Row {
  const char* name;
  const char* call;  // must be in the last-error text
  const char* word;  // also required there
  ncclResult_t (*run)(const Args&);
};

constexpr auto kBadType = static_cast<ncclDataType_t>(12);
constexpr auto kNegativeType = static_cast<ncclDataType_t>(-1);
constexpr auto kBadOp = static_cast<ncclRedOp_t>(5);
constexpr auto kHugeOp = static_cast<ncclRedOp_t>(0x7fffffff);
constexpr auto kNegativeOp = static_cast<ncclRedOp_t>(-1);

const Row kRows[] = {
    {"AllReduceType", "ncclAllReduce", "datatype",
     [](const Args& a) { return ncclAllReduce(a.send, a.recv, 4, kBadType, ncclSum, a.comm, a.stream); }},
    {"AllReduceNegativeType", "ncclAllReduce", "datatype",
     [](const Args& a) { return ncclAllReduce(a.send, a.recv, 4, kNegativeType, ncclSum, a.comm, a.stream); }},
    {"AllReduceOp", "ncclAllReduce", "op",
     [](const Args& a) { return ncclAllReduce(a.send, a.recv, 4, ncclInt32, kBadOp, a.comm, a.stream); }},
    {"AllReduceHugeOp", "ncclAllReduce", "op",
     [](const Args& a) { return ncclAllReduce(a.send, a.recv, 4, ncclInt32, kHugeOp, a.comm, a.stream); }},
    {"AllReduceNegativeOp", "ncclAllReduce", "op",
     [](const Args& a) { return ncclAllReduce(a.send, a.recv, 4, ncclInt32, kNegativeOp, a.comm, a.stream); }},
    {"AllReduceNullSend", "ncclAllReduce", "sendbuff",
     [](const Args& a) { return ncclAllReduce(nullptr, a.recv, 4, ncclInt32, ncclSum, a.comm, a.stream); }},
    {"AllReduceNullRecv", "ncclAllReduce", "recvbuff",
     [](const Args& a) { return ncclAllReduce(a.send, nullptr, 4, ncclInt32, ncclSum, a.comm, a.stream); }},
    {"AllReduceCount", "ncclAllReduce", "count",
     [](const Args& a) { return ncclAllReduce(a.send, a.recv, SIZE_MAX / 2, ncclInt32, ncclSum, a.comm, a.stream); }},
    {"AllGatherCount", "ncclAllGather", "count",
     [](const Args& a) { return ncclAllGather(a.send, a.recv, SIZE_MAX / 5, ncclInt32, a.comm, a.stream); }},
    {"ReduceScatterCount", "ncclReduceScatter", "count",
     [](const Args& a) { return ncclReduceScatter(a.send, a.recv, SIZE_MAX, ncclInt8, ncclSum, a.comm, a.stream); }},
    {"ReduceScatterNull", "ncclReduceScatter", "recvbuff",
     [](const Args& a) { return ncclReduceScatter(a.send, nullptr, 2, ncclInt32, ncclSum, a.comm, a.stream); }},
    {"AlltoAllNull", "ncclAlltoAll", "sendbuff",
     [](const Args& a) { return ncclAlltoAll(nullptr, a.recv, 2, ncclInt32, a.comm, a.stream); }},
    {"AlltoAllCount", "ncclAlltoAll", "count",
     [](const Args& a) { return ncclAlltoAll(a.send, a.recv, SIZE_MAX / 6, ncclInt64, a.comm, a.stream); }},
    // NCCL: "In-place operation will happen if sendbuff == recvbuff" (or is this rank's part of it). Anything else that
    // overlaps would give garbage.
    {"AllReduceShifted", "ncclAllReduce", "in place is sendbuff == recvbuff",
     [](const Args& a) { return ncclAllReduce(a.recv + 1, a.recv, 4, ncclInt32, ncclSum, a.comm, a.stream); }},
    {"AllGatherOfTheMiddle", "ncclAllGather", "in place is sendbuff == recvbuff + rank * sendcount",
     [](const Args& a) { return ncclAllGather(a.recv + 1, a.recv, 2, ncclInt32, a.comm, a.stream); }},
    {"ReduceScatterToTheMiddle", "ncclReduceScatter", "in place is recvbuff == sendbuff + rank * recvcount",
     [](const Args& a) { return ncclReduceScatter(a.recv, a.recv + 1, 2, ncclInt32, ncclSum, a.comm, a.stream); }},
    {"AlltoAllLastElement", "ncclAlltoAll", "overlap with count 2",
     [](const Args& a) { return ncclAlltoAll(a.recv, a.recv + 3, 2, ncclInt32, a.comm, a.stream); }},
    {"BroadcastRoot", "ncclBroadcast", "root",
     [](const Args& a) { return ncclBroadcast(a.send, a.recv, 4, ncclInt32, 2, a.comm, a.stream); }},
    {"BroadcastNegativeRoot", "ncclBroadcast", "root",
     [](const Args& a) { return ncclBroadcast(a.send, a.recv, 4, ncclInt32, -1, a.comm, a.stream); }},
    {"BcastRoot", "ncclBcast", "root",
     [](const Args& a) { return ncclBcast(a.send, 4, ncclInt32, 99, a.comm, a.stream); }},
    {"BcastNull", "ncclBcast", "buff",
     [](const Args& a) { return ncclBcast(nullptr, 4, ncclInt32, 0, a.comm, a.stream); }},
    {"ReduceRoot", "ncclReduce", "root",
     [](const Args& a) { return ncclReduce(a.send, a.recv, 4, ncclInt32, ncclSum, 2, a.comm, a.stream); }},
    {"GatherRoot", "ncclGather", "root",
     [](const Args& a) { return ncclGather(a.send, a.recv, 4, ncclInt32, 2, a.comm, a.stream); }},
    {"ScatterRoot", "ncclScatter", "root",
     [](const Args& a) { return ncclScatter(a.send, a.recv, 4, ncclInt32, -7, a.comm, a.stream); }},
    {"SendPeer", "ncclSend", "peer", [](const Args& a) { return ncclSend(a.send, 4, ncclInt32, 2, a.comm, a.stream); }},
    {"SendNegativePeer", "ncclSend", "peer",
     [](const Args& a) { return ncclSend(a.send, 4, ncclInt32, -1, a.comm, a.stream); }},
    {"SendNull", "ncclSend", "sendbuff",
     [](const Args& a) { return ncclSend(nullptr, 4, ncclInt32, 1, a.comm, a.stream); }},
    {"RecvPeer", "ncclRecv", "peer",
     [](const Args& a) { return ncclRecv(a.recv, 4, ncclInt32, 77, a.comm, a.stream); }},
    {"RecvNull", "ncclRecv", "recvbuff",
     [](const Args& a) { return ncclRecv(nullptr, 4, ncclInt32, 1, a.comm, a.stream); }},
    {"RecvCount", "ncclRecv", "count",
     [](const Args& a) { return ncclRecv(a.recv, SIZE_MAX, ncclFloat64, 1, a.comm, a.stream); }},
    {"NullComm", "ncclAllReduce", "comm",
     [](const Args& a) { return ncclAllReduce(a.send, a.recv, 4, ncclInt32, ncclSum, nullptr, a.stream); }},
    {"GarbageComm", "ncclAllGather", "comm",
     [](const Args& a) {
       return ncclAllGather(a.send, a.recv, 4, ncclInt32, reinterpret_cast<ncclComm_t>(0xdeadbee8), a.stream);
     }},
    {"StackComm", "ncclSend", "comm",
     [](const Args& a) {
       uint64_t fake[64] = {};
       return ncclSend(a.send, 4, ncclInt32, 1, reinterpret_cast<ncclComm_t>(fake), a.stream);
     }},
    {"GarbageStream", "ncclAllReduce", "stream",
     [](const Args& a) {
       return ncclAllReduce(a.send, a.recv, 4, ncclInt32, ncclSum, a.comm, reinterpret_cast<cudaStream_t>(0x5550));
     }},
    {"CountNull", "ncclCommCount", "count", [](const Args& a) { return ncclCommCount(a.comm, nullptr); }},
    {"CountNullComm", "ncclCommCount", "comm",
     [](const Args& a) {
       int value = 0;
       return ncclCommCount(nullptr, &value);
     }},
    {"UserRankNull", "ncclCommUserRank", "rank", [](const Args& a) { return ncclCommUserRank(a.comm, nullptr); }},
    {"CuDeviceNull", "ncclCommCuDevice", "device", [](const Args& a) { return ncclCommCuDevice(a.comm, nullptr); }},
    {"AsyncErrorNull", "ncclCommGetAsyncError", "asyncError",
     [](const Args& a) { return ncclCommGetAsyncError(a.comm, nullptr); }},
    {"InitRankNegative", "ncclCommInitRank", "rank",
     [](const Args&) {
       ncclUniqueId id{};
       EXPECT_OK(ncclGetUniqueId(&id));
       ncclComm_t comm = nullptr;
       return ncclCommInitRank(&comm, 2, id, -1);
     }},
    {"InitRankTooLarge", "ncclCommInitRank", "rank",
     [](const Args&) {
       ncclUniqueId id{};
       EXPECT_OK(ncclGetUniqueId(&id));
       ncclComm_t comm = nullptr;
       return ncclCommInitRank(&comm, 2, id, 2);
     }},
    {"InitNoRanks", "ncclCommInitRank", "nranks",
     [](const Args&) {
       ncclUniqueId id{};
       EXPECT_OK(ncclGetUniqueId(&id));
       ncclComm_t comm = nullptr;
       return ncclCommInitRank(&comm, 0, id, 0);
     }},
    {"InitNullComm", "ncclCommInitRank", "comm",
     [](const Args&) {
       ncclUniqueId id{};
       EXPECT_OK(ncclGetUniqueId(&id));
       return ncclCommInitRank(nullptr, 1, id, 0);
     }},
    {"InitZeroId", "ncclCommInitRank", "id",
     [](const Args&) {
       ncclUniqueId id{};
       ncclComm_t comm = nullptr;
       return ncclCommInitRank(&comm, 1, id, 0);
     }},
    {"ScalableNoIds", "ncclCommInitRankScalable", "nId",
     [](const Args&) {
       ncclUniqueId id{};
       EXPECT_OK(ncclGetUniqueId(&id));
       ncclComm_t comm = nullptr;
       return ncclCommInitRankScalable(&comm, 1, 0, 0, &id, nullptr);
     }},
    {"ScalableNullIds", "ncclCommInitRankScalable", "id",
     [](const Args&) {
       ncclComm_t comm = nullptr;
       return ncclCommInitRankScalable(&comm, 1, 0, 1, nullptr, nullptr);
     }},
};

// Both ranks use the communicator after the bad call, so it must be as it was.
void ExpectUsable(RankContext& context, Clique& clique) {
  CaseRunner runner(context, clique, size_t{1} << 18);
  ASSERT_TRUE(runner.Run({Call::kAllReduce, ncclInt32, Fold::kSum, 100, 0, Seed()}, {}));
}

class BadInputTest : public testing::TestWithParam<Row> {};

TEST_P(BadInputTest, IsInvalidArgumentAtOnceAndHarmless) {
  RunRanks(Processes(2), [](RankContext& context) {
    const Row& row = GetParam();
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    int send[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    int recv[8] = {};
    const Args args{clique.comm(), Cuda(clique.stream()), send, recv};
    uint64_t best = ~uint64_t{0};
    for (int attempt = 0; attempt < 3; ++attempt) {
      ASSERT_TRUE(context.Step("%s", row.name));
      const uint64_t start = NowNs();
      ASSERT_EQ(row.run(args), ncclInvalidArgument) << ncclGetLastError(nullptr);
      best = std::min(best, NowNs() - start);
    }
    EXPECT_LT(best, AllowedNs(10));
    EXPECT_TRUE(LastErrorHas(row.call)) << ncclGetLastError(nullptr);
    EXPECT_TRUE(LastErrorHas(row.word)) << ncclGetLastError(nullptr);
    for (const int value : recv) EXPECT_EQ(value, 0);
    ncclResult_t state = ncclInternalError;
    ASSERT_OK(ncclCommGetAsyncError(clique.comm(), &state));
    EXPECT_EQ(state, ncclSuccess);
    ASSERT_NO_FATAL_FAILURE(ExpectUsable(context, clique));
  });
}

INSTANTIATE_TEST_SUITE_P(Rows, BadInputTest, testing::ValuesIn(kRows),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(BadInput, DestroyedCommunicatorsAreRecognised) {
  RunRanks(Processes(2), [](RankContext& context) {
    Clique live;
    ASSERT_TRUE(live.Init(context));
    ncclComm_t dead = nullptr;
    {
      Clique clique;
      ASSERT_TRUE(clique.Init(context));
      dead = clique.comm();
    }
    // A new communicator may take the old one's place in memory; the old handle must still be dead.
    Clique next;
    ASSERT_TRUE(next.Init(context));
    int data[2] = {1, 2};
    int value = 0;
    ncclResult_t state = ncclSuccess;
    EXPECT_EQ(ncclAllReduce(data, data, 2, ncclInt32, ncclSum, dead, nullptr), ncclInvalidArgument);
    EXPECT_TRUE(LastErrorHas("comm")) << ncclGetLastError(nullptr);
    EXPECT_EQ(ncclSend(data, 2, ncclInt32, 0, dead, nullptr), ncclInvalidArgument);
    EXPECT_EQ(ncclCommCount(dead, &value), ncclInvalidArgument);
    EXPECT_EQ(ncclCommGetAsyncError(dead, &state), ncclInvalidArgument);
    EXPECT_EQ(ncclCommDestroy(dead), ncclInvalidArgument);
    EXPECT_EQ(ncclCommAbort(dead), ncclInvalidArgument);
    EXPECT_EQ(ncclCommFinalize(dead), ncclInvalidArgument);
    ncclComm_t child = nullptr;
    EXPECT_EQ(ncclCommSplit(dead, 0, 0, &child, nullptr), ncclInvalidArgument);
    ASSERT_NO_FATAL_FAILURE(ExpectUsable(context, live));
    ASSERT_NO_FATAL_FAILURE(ExpectUsable(context, next));
  });
}

TEST(BadInput, ZeroCountsNeedNoBuffers) {
  RunRanks(Processes(2), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    const ncclComm_t comm = clique.comm();
    const cudaStream_t stream = Cuda(clique.stream());
    const int peer = 1 - context.rank();
    EXPECT_OK(ncclAllReduce(nullptr, nullptr, 0, ncclInt32, ncclSum, comm, stream));
    EXPECT_OK(ncclBroadcast(nullptr, nullptr, 0, ncclInt32, 0, comm, stream));
    EXPECT_OK(ncclAllGather(nullptr, nullptr, 0, ncclInt32, comm, stream));
    EXPECT_OK(ncclAlltoAll(nullptr, nullptr, 0, ncclInt32, comm, stream));
    ASSERT_OK(ncclGroupStart());
    EXPECT_OK(ncclSend(nullptr, 0, ncclInt32, peer, comm, stream));
    EXPECT_OK(ncclRecv(nullptr, 0, ncclInt32, peer, comm, stream));
    ASSERT_OK(ncclGroupEnd());
    ASSERT_TRUE(clique.Synchronize());
    // Zero counts are still checked.
    EXPECT_EQ(ncclBroadcast(nullptr, nullptr, 0, ncclInt32, 5, comm, stream), ncclInvalidArgument);
    EXPECT_EQ(ncclAllReduce(nullptr, nullptr, 0, kBadType, ncclSum, comm, stream), ncclInvalidArgument);
    ASSERT_NO_FATAL_FAILURE(ExpectUsable(context, clique));
  });
}

// Only the root of a rooted call uses both buffers; the other rank's ignored buffer may be anywhere.
TEST(BadInput, OverlapsAtTheRootAreRefusedAndInPlaceIsServed) {
  RunRanks(Processes(2), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    const ncclComm_t comm = clique.comm();
    const cudaStream_t s = Cuda(clique.stream());
    const int r = context.rank();
    int d[16] = {};
    for (const int root : {0, 1}) {
      // Only the root makes these calls, which are refused at once: another rank would wait for it.
      if (r != root) continue;
      EXPECT_EQ(ncclBroadcast(d, d + 1, 2, ncclInt32, root, comm, s), ncclInvalidArgument);
      EXPECT_EQ(ncclReduce(d, d + 1, 2, ncclInt32, ncclSum, root, comm, s), ncclInvalidArgument);
      EXPECT_EQ(ncclGather(d + 1, d, 2, ncclInt32, root, comm, s), ncclInvalidArgument);
      EXPECT_TRUE(LastErrorHas("in place is sendbuff == recvbuff + root * count")) << ncclGetLastError(nullptr);
      EXPECT_EQ(ncclScatter(d, d + 1, 2, ncclInt32, root, comm, s), ncclInvalidArgument);
      EXPECT_TRUE(LastErrorHas("in place is recvbuff == sendbuff + root * count")) << ncclGetLastError(nullptr);
    }
    for (const int root : {0, 1}) {
      EXPECT_OK(ncclBroadcast(d, d + (r == root ? 0 : 1), 2, ncclInt32, root, comm, s));
      EXPECT_OK(ncclReduce(d, d + (r == root ? 0 : 1), 2, ncclInt32, ncclSum, root, comm, s));
      EXPECT_OK(ncclGather(d + (r == root ? 2 * r : 1), d, 2, ncclInt32, root, comm, s));
      EXPECT_OK(ncclScatter(d, d + (r == root ? 2 * r : 1), 2, ncclInt32, root, comm, s));
    }
    EXPECT_OK(ncclAllReduce(d, d, 4, ncclInt32, ncclSum, comm, s));
    EXPECT_OK(ncclAllGather(d + 2 * r, d, 2, ncclInt32, comm, s));
    EXPECT_OK(ncclReduceScatter(d, d + 2 * r, 2, ncclInt32, ncclSum, comm, s));
    EXPECT_OK(ncclAlltoAll(d, d + 4, 2, ncclInt32, comm, s));  // side by side
    EXPECT_OK(ncclAlltoAll(d, d, 2, ncclInt32, comm, s));      // as nccl-tests does, which then does not check the data
    ASSERT_TRUE(clique.Synchronize());
    ASSERT_NO_FATAL_FAILURE(ExpectUsable(context, clique));
  });
}

TEST(BadInput, MemFreeNamesItself) {
  RunRanks(Processes(1), [](RankContext&) {
    int local = 0;
    EXPECT_EQ(ncclMemFree(&local), ncclInvalidArgument);
    EXPECT_TRUE(LastErrorHas("ncclMemFree: ")) << ncclGetLastError(nullptr);
  });
}

TEST(BadInput, NeighboursMayFailDifferently) {
  // One rank's bad call must not shift its sequence relative to its peers.
  RunRanks(Processes(3), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    CaseRunner runner(context, clique, size_t{1} << 20);
    int data = 0;
    for (int i = 0; i < 30; ++i) {
      if (i % 3 == context.rank()) {
        ASSERT_EQ(ncclAllReduce(&data, nullptr, 1, ncclInt32, ncclSum, clique.comm(), Cuda(clique.stream())),
                  ncclInvalidArgument);
      }
      ASSERT_TRUE(runner.Enqueue({Call::kAllReduce, ncclInt32, Fold::kSum, 50, 0, Seed() + i}, {}));
    }
    ASSERT_TRUE(runner.Finish());
  });
}

// ---- errors of inner layers ----

// An id that has already made its communicator: the error of the rendezvous names the call that the program made.
TEST(UsedId, IsAnErrorOfTheCallThatUsesItAgain) {
  RunRanks(Threads(1), [](RankContext& context) {
    ncclUniqueId id;
    ASSERT_OK(ncclGetUniqueId(&id));
    ncclComm_t first = nullptr, again = nullptr;
    ASSERT_OK(ncclCommInitRank(&first, 1, id, 0));
    const auto expect_named = [&](ncclResult_t result, const std::string& call) {
      EXPECT_EQ(result, ncclInvalidUsage);
      const std::string text = ncclGetLastError(nullptr);
      EXPECT_TRUE(text.starts_with(call + ": ")) << text;
      EXPECT_NE(text.find("already made a communicator"), std::string::npos) << text;
      EXPECT_EQ(text.find("ncclComm", 1), std::string::npos) << "names another call as well: " << text;
    };
    expect_named(ncclCommInitRank(&again, 1, id, 0), "ncclCommInitRank");
    expect_named(ncclCommInitRankConfig(&again, 1, id, 0, nullptr), "ncclCommInitRankConfig");
    expect_named(ncclCommInitRankScalable(&again, 1, 0, 1, &id, nullptr), "ncclCommInitRankScalable");
    expect_named(ncclCommGrow(nullptr, 1, &id, 0, &again, nullptr), "ncclCommGrow");
    // A creation in the background reports it through ncclCommGetAsyncError.
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    ASSERT_EQ(ncclCommInitRankConfig(&again, 1, id, 0, &config), ncclInProgress);
    ncclResult_t state = ncclInProgress;
    while (state == ncclInProgress) {
      ASSERT_OK(ncclCommGetAsyncError(again, &state));
      harness::LookLater();
    }
    expect_named(state, "ncclCommInitRankConfig");
    EXPECT_OK(ncclCommAbort(again));
    EXPECT_OK(ncclCommDestroy(first));
  });
}

// There is nothing yet that could look at the scalar.
TEST(NonBlocking, OperatorsAreMadeMeanwhile) {
  RunRanks(Processes(1), [](RankContext&) {
    ncclUniqueId id;
    ASSERT_OK(ncclGetUniqueId(&id));
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    ncclComm_t comm = nullptr;
    ASSERT_EQ(ncclCommInitRankConfig(&comm, 2, id, 0, &config), ncclInProgress);
    float factor = 2;
    ncclRedOp_t op = ncclSum;
    EXPECT_OK(ncclRedOpCreatePreMulSum(&op, &factor, ncclFloat32, ncclScalarDevice, comm));
    EXPECT_OK(ncclCommAbort(comm));
  });
}

// As with NCCL, a thread that makes calls for others can report why they failed.
TEST(LastError, IsAnotherThreadsWhereThisOneHasNone) {
  RunRanks(Processes(1), [](RankContext&) {
    const auto fail_elsewhere = [] {
      std::thread([] { EXPECT_EQ(ncclGetVersion(nullptr), ncclInvalidArgument); }).join();
    };
    EXPECT_STREQ(ncclGetLastError(nullptr), "");
    fail_elsewhere();
    EXPECT_TRUE(harness::LastErrorHas("ncclGetVersion")) << ncclGetLastError(nullptr);
    EXPECT_EQ(axcclGetVersion(nullptr), ncclInvalidArgument);
    fail_elsewhere();
    EXPECT_TRUE(harness::LastErrorHas("axcclGetVersion")) << ncclGetLastError(nullptr);
  });
}

// ---- fork ----

// Runs `body` in a forked child of this rank and returns its exit status.
int InForkedChild(const std::function<int()>& body) {
  const pid_t pid = fork();
  if (pid == 0) _exit(body());
  int status = -1;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 100 + WTERMSIG(status);
}

TEST(Fork, ChildIsRefusedAndCannotHurtTheParent) {
  RunRanks(Processes(2), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    ASSERT_NO_FATAL_FAILURE(ExpectUsable(context, clique));
    const ncclComm_t comm = clique.comm();
    const cudaStream_t stream = Cuda(clique.stream());
    for (int round = 0; round < 3; ++round) {
      ASSERT_TRUE(context.Step("fork %d", round));
      const int status = InForkedChild([&] {
        int data = 1;
        if (ncclAllReduce(&data, &data, 1, ncclInt32, ncclSum, comm, stream) != ncclInvalidUsage) return 1;
        if (!LastErrorHas("fork")) return 2;
        ncclComm_t other = nullptr;
        ncclUniqueId id{};
        if (ncclGetUniqueId(&id) != ncclInvalidUsage) return 3;
        if (ncclCommInitRank(&other, 1, id, 0) != ncclInvalidUsage) return 4;
        if (ncclCommDestroy(comm) != ncclInvalidUsage) return 5;
        if (ncclCommAbort(comm) != ncclInvalidUsage) return 6;
        return 0;
      });
      EXPECT_EQ(status, 0);
      ASSERT_NO_FATAL_FAILURE(ExpectUsable(context, clique));
    }
    // A child that runs its exit handlers does not harm the parent either.
    const pid_t child = fork();
    if (child == 0) std::exit(0);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    ASSERT_NO_FATAL_FAILURE(ExpectUsable(context, clique));
  });
}

}  // namespace
}  // namespace axccl::tests
