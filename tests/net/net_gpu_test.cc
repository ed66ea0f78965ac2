// Ranks on GPUs of several hosts, beyond the suites that run on both kinds of device: what kernels post arrives,
// however much it is, whoever launches them and whoever has left since.
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "axccl/pipelines.h"
#include "tests/cuda/graph.h"
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
      EXPECT_EQ(std::string(link), other == context.rank() ? "self" : far ? "tcp" : "pinned");
    }
  });
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

TEST(NetGpu, PipelinesAreRefused) {
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
