// GPUDirect RDMA on GPU ranks of several hosts: large slots go from device to device, whatever the call; small ones do
// not; and all ranks do without if one cannot. UCX over TCP stands for an adapter (AXCCL_GPUDIRECT=always), since
// memory of the software GPU is memory of its process.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "tests/cuda/graph.h"
#include "tests/harness/rank_logs.h"
#include "tests/net/run_on_hosts.h"

namespace axccl::tests {
namespace {

using harness::AwaitCall;
using harness::Clique;
using harness::Cuda;
using harness::DeviceVector;
using harness::RankContext;
using harness::RankLogs;
using harness::SynchronizeStream;
using harness::TestHosts;

using Variables = std::vector<std::pair<std::string, std::string>>;

Variables Adapters(Variables further = {}) {
  further.insert(further.begin(), {{"AXCCL_NET", "ucx"}, {"AXCCL_TRUST_NETWORK", "1"}, {"AXCCL_GPUDIRECT", "always"}});
  return further;
}

uint64_t SentFromDevice(const Clique& clique) { return harness::InfoOf(clique.comm()).gpudirect; }

ncclResult_t Sum(const Clique& clique, DeviceVector<int>* data) {
  return ncclAllReduce(data->data(), data->data(), data->size(), ncclInt32, ncclSum, clique.comm(),
                       Cuda(clique.stream()));
}

void ExpectSums(const Clique& clique, size_t count) {
  const int n = clique.nranks();
  DeviceVector<int> data(count, clique.rank(0) + 1);
  ASSERT_OK(AwaitCall(Sum(clique, &data), clique.stream(), clique.comm()));
  EXPECT_EQ(data, DeviceVector<int>(count, n * (n + 1) / 2));
}

TEST(NetAdapters, CarryLargeSlotsOnly) {
  RunOnHosts(
      2, 4,
      [](const TestHosts&, RankContext& context) {
        Clique clique;
        ASSERT_TRUE(clique.Init(context));
        for (const size_t count : {1u, 100u, 1000u}) {
          ASSERT_NO_FATAL_FAILURE(ExpectSums(clique, count));
        }
        EXPECT_EQ(SentFromDevice(clique), 0u);
        ASSERT_NO_FATAL_FAILURE(ExpectSums(clique, 1000003));
        const uint64_t large = SentFromDevice(clique);
        EXPECT_GE(large, 1u);
        ASSERT_NO_FATAL_FAILURE(ExpectSums(clique, 100));
        EXPECT_EQ(SentFromDevice(clique), large);
        // Messages between machines, by the scratch of the pair.
        const int far = clique.rank(0) ^ 1;
        DeviceVector<int> in(300007, clique.rank(0)), out(300007, -1);
        ASSERT_OK(ncclGroupStart());
        ASSERT_OK(ncclSend(in.data(), in.size(), ncclInt32, far, clique.comm(), Cuda(clique.stream())));
        ASSERT_OK(ncclRecv(out.data(), out.size(), ncclInt32, far, clique.comm(), Cuda(clique.stream())));
        ASSERT_OK(AwaitCall(ncclGroupEnd(), clique.stream(), clique.comm()));
        EXPECT_EQ(out, DeviceVector<int>(300007, far));
        EXPECT_GT(SentFromDevice(clique), large);
      },
      Adapters());
}

TEST(NetAdapters, CarryWhatGraphsSend) {
  RunOnHosts(
      2, 2,
      [](const TestHosts&, RankContext& context) {
        Clique clique;
        ASSERT_TRUE(clique.Init(context));
        DeviceVector<int> data(200000, 1);
        Graph graph;
        ASSERT_NO_FATAL_FAILURE(graph.Capture(clique.stream(), [&] { ASSERT_OK(Sum(clique, &data)); }));
        uint64_t sent = 0;
        for (int i = 0, expected = 1; i < 4; ++i) {
          graph.Launch(clique.stream());
          ASSERT_OK(Sum(clique, &data));
          ASSERT_OK(SynchronizeStream(clique.stream()));
          expected *= 4;
          ASSERT_EQ(data, DeviceVector<int>(200000, expected)) << i;
          EXPECT_GT(SentFromDevice(clique), std::exchange(sent, SentFromDevice(clique)));
        }
        graph.Destroy();
      },
      Adapters());
}

// Slots of all sizes, in scratch that calls with and without adapters use in turn.
TEST(NetAdapters, TakeTurnsWithTheHost) {
  RunOnHosts(
      2, 4,
      [](const TestHosts&, RankContext& context) {
        Clique clique;
        ASSERT_TRUE(clique.Init(context));
        for (int round = 0; round < 3; ++round) {
          for (const size_t count : {20000u, 300u, 70001u, 1u, 150000u, 40000u}) {
            ASSERT_NO_FATAL_FAILURE(ExpectSums(clique, count));
          }
        }
        EXPECT_GE(SentFromDevice(clique), 1u);
      },
      Adapters({{"AXCCL_SCRATCH_BYTES", "256K"}, {"AXCCL_GPUDIRECT_BYTES", "8K"}}));
}

// A collective and messages post to one ring, and their slots may follow each other in the rank's block.
TEST(NetAdapters, CarryMessagesBesideACollective) {
  RunOnHosts(
      2, 2,
      [](const TestHosts&, RankContext& context) {
        Clique clique;
        ASSERT_TRUE(clique.Init(context));
        constexpr size_t kCount = 2000000, kMessage = 300000;
        constexpr int kMessages = 12;
        const int rank = clique.rank(0);
        for (int round = 0; round < 6; ++round) {
          DeviceVector<int> data(kCount, rank == 1 ? round : -1);
          std::vector<DeviceVector<int>> messages;
          for (int i = 0; i < kMessages; ++i) messages.emplace_back(kMessage, rank == 1 ? i + round : -1);
          ASSERT_OK(ncclGroupStart());
          ASSERT_OK(
              ncclBroadcast(data.data(), data.data(), kCount, ncclInt32, 1, clique.comm(), Cuda(clique.stream())));
          for (DeviceVector<int>& message : messages) {
            ASSERT_OK(rank == 1
                          ? ncclSend(message.data(), kMessage, ncclInt32, 0, clique.comm(), Cuda(clique.stream()))
                          : ncclRecv(message.data(), kMessage, ncclInt32, 1, clique.comm(), Cuda(clique.stream())));
          }
          ASSERT_OK(AwaitCall(ncclGroupEnd(), clique.stream(), clique.comm()));
          ASSERT_EQ(data, DeviceVector<int>(kCount, round));
          for (int i = 0; i < kMessages; ++i)
            ASSERT_EQ(messages[static_cast<size_t>(i)], DeviceVector<int>(kMessage, i + round)) << i;
        }
      },
      Adapters());
}

// The largest setting of the ranks counts.
TEST(NetAdapters, RanksAgreeOnTheSize) {
  RunOnHosts(
      2, 2,
      [](const TestHosts&, RankContext& context) {
        if (context.rank() == 1) setenv("AXCCL_GPUDIRECT_BYTES", "1G", 1);
        Clique clique;
        ASSERT_TRUE(clique.Init(context));
        ASSERT_NO_FATAL_FAILURE(ExpectSums(clique, 1000000));
        EXPECT_EQ(SentFromDevice(clique), 0u);
      },
      Adapters({{"AXCCL_GPUDIRECT_BYTES", "1"}}));
}

TEST(NetAdapters, AreNotUsedIfOneRankCannotAndTheLogSaysWhy) {
  struct Obstacle {
    Variables of_all, of_rank_1;
    const char* reason;
    bool refusing_ucp = false;  // rank 1 has refusing_ucp.cc
  };
  const Obstacle obstacles[] = {
      {Adapters(), {{"SOFTGPU_GPUDIRECT", "0"}}, "no GPUDirect RDMA: CUDA device 0 of rank 1 does not support it"},
      {Adapters(),
       {{"AXCCL_GPUDIRECT", "never"}},
       "no GPUDirect RDMA: AXCCL_GPUDIRECT or NCCL_NET_GDR_LEVEL on rank 1"},
      {Adapters(), {{"AXCCL_GPUDIRECT", ""}}, "no GPUDirect RDMA: UCX uses no adapter from rank 1 to rank 0"},
      {Adapters(), {{"NCCL_P2P_DISABLE", "1"}}, "no GPUDirect RDMA: ranks meet in memory of the host"},
      {{{"NCCL_NET_GDR_LEVEL", "LOC"}}, {}, "no GPUDirect RDMA: AXCCL_GPUDIRECT or NCCL_NET_GDR_LEVEL on rank 0"},
      {{{"AXCCL_GPUDIRECT", "always"}}, {}, "no GPUDirect RDMA: rank 0 reaches rank 1 by tcp"},
      {Adapters(), {}, "no GPUDirect RDMA: rank 1 cannot use it to rank 0: UCX: registering memory of a device", true},
  };
  for (const Obstacle& obstacle : obstacles) {
    SCOPED_TRACE(obstacle.reason);
    const RankLogs logs;
    Variables all = obstacle.of_all;
    for (const auto& variable : logs.environment()) all.push_back(variable);
    RunOnHosts(
        2, 2,
        [&](const TestHosts&, RankContext& context) {
          for (const auto& [name, value] : obstacle.of_rank_1) {
            if (context.rank() == 1) setenv(name.c_str(), value.c_str(), 1);
          }
          if (obstacle.refusing_ucp && context.rank() == 1) {
            const auto folder = std::filesystem::read_symlink("/proc/self/exe").parent_path();
            ASSERT_NE(dlopen((folder / "librefusing_ucp.so").c_str(), RTLD_NOW), nullptr) << dlerror();
          }
          Clique clique;
          ASSERT_TRUE(clique.Init(context));
          ASSERT_NO_FATAL_FAILURE(ExpectSums(clique, 300000));
          EXPECT_EQ(SentFromDevice(clique), 0u);
          EXPECT_EQ(logs.Count(obstacle.reason), 1u) << logs.Own();
        },
        all);
  }
}

// What adapters wrote needs no flush where devices order it.
TEST(NetAdapters, AreRightWhereDevicesOrderWrites) {
  RunOnHosts(
      2, 2,
      [](const TestHosts&, RankContext& context) {
        Clique clique;
        ASSERT_TRUE(clique.Init(context));
        ASSERT_NO_FATAL_FAILURE(ExpectSums(clique, 1000000));
        EXPECT_GE(SentFromDevice(clique), 1u);
      },
      Adapters({{"SOFTGPU_GPUDIRECT", "2"}}));
}

// Memory of the device that is still being fetched outlives its communicator.
TEST(NetAdapters, AnAbortEndsACallWhoseDataAreUnderWay) {
  RunOnHosts(
      2, 2,
      [](const TestHosts&, RankContext& context) {
        for (int round = 0; round < 5; ++round) {
          Clique clique;
          ASSERT_TRUE(clique.Init(context));
          DeviceVector<int> data(4000000, 1);
          ASSERT_OK(Sum(clique, &data));
          ASSERT_TRUE(context.Barrier());  // both have called
          if (context.rank() != round % 2) (void)AwaitCall(ncclSuccess, clique.stream(), clique.comm());
          ASSERT_OK(ncclCommAbort(clique.comm()));
          clique.ForgetComms();
          ASSERT_TRUE(context.Barrier());
        }
        Clique clique;
        ASSERT_TRUE(clique.Init(context));
        ASSERT_NO_FATAL_FAILURE(ExpectSums(clique, 1000000));
      },
      Adapters());
}

}  // namespace
}  // namespace axccl::tests
