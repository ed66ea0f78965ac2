// Ranks on GPUs of several hosts, beyond the suites that run on both kinds of device: what kernels post arrives,
// however much it is, whoever launches them and whoever has left since.
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "axccl/pipelines.h"
#include "tests/api/device_functions.h"
#include "tests/cuda/graph.h"
#include "tests/cuda/pipeline_end.h"
#include "tests/harness/channels.h"
#include "tests/net/run_on_hosts.h"

namespace axccl::tests {
namespace {

using harness::AwaitCall;
using harness::Clique;
using harness::Cuda;
using harness::DeviceVector;
using harness::EnqueueWhenThereIsRoom;
using harness::Gather;
using harness::InfoOf;
using harness::LastErrorHas;
using harness::MakeChannel;
using harness::RankContext;
using harness::SynchronizeStream;
using harness::TestHosts;

using Values = std::vector<int64_t>;

ncclResult_t Sum(const Clique& clique, DeviceVector<int>* data) {
  return ncclAllReduce(data->data(), data->data(), data->size(), ncclInt32, ncclSum, clique.comm(),
                       Cuda(clique.stream()));
}

TEST(NetGpu, LinksAreNamed) {
  RunOnHosts(2, 4, [](const TestHosts&, RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    for (int other = 0; other < 4; ++other) {
      const char* link = nullptr;
      ASSERT_OK(axcclCommGetLink(clique.comm(), other, &link));
      const bool far = other % 2 != context.rank() % 2;
      EXPECT_EQ(std::string(link), other == context.rank() ? "self" : far ? "tcp" : "cuda_ipc");
    }
  });
}

// If the devices do not do on one of the machines, all ranks meet in host memory.
TEST(NetGpu, WithoutPeerAccessRanksMeetOnTheHost) {
  RunOnHosts(2, 4, [](const TestHosts&, RankContext& context) {
    if (context.rank() == 3) setenv("NCCL_P2P_DISABLE", "1", 1);
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    const char* link = nullptr;
    ASSERT_OK(axcclCommGetLink(clique.comm(), (context.rank() + 2) % 4, &link));
    EXPECT_STREQ(link, "pinned");
    for (const size_t count : {1u, 100u, 100000u}) {
      DeviceVector<int> data(count, context.rank() + 1);
      ASSERT_OK(AwaitCall(Sum(clique, &data), clique.stream(), clique.comm()));
      EXPECT_EQ(data, DeviceVector<int>(count, 10));
    }
  });
}

// Memory that processes can share, as applications allocate it.
class Shareable {
 public:
  explicit Shareable(size_t count) : count_(count) {
    void* memory = nullptr;
    EXPECT_OK(ncclMemAlloc(&memory, count * sizeof(int)));
    memory_ = reinterpret_cast<uint64_t>(memory);
  }
  ~Shareable() { EXPECT_OK(ncclMemFree(get())); }
  Shareable(const Shareable&) = delete;
  Shareable& operator=(const Shareable&) = delete;

  void* get() const { return reinterpret_cast<void*>(memory_); }
  void Fill(int value) {
    ASSERT_EQ(harness::EnterGpu()->fill(memory_, static_cast<unsigned>(value), count_, nullptr), 0);
    ASSERT_EQ(harness::EnterGpu()->synchronize(nullptr), 0);
  }
  bool Has(int value) const {
    std::vector<int> words(count_);
    EXPECT_EQ(harness::EnterGpu()->copy_to_host(words.data(), memory_, count_ * sizeof(int)), 0);
    return words == std::vector<int>(count_, value);
  }

