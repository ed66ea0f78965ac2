// The ways in which GPU ranks reach each other's memory: which one is chosen if peer access, processes or the data are
// obstructed, and that calls work there, too. The software GPU makes the obstructions.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "tests/cuda/words.h"
#include "tests/harness/rank_logs.h"
#include "tests/harness/restrict.h"

namespace axccl::tests {
namespace {

using harness::Clique;
using harness::EnterGpu;
using harness::Layout;
using harness::RankContext;
using harness::RunOptions;
using harness::RunRanks;

std::string LinkOf(ncclComm_t comm, int peer) {
  const char* link = nullptr;
  EXPECT_OK(axcclCommGetLink(comm, peer, &link));
  return link;
}

// Ranks use the devices in turn. Makes calls of several sizes and kinds, and messages.
void ExpectCallsWork(RankContext& context, const char* link) {
  ASSERT_NE(EnterGpu(context.rank() % 2), nullptr);
  Clique clique;
  ASSERT_TRUE(clique.Init(context));
  const int n = context.nranks(), next = (context.rank() + 1) % n, previous = (context.rank() + n - 1) % n;
  EXPECT_EQ(LinkOf(clique.comm(), next), link);
  EXPECT_EQ(LinkOf(clique.comm(), context.rank()), "self");
  constexpr size_t kMost = 5000;
  Words data(kMost), all(kMost * static_cast<size_t>(n)), received(kMost);
  for (const size_t size : {size_t{3}, kMost}) {
    ASSERT_TRUE(context.Step("%zu words", size));
    const cudaStream_t stream = harness::Cuda(clique.stream());
    const int sum = n * (n + 1) / 2;
    data.Fill(context.rank() + 1);
    ASSERT_OK(ncclAllReduce(data.get(), data.get(), size, ncclInt32, ncclSum, clique.comm(), stream));
    ASSERT_OK(ncclAllGather(data.get(), all.get(), size, ncclInt32, clique.comm(), stream));
    ASSERT_OK(ncclGroupStart());
    ASSERT_OK(ncclSend(data.get(), size, ncclInt32, next, clique.comm(), stream));
    ASSERT_OK(ncclRecv(received.get(), size, ncclInt32, previous, clique.comm(), stream));
    ASSERT_OK(ncclGroupEnd());
    ASSERT_TRUE(clique.Synchronize());
    for (int r = 0; r < n; ++r) EXPECT_EQ(all.get()[size * static_cast<size_t>(r + 1) - 1], sum);
    EXPECT_EQ(received.get()[size - 1], sum);
  }
  ASSERT_TRUE(context.Barrier());
}

RunOptions Obstructed(const char* name, const char* value) {
  RunOptions options = SmallGpu(2);
  options.environment.emplace_back(name, value);
  return options;
}

// Processes cannot share memory.
RunOptions NoSharing() {
  RunOptions options = Obstructed("SOFTGPU_IPC", "0");
  options.environment.emplace_back("SOFTGPU_VMM", "0");
  return options;
}

void ExpectLink(const Layout& layout, const char* link, const RunOptions& options) {
  RunRanks(
      layout, [link](RankContext& context) { ExpectCallsWork(context, link); }, options);
}

TEST(Links, Direct) {
  ExpectLink(harness::Threads(3), "inproc", SmallGpu(2));
  ExpectLink(harness::Processes(3), "cuda_ipc", SmallGpu(2));
}

TEST(Links, NoPeerAccess) {
  ExpectLink(harness::Threads(3), "pinned", Obstructed("SOFTGPU_PEER_ACCESS", "0"));
  ExpectLink(harness::Processes(3), "pinned", Obstructed("SOFTGPU_PEER_ACCESS", "0"));
}

TEST(Links, NoIpc) {
  ExpectLink(harness::Threads(3), "inproc", Obstructed("SOFTGPU_IPC", "0"));
  // Without those handles, devices share their memory as files.
  ExpectLink(harness::Processes(3), "cuda_ipc", Obstructed("SOFTGPU_IPC", "0"));
  ExpectLink(harness::Processes(3), "pinned", NoSharing());
}

// Containers may have process numbers of their own: handles can be made there, and not be opened.
TEST(Links, HandlesThatNobodyCanOpen) {
  ExpectLink(harness::Threads(3), "inproc", Obstructed("SOFTGPU_IPC", "2"));
  ExpectLink(harness::Processes(3), "cuda_ipc", Obstructed("SOFTGPU_IPC", "2"));
  RunOptions no_files = Obstructed("SOFTGPU_IPC", "2");
  no_files.environment.emplace_back("SOFTGPU_VMM", "0");
  ExpectLink(harness::Processes(3), "pinned", no_files);
}

// What containers deny is not needed for that, such as taking a file from another process (pidfd_getfd).
TEST(Links, NoIpcInAContainer) {
  const auto body = [](RankContext& context) {
    ASSERT_TRUE(harness::Refuse(harness::RefusedInContainers()));
    ExpectCallsWork(context, "cuda_ipc");
  };
  RunRanks(harness::Processes(3), body, Obstructed("SOFTGPU_IPC", "0"));
}

// Every call of the driver succeeds; only a look at the data shows that it does not arrive.
TEST(Links, DataLostOnTheWay) {
  ExpectLink(harness::Threads(2), "pinned", Obstructed("SOFTGPU_CORRUPT_PEER", "1"));
  ExpectLink(harness::Processes(3), "pinned", Obstructed("SOFTGPU_CORRUPT_PEER", "1"));
}

TEST(Links, Disabled) {
  ExpectLink(harness::Threads(3), "pinned", Obstructed("NCCL_P2P_DISABLE", "1"));
  ExpectLink(harness::Processes(2), "pinned", Obstructed("NCCL_P2P_DISABLE", "1"));
}

// The other ranks use the same way, whatever they can do themselves.
TEST(Links, ObstructedOnOneRankOnly) {
  struct {
    const char *name, *value, *link;
  } const obstacles[] = {{"SOFTGPU_IPC", "0", "cuda_ipc"},
                         {"SOFTGPU_IPC", "2", "cuda_ipc"},
                         {"SOFTGPU_VMM", "0", "cuda_ipc"},
                         {"SOFTGPU_CORRUPT_PEER", "1", "pinned"},
                         {"NCCL_P2P_DISABLE", "1", "pinned"}};
  for (const auto& obstacle : obstacles) {
    for (const int obstructed : {0, 2}) {
      const auto body = [obstacle, obstructed](RankContext& context) {
        if (context.rank() == obstructed) {
          ASSERT_EQ(setenv(obstacle.name, obstacle.value, 1), 0);
        }
        ExpectCallsWork(context, obstacle.link);
      };
      RunRanks(harness::Processes(3), body, SmallGpu(2));
    }
  }
}

// Once on each rank, with the driver's text if there is one.
TEST(Links, TheReasonIsInTheLog) {
  const std::pair<RunOptions, const char*> cases[] = {
      {Obstructed("SOFTGPU_PEER_ACCESS", "0"),
       "rank 0 on CUDA device 0 cannot reach the memory of rank 1 (device 1 of another process): cuIpcOpenMemHandle "
       "failed: "},
      {NoSharing(), "rank 0 cannot share memory of CUDA device 0 with other processes: cuIpcGetMemHandle failed: "},
      {Obstructed("SOFTGPU_CORRUPT_PEER", "1"),
       "rank 0 on CUDA device 0 does not read from the memory of rank 1 (device 1) what is written there"},
      {Obstructed("NCCL_P2P_DISABLE", "1"), "NCCL_P2P_DISABLE=1 on rank 0"}};
  for (auto [options, reason] : cases) {
    const harness::RankLogs logs;
    for (const auto& variable : logs.environment()) options.environment.push_back(variable);
    const auto body = [&logs, reason = reason](RankContext& context) {
      ASSERT_NO_FATAL_FAILURE(ExpectCallsWork(context, "pinned"));
      EXPECT_EQ(logs.Count(reason), 1u) << logs.Own();
    };
    RunRanks(harness::Processes(2), body, options);
  }
}

// A new communicator of some of the ranks chooses its own way: here all its ranks are on one device, which needs no
// peers.
TEST(Links, OfEveryCommunicatorItsOwn) {
  const auto body = [](RankContext& context) {
    ASSERT_NE(EnterGpu(context.rank() % 2), nullptr);
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    EXPECT_EQ(LinkOf(clique.comm(), (context.rank() + 1) % 4), "pinned");
    ncclComm_t half = nullptr;
    ASSERT_OK(ncclCommSplit(clique.comm(), context.rank() % 2, context.rank(), &half, nullptr));
    EXPECT_EQ(LinkOf(half, context.rank() < 2 ? 1 : 0), "cuda_ipc");
    Words data(3000, 1);
    ASSERT_OK(Sum(&data, &data, half, clique.stream()));
    ASSERT_OK(Sum(&data, &data, clique.comm(), clique.stream()));
    ASSERT_TRUE(clique.Synchronize());
    EXPECT_TRUE(data.AreAll(8)) << data.get()[0];
    ASSERT_TRUE(context.Barrier());
    ASSERT_OK(ncclCommDestroy(half));
    ASSERT_TRUE(context.Barrier());
  };
  RunRanks(harness::Processes(4), body, Obstructed("SOFTGPU_PEER_ACCESS", "0"));
}

}  // namespace
}  // namespace axccl::tests
