// Created channels of ranks on GPUs, beyond the suites of all devices: their number is limited, a destroyed channel
// makes room, and their calls can be captured.
#include "tests/harness/channels.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/cuda/graph.h"
#include "tests/cuda/matrix_calls.h"
#include "tests/cuda/words.h"

namespace axccl::tests {
namespace {

using harness::Clique;
using harness::EnqueueWhenThereIsRoom;
using harness::Gather;
using harness::LastErrorHas;
using harness::MakeChannel;
using harness::RankContext;
using harness::RunOptions;
using harness::RunRanks;

using Values = std::vector<int64_t>;

RunOptions Channels(const char* most) {
  RunOptions options;
  options.environment = {{"AXCCL_GPU_CHANNELS", most}};
  return options;
}

TEST(CudaChannels, AreLimitedAndTheErrorNamesTheLimit) {
  const auto body = [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    std::vector<axcclChannel_t> channels;
    for (int id = 0; id < 3; ++id) channels.push_back(MakeChannel(clique.comm(), 2, {}, id));
    std::vector<Gather> gathers;
    for (int id = 0; id < 3; ++id) gathers.emplace_back(2, 1000, 10 * id + context.rank());
    for (size_t id = 0; id < 2; ++id) ASSERT_OK(gathers[id].Enqueue(channels[id], clique.stream()));
    EXPECT_EQ(gathers[2].Enqueue(channels[2], clique.stream()), ncclInvalidUsage);
    EXPECT_TRUE(LastErrorHas("uses 2 channels of its own") && LastErrorHas("AXCCL_GPU_CHANNELS"))
        << ncclGetLastError(nullptr);
    EXPECT_OK(axcclChannelDestroy(channels[0]));
    ASSERT_NO_FATAL_FAILURE(EnqueueWhenThereIsRoom(&gathers[2], channels[2], clique.stream()));
    ASSERT_TRUE(clique.Synchronize());
    for (int id = 0; id < 3; ++id) EXPECT_EQ(gathers[static_cast<size_t>(id)].Values(), (Values{10 * id, 10 * id + 1}));
    for (size_t id = 1; id < 3; ++id) EXPECT_OK(axcclChannelDestroy(channels[id]));
    ASSERT_TRUE(context.Barrier());
  };
  RunRanks(harness::Processes(2), body, Channels("2"));
  RunRanks(harness::Threads(2), body, Channels("2"));
}

// All channels use the same area in turn: a channel must not read anything that an earlier one left.
TEST(CudaChannels, FollowEachOther) {
  const auto body = [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    for (int i = 0; i < 20; ++i) {
      ASSERT_TRUE(context.Step("channel %d", i));
      axcclChannel_t channel = MakeChannel(clique.comm(), 2, {{i % 2, 1 - i % 2}}, i % 3);
      for (int call = 0; call < 1 + i % 3; ++call) {
        Gather gather(2, 1 + 700 * (i % 4), 100 * i + 10 * call + context.rank());
        ASSERT_NO_FATAL_FAILURE(EnqueueWhenThereIsRoom(&gather, channel, clique.stream()));
        // Destroys it while it is in use.
        if (call == i % 3) {
          EXPECT_OK(axcclChannelDestroy(channel));
        }
        ASSERT_TRUE(clique.Synchronize());
        const int64_t first = 100 * i + 10 * call + i % 2;
        ASSERT_EQ(gather.Values(), (Values{first, 100 * i + 10 * call + 1 - i % 2}));
      }
    }
    ASSERT_TRUE(context.Barrier());
  };
  RunRanks(harness::Processes(2), body, Channels("1"));
  RunRanks(harness::Threads(2), body, Channels("1"));
}

// The first call, before the members have met, can be captured, too.
TEST(CudaChannels, CanBeCaptured) {
  RunRanks(harness::Processes(2), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    axcclChannel_t channel = MakeChannel(clique.comm(), 2, {}, 1);
    Gather gather(2, 100, 5 + context.rank());
    Graph graph;
    ASSERT_NO_FATAL_FAILURE(
        graph.Capture(clique.stream(), [&] { ASSERT_OK(gather.Enqueue(channel, clique.stream())); }));
    for (int i = 0; i < 5; ++i) ASSERT_NO_FATAL_FAILURE(graph.Launch(clique.stream()));
    ASSERT_TRUE(clique.Synchronize());
    EXPECT_EQ(gather.Values(), (Values{5, 6}));
    graph.Destroy();
    ASSERT_TRUE(context.Barrier());
    EXPECT_OK(axcclChannelDestroy(channel));
  });
}

// They have slots of words for each other rank, but not of rows.
TEST(CudaChannels, BlocksForEachRankGoByWords) {
  const auto body = [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    const bool in_group = context.rank() != 1;
    axcclChannel_t channel = MakeChannel(clique.comm(), 4, {{0, 2, 3}, {1}}, 5);
    const int self = context.rank() == 0 ? 0 : context.rank() - 1;
    DeviceRoom room;
    ASSERT_TRUE(context.Barrier());
    for (const int64_t words : {1, 3, 128, 129, 300}) {
      const MatrixGroup group{channel, 3, self, 1, words, clique.stream()};
      for (const size_t kind : {MatrixGroup::kReduceScatter, MatrixGroup::kAllToAll}) {
        const uint64_t before = harness::InfoOf(clique.comm()).ll;
        for (int round = 0; in_group && round < 3; ++round) {
          const MatrixCall call = group.Calls(round)[kind];
          room.Reset();
          Matrix in(&room, call.in_rows, call.in_columns, false, 0),
              out(&room, call.out_rows, call.out_columns, false, 0);
          in.Fill(self, round);
          ASSERT_OK(call.call(in.view(), out.view()));
          ASSERT_OK(harness::SynchronizeStream(clique.stream()));
          ASSERT_EQ(out.CountWrong(call.expected), 0) << call.name << ", " << words << " words";
        }
        EXPECT_EQ(harness::InfoOf(clique.comm()).ll - before, in_group && words <= 128 ? 3u : 0u) << words;
        EXPECT_EQ(harness::InfoOf(clique.comm()).ll128, 0u);
      }
    }
    EXPECT_OK(axcclChannelDestroy(channel));
    ASSERT_TRUE(context.Barrier());
  };
  RunRanks(harness::Processes(4), body, Channels("16"));
  RunRanks(harness::Threads(4), body, Channels("4"));
}

// What a rank of 8 takes of its device before its first call, with room for as many created channels as by default or
// for none.
TEST(CudaChannels, TakeTheirMemoryAtOnce) {
  constexpr int kRanks = 8;
  for (const auto& [most, bytes] : {std::pair{"0", 4'400'000u}, std::pair{"16", 6'000'000u}}) {
    RunOptions options = Channels(most);
    options.environment.emplace_back("SOFTGPU_DEVICES", "1");
    const auto body = [bytes = bytes](RankContext& context) {
      const harness::GpuDriver* const driver = harness::EnterGpu();
      size_t before = 0, after = 0, total = 0;
      ASSERT_EQ(driver->memory_info(&before, &total), 0);
      Clique clique;
      ASSERT_TRUE(clique.Init(context));
      ASSERT_EQ(driver->memory_info(&after, &total), 0);
      if (CounterOf("softgpu_calls") == nullptr) return;  // others use the device, too, and drivers keep memory there
      EXPECT_LE((before - after) / kRanks, bytes);
      EXPECT_GE((before - after) / kRanks, bytes - 500'000) << "the memory is not where this test looks";
    };
    RunRanks(harness::OneThread(kRanks), body, options);
  }
}

}  // namespace
}  // namespace axccl::tests