 private:
  const size_t count_;
  uint64_t memory_ = 0;
};

// Each rank sends to one and receives from another.
ncclResult_t Exchange(const Clique& clique, const Shareable& in, const Shareable& out, size_t count, int to, int from) {
  EXPECT_OK(ncclGroupStart());
  EXPECT_OK(ncclSend(in.get(), count, ncclInt32, to, clique.comm(), Cuda(clique.stream())));
  EXPECT_OK(ncclRecv(out.get(), count, ncclInt32, from, clique.comm(), Cuda(clique.stream())));
  return ncclGroupEnd();
}

// In a communicator of two machines, ranks of one go by words that bring their flags, and from buffer to buffer. So
// they do on channels of their own.
TEST(NetGpu, NearRanksMeetOnTheirDevices) {
  RunOnHosts(2, 4,
             [](const TestHosts&, RankContext& context) {
               Clique clique;
               ASSERT_TRUE(clique.Init(context));
               const int near = (context.rank() + 2) % 4, far = context.rank() ^ 1;
               constexpr size_t kLarge = 100000;
               Shareable in(kLarge), out(kLarge);
               in.Fill(context.rank());
               const axcclCommInfo_t before = InfoOf(clique.comm());
               ASSERT_OK(AwaitCall(Exchange(clique, in, out, 100, far, far), clique.stream(), clique.comm()));
               EXPECT_EQ(InfoOf(clique.comm()).ll, before.ll);
               ASSERT_OK(AwaitCall(Exchange(clique, in, out, 100, near, near), clique.stream(), clique.comm()));
               EXPECT_EQ(InfoOf(clique.comm()).ll, before.ll + 2);  // it sends one and receives one
               for (int i = 0; i < 6; ++i) {
                 out.Fill(-1);
                 ASSERT_OK(AwaitCall(Exchange(clique, in, out, kLarge, near, near), clique.stream(), clique.comm()));
                 EXPECT_TRUE(out.Has(near));
                 out.Fill(-1);
                 ASSERT_OK(AwaitCall(Exchange(clique, in, out, kLarge, far, far), clique.stream(), clique.comm()));
                 EXPECT_TRUE(out.Has(far));
               }
               EXPECT_GE(InfoOf(clique.comm()).mapped, 3u);
               const axcclChannel_t pair = MakeChannel(clique.comm(), 4, {{0, 2}, {1, 3}}, 7);
               Gather gather(2, 5, context.rank());
               ASSERT_OK(gather.Enqueue(pair, clique.stream()));
               ASSERT_OK(AwaitCall(ncclSuccess, clique.stream(), clique.comm()));
               EXPECT_EQ(gather.Values(), (Values{context.rank() % 2, context.rank() % 2 + 2}));
               EXPECT_OK(axcclChannelDestroy(pair));
               ASSERT_TRUE(context.Barrier());
             },
             {{"AXCCL_MAP_BYTES", "4K"}});
}

// The last signals of a rank are still in its ring when it goes.
TEST(NetGpu, TheLastMessageArrivesAlthoughItsSenderHasGone) {
  for (int round = 0; round < 10; ++round) {
    RunOnHosts(2, 2, [](const TestHosts&, RankContext& context) {
      Clique clique;
      ASSERT_TRUE(clique.Init(context));
      DeviceVector<int> data(1000, context.rank());
      if (context.rank() == 0) {
        // The first message of a pair needs nothing of its receiver but room.
        ASSERT_OK(ncclBroadcast(data.data(), data.data(), 1000, ncclInt32, 0, clique.comm(), Cuda(clique.stream())));
        ASSERT_OK(SynchronizeStream(clique.stream()));
        ASSERT_TRUE(clique.Destroy());
      } else {
        ASSERT_OK(ncclBroadcast(data.data(), data.data(), 1000, ncclInt32, 0, clique.comm(), Cuda(clique.stream())));
        ASSERT_OK(SynchronizeStream(clique.stream()));
        EXPECT_EQ(data, DeviceVector<int>(1000, 0));
        ASSERT_TRUE(clique.Destroy());
      }
    });
  }
}

// (That kernels wait while the ring is full is tested on fibers: kernels/cuda/proxy_ring_test.)
TEST(NetGpu, ManyLanesPostAtOnce) {
  RunOnHosts(2, 8,
             [](const TestHosts&, RankContext& context) {
               Clique clique;
               ASSERT_TRUE(clique.Init(context));
               constexpr size_t kElements = 1000000;
               DeviceVector<int> data(kElements, context.rank() + 1);
               ASSERT_OK(AwaitCall(Sum(clique, &data), clique.stream(), clique.comm()));
               EXPECT_EQ(data, DeviceVector<int>(kElements, 36));
             },
             {{"AXCCL_SCRATCH_BYTES", "256K"}});
}

// The host does not see that graphs are launched.
TEST(NetGpu, GraphsRunAnyNumberOfTimes) {
  RunOnHosts(2, 3, [](const TestHosts&, RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    DeviceVector<int> data(5000, 1);
    Graph graph;
    ASSERT_NO_FATAL_FAILURE(graph.Capture(clique.stream(), [&] {
      ASSERT_OK(Sum(clique, &data));
      ASSERT_OK(Sum(clique, &data));
    }));
    int expected = 1;
    for (int i = 0; i < 6; ++i) {
      graph.Launch(clique.stream());
      expected *= 9;
      ASSERT_OK(Sum(clique, &data));
      expected *= 3;
      ASSERT_OK(SynchronizeStream(clique.stream()));
      ASSERT_EQ(data, DeviceVector<int>(5000, expected)) << i;
      if (i == 2) data.assign(5000, expected = 1);
    }
    graph.Destroy();
  });
}

// Two at a time, so that areas are used again, with lines from 0 on.
TEST(NetGpu, CreatedChannelsComeAndGo) {
  RunOnHosts(
      2, 4,
      [](const TestHosts&, RankContext& context) {
        Clique clique;
        ASSERT_TRUE(clique.Init(context));
        for (int id = 0; id < 12; ++id) {
          ASSERT_TRUE(context.Step("a pair of channels"));
          const axcclChannel_t all = MakeChannel(clique.comm(), 4, {}, 2 * id);
          const axcclChannel_t half = MakeChannel(clique.comm(), 4, {{0, 3}, {1, 2}}, 2 * id + 1);
          Gather of_all(4, 700, 10 * id + context.rank()), of_half(2, 9, 100 * id + context.rank());
          for (int times = 0; times <= id % 3; ++times) {
            ASSERT_NO_FATAL_FAILURE(EnqueueWhenThereIsRoom(&of_all, all, clique.stream()));
            ASSERT_NO_FATAL_FAILURE(EnqueueWhenThereIsRoom(&of_half, half, clique.stream()));
          }
          ASSERT_OK(AwaitCall(ncclSuccess, clique.stream(), clique.comm()));
          EXPECT_EQ(of_all.Values(), (Values{10 * id, 10 * id + 1, 10 * id + 2, 10 * id + 3}));
          const int other = 3 - context.rank();
          EXPECT_EQ(of_half.Values(),
                    (Values{100 * id + std::min(other, context.rank()), 100 * id + std::max(other, context.rank())}));
          EXPECT_OK(axcclChannelDestroy(all));
          EXPECT_OK(axcclChannelDestroy(half));
        }
        ASSERT_TRUE(context.Barrier());
      },
      {{"AXCCL_GPU_CHANNELS", "3"}}, 1, std::chrono::seconds(60));
}

TEST(NetGpu, AMismatchNamesBothCalls) {
  RunOnHosts(2, 2, [](const TestHosts&, RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    DeviceVector<int> data(100, 1);
    ASSERT_OK(AwaitCall(Sum(clique, &data), clique.stream(), clique.comm()));
    const size_t count = context.rank() == 0 ? 50 : 60;
    const ncclResult_t called =
        ncclAllReduce(data.data(), data.data(), count, ncclInt32, ncclSum, clique.comm(), Cuda(clique.stream()));
    EXPECT_EQ(AwaitCall(called, clique.stream(), clique.comm()), ncclInvalidUsage);
    EXPECT_TRUE(LastErrorHas("ncclAllReduce count 50") && LastErrorHas("ncclAllReduce count 60"))
        << ncclGetLastError(clique.comm());
    ASSERT_TRUE(context.Barrier());
    EXPECT_OK(ncclCommAbort(clique.comm()));
    clique.ForgetComms();
  });
}

TEST(NetGpu, PipelinesAreForRanksOfOneMachine) {
  RunOnHosts(2, 4, [](const TestHosts&, RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    const axcclChannel_t pair = MakeChannel(clique.comm(), 4, {{0, 2}, {1, 3}}, 7);
    Shareable in(64), out(128);
    End end(Case{axcclPipelineAllGather, ncclInt32, 6, 8, 3}, 2, context.rank() / 2, static_cast<char*>(in.get()),
            static_cast<char*>(out.get()));
    ASSERT_OK(end.Create(pair));
    for (int start = 0; start < 3; ++start) {
      end.Prepare(start);
      ASSERT_OK(axcclPipelineStart(end.handle(), Cuda(clique.stream())));
      ASSERT_OK(axcclPipelineFinish(end.handle(), Cuda(clique.stream())));
      ASSERT_OK(AwaitCall(ncclSuccess, clique.stream(), clique.comm()));
      for (int64_t chunk = 0; chunk < end.info().out_chunks; ++chunk) ASSERT_EQ(end.Check(chunk), "") << chunk;
      ASSERT_TRUE(context.Barrier());
    }
    end.Destroy();
    EXPECT_OK(axcclChannelDestroy(pair));
  });
}

// A device communicator is of the team, and has no barrier of all ranks.
void ExpectDeviceComm(ncclComm_t comm, int rank, int team_size) {
  // As programs compiled with NCCL 2.28 see the structs of nccl_device.h.
  struct {
    void *resources, *teams;
    bool multimem;
    int barriers, lsa_barriers, others[4];
    bool gin;
    int counts[3];
  } wanted{};
  int made[50] = {};
  wanted.barriers = 1;
  EXPECT_EQ(ncclDevCommCreate(comm, &wanted, made), ncclInvalidUsage);
  EXPECT_TRUE(LastErrorHas("GIN")) << ncclGetLastError(nullptr);
  wanted.barriers = 0;
  wanted.lsa_barriers = 1;
  ASSERT_OK(ncclDevCommCreate(comm, &wanted, made));
  EXPECT_EQ(Values({made[0], made[1], made[3], made[4]}), Values({rank, 4, rank % team_size, team_size}));
  EXPECT_OK(ncclDevCommDestroy(comm, made));
}

// A window has the shares of consecutive ranks of a machine (NCCL's LSA team), as many on each machine.
void ExpectTeams(const harness::Layout& layout, int team_size) {
  const auto hosts = TestHosts::Create(2);
  ASSERT_NE(hosts, nullptr);
  harness::RunOptions options;
  options.hosts = hosts.get();
  const auto body = [team_size](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    const int rank = context.rank();
    Shareable memory(1000);
    memory.Fill(-1);
    ncclWindow_t window = nullptr;
    ASSERT_OK(ncclCommWindowRegister(clique.comm(), memory.get(), 4000, &window, NCCL_WIN_COLL_SYMMETRIC));
    const ncclTeam lsa = ncclTeamLsa(clique.comm()), rail = ncclTeamRail(clique.comm());
    EXPECT_EQ(Values({lsa.ranks, lsa.rank, lsa.stride}), Values({team_size, rank % team_size, 1}));
    EXPECT_EQ(Values({rail.ranks, rail.rank, rail.stride}), Values({4 / team_size, rank / team_size, team_size}));
    EXPECT_EQ(ncclTeamRankToWorld(clique.comm(), rail, 0), rank % team_size);
    EXPECT_EQ(ncclTeamRankToLsa(clique.comm(), ncclTeamWorld(clique.comm()), rank), lsa.rank);
    ASSERT_TRUE(context.Barrier());
    const int next = rank / team_size * team_size + (rank + 1) % team_size;  // in the team
    for (int peer = 0; peer < 4; ++peer) {
      void* address = &window;
      ASSERT_OK(ncclGetPeerDevicePointer(window, 0, peer, &address));
      EXPECT_EQ(address != nullptr, peer / team_size == rank / team_size) << peer;
      if (peer != next) continue;
      ASSERT_EQ(harness::EnterGpu()->fill(reinterpret_cast<uint64_t>(address), 7u, 1000, nullptr), 0);
      ASSERT_EQ(harness::EnterGpu()->synchronize(nullptr), 0);
    }
    ASSERT_TRUE(context.Barrier());
    EXPECT_TRUE(memory.Has(7));
    ASSERT_TRUE(context.Barrier());
    EXPECT_OK(ncclCommWindowDeregister(clique.comm(), window));
    ExpectDeviceComm(clique.comm(), rank, team_size);
    ASSERT_TRUE(context.Barrier());
  };
  harness::RunRanks(layout, body, options);
}

TEST(NetGpu, WindowsReachTheRanksOfTheMachine) {
  ExpectTeams({2, 2, 1}, 2);  // two ranks on each
  ExpectTeams({4, 1, 1}, 1);  // ranks 0 and 2 on one, 1 and 3 on the other
}

TEST(NetGpu, PipelinesBetweenMachinesAreRefused) {
  RunOnHosts(2, 2, [](const TestHosts&, RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    DeviceVector<float> data(24);
    const int64_t one[1] = {8}, all[1] = {16};
    axcclPipelineSpec_t spec = AXCCL_PIPELINE_SPEC_INITIALIZER;
    spec.in.data = data.data(), spec.in.num_dims = 1, spec.in.sizes = one, spec.in.datatype = ncclFloat32;
    spec.out.data = data.data() + 8, spec.out.num_dims = 1, spec.out.sizes = all, spec.out.datatype = ncclFloat32;
    spec.slices = 2;
    axcclPipeline_t pipeline = nullptr;
    EXPECT_EQ(axcclPipelineCreate(&pipeline, &spec, axcclDefaultChannel(clique.comm())), ncclInvalidUsage);
    EXPECT_TRUE(LastErrorHas("axcclPipelineCreate") && LastErrorHas("read each other's memory"))
        << ncclGetLastError(nullptr);
    ASSERT_OK(AwaitCall(
        ncclAllReduce(data.data(), data.data(), 8, ncclFloat32, ncclSum, clique.comm(), Cuda(clique.stream())),
        clique.stream(), clique.comm()));
  });
}

}  // namespace
}  // namespace axccl::tests
