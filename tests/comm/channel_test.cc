// Channels: which ranks meet on them, in which order, how many there may be, and how they end.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/collectives/owned_view.h"
#include "tests/comm/streams.h"
#include "tests/harness/channels.h"
#include "tests/harness/gpu.h"
#include "tests/harness/random.h"
#include "tests/harness/timing.h"

namespace axccl::tests {
namespace {

using harness::Clique;
using harness::Cuda;
using harness::Gather;
using harness::LastErrorHas;
using harness::Layout;
using harness::MakeChannel;
using harness::MakeGroups;
using harness::NowNs;
using harness::Processes;
using harness::Random;
using harness::RankContext;
using harness::RunOptions;
using harness::RunRanks;
using harness::Seed;
using harness::Threads;

using Values = std::vector<int64_t>;

axcclChannelInfo_t InfoOf(axcclChannel_t channel) {
  axcclChannelInfo_t info{};
  info.size = sizeof(info);
  EXPECT_OK(axcclChannelGetInfo(channel, &info));
  return info;
}

// Gathers the ranks' numbers in a call of its own.
Values GatherRanks(const Clique& clique, axcclChannel_t channel, int group_size, int64_t count = 1) {
  Gather gather(group_size, count, clique.rank(0));
  EXPECT_OK(gather.Enqueue(channel, clique.stream()));
  EXPECT_OK(harness::SynchronizeStream(clique.stream()));
  return gather.Values();
}

class ChannelTest : public testing::TestWithParam<Layout> {};

TEST_P(ChannelTest, MeetInGroupsInTheirOrder) {
  RunRanks(GetParam(), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    const int rank = context.rank();
    axcclChannel_t pairs = MakeChannel(clique.comm(), 4, {{1, 0}, {2, 3}}, 7);
    axcclChannel_t reversed = MakeChannel(clique.comm(), 4, {{3, 2, 1, 0}}, 7);
    axcclChannel_t alone = MakeChannel(clique.comm(), 4, {{0}, {1}, {2}, {3}}, 7);
    axcclChannel_t all = MakeChannel(clique.comm(), 4, {}, 7);
    for (const int64_t count : {1, 1000, 100000}) {
      ASSERT_TRUE(context.Step("gathers of %lld", static_cast<long long>(count)));
      EXPECT_EQ(GatherRanks(clique, pairs, 2, count), rank < 2 ? (Values{1, 0}) : (Values{2, 3}));
      EXPECT_EQ(GatherRanks(clique, reversed, 4, count), (Values{3, 2, 1, 0}));
      EXPECT_EQ(GatherRanks(clique, alone, 1, count), Values{rank});
      EXPECT_EQ(GatherRanks(clique, all, 4, count), (Values{0, 1, 2, 3}));
    }
    // A root is a rank of the group.
    harness::DeviceVector<float> in(1, static_cast<float>(rank)), out(1, -1);
    axcclView_t view = AXCCL_VIEW_INITIALIZER, result = AXCCL_VIEW_INITIALIZER;
    view.data = in.data(), result.data = out.data();
    ASSERT_OK(axcclReduce(1, &view, &result, ncclSum, 1, reversed, nullptr, Cuda(clique.stream())));
    ASSERT_OK(harness::SynchronizeStream(clique.stream()));
    EXPECT_EQ(out[0], rank == 2 ? 6 : 0);
    EXPECT_EQ(axcclReduce(1, &view, &result, ncclSum, 2, pairs, nullptr, Cuda(clique.stream())), ncclInvalidArgument);
    EXPECT_TRUE(LastErrorHas("root is 2; pass a rank of the channel's group (0..1)")) << ncclGetLastError(nullptr);
    for (axcclChannel_t channel : {pairs, reversed, alone, all}) EXPECT_OK(axcclChannelDestroy(channel));
  });
}

TEST_P(ChannelTest, InfoGivesTheRanksPlace) {
  RunRanks(GetParam(), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    const int rank = context.rank();
    axcclChannelInfo_t info = InfoOf(axcclDefaultChannel(clique.comm()));
    EXPECT_EQ(info.rank, rank);
    EXPECT_EQ(info.group, 0);
    EXPECT_EQ(info.group_rank, rank);
    EXPECT_EQ(info.group_size, 4);
    EXPECT_EQ(info.replica_id, 0);
    EXPECT_EQ(info.partition_id, rank);
    axcclGroupSpec_t spec = AXCCL_GROUP_SPEC_INITIALIZER;
    const int64_t ids[] = {1, 0};
    spec.mode = axcclCrossReplica, spec.num_replicas = 2, spec.num_partitions = 2;
    spec.ids = ids, spec.num_groups = 1, spec.group_size = 2;
    axcclGroups_t groups = nullptr;
    ASSERT_OK(axcclGroupsCreate(&groups, &spec));
    axcclChannel_t channel = nullptr;
    ASSERT_OK(axcclChannelCreate(&channel, clique.comm(), groups, 41, 0));
    EXPECT_OK(axcclGroupsDestroy(groups));
    info = InfoOf(channel);
    EXPECT_EQ(info.channel_id, 41);
    EXPECT_EQ(info.num_ranks, 4);
    EXPECT_EQ(info.group, rank % 2);
    EXPECT_EQ(info.group_rank, 1 - rank / 2);
    EXPECT_EQ(info.group_size, 2);
    EXPECT_EQ(info.replica_id, rank / 2);
    EXPECT_EQ(info.partition_id, rank % 2);
    EXPECT_OK(axcclChannelDestroy(channel));
  });
}

TEST_P(ChannelTest, CallsOfARankInNoGroupAreRefused) {
  RunRanks(GetParam(), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    axcclChannel_t channel = MakeChannel(clique.comm(), 4, {{2, 0}}, -5);
    if (context.rank() % 2 == 0) {
      EXPECT_EQ(GatherRanks(clique, channel, 2), (Values{2, 0}));
    } else {
      EXPECT_EQ(InfoOf(channel).group, -1);
      EXPECT_EQ(InfoOf(channel).group_size, 0);
      Gather gather(2, 1, 0);
      EXPECT_EQ(gather.Enqueue(channel, clique.stream()), ncclInvalidUsage);
      EXPECT_TRUE(LastErrorHas("rank " + std::to_string(context.rank()) + " is in no group of channel -5"))
          << ncclGetLastError(nullptr);
    }
    EXPECT_OK(axcclChannelDestroy(channel));
  });
}

// The calls are on different streams, or in one group on one stream.
TEST_P(ChannelTest, OppositeOrdersComplete) {
  RunRanks(GetParam(), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context, 2));
    axcclChannel_t channels[] = {MakeChannel(clique.comm(), 4, {}, 1), MakeChannel(clique.comm(), 4, {}, 2)};
    for (int round = 0; round < 60; ++round) {
      ASSERT_TRUE(context.Step("round %d", round));
      const bool group = round % 2 == 1;
      const int64_t count = round % 3 == 0 ? 1 : round % 3 == 1 ? 500 : 50000;
      Gather gathers[] = {Gather(4, count, 10 + context.rank()), Gather(4, count, 20 + context.rank())};
      const int first = (context.rank() + round / 2) % 2;
      if (group) {
        ASSERT_OK(ncclGroupStart());
      }
      for (const int which : {first, 1 - first})
        ASSERT_OK(gathers[which].Enqueue(channels[which], clique.stream(0, group ? 0 : which)));
      if (group) {
        ASSERT_OK(ncclGroupEnd());
      }
      ASSERT_TRUE(clique.Synchronize());
      ASSERT_EQ(gathers[0].Values(), (Values{10, 11, 12, 13}));
      ASSERT_EQ(gathers[1].Values(), (Values{20, 21, 22, 23}));
    }
    for (axcclChannel_t channel : channels) EXPECT_OK(axcclChannelDestroy(channel));
  });
}

// Each rank picks the streams at random.
TEST_P(ChannelTest, CallsOnOneChannelKeepTheirOrder) {
  RunRanks(GetParam(), [](RankContext& context) {
    constexpr int kCalls = 200, kStreams = 3;
    Clique clique;
    ASSERT_TRUE(clique.Init(context, kStreams));
    axcclChannel_t channel = MakeChannel(clique.comm(), 4, {{2, 1, 3, 0}}, 1);
    Random random(harness::Scramble(Seed(), 72, static_cast<uint64_t>(context.rank())));
    std::vector<std::unique_ptr<Gather>> gathers;
    for (int i = 0; i < kCalls; ++i) {
      gathers.push_back(std::make_unique<Gather>(4, 3, 10 * i + context.rank()));
      const int stream = static_cast<int>(random.Below(kStreams));
      ASSERT_OK(gathers.back()->Enqueue(channel, clique.stream(0, stream)));
    }
    ASSERT_TRUE(clique.Synchronize());
    for (int64_t i = 0; i < kCalls; ++i)
      ASSERT_EQ(gathers[i]->Values(), (Values{10 * i + 2, 10 * i + 1, 10 * i + 3, 10 * i})) << "call " << i;
    EXPECT_OK(axcclChannelDestroy(channel));
  });
}

// Ranks 0 and 1 make many calls while ranks 2 and 3 make few; no call needs all four.
TEST_P(ChannelTest, DisjointGroupsDoNotWaitForEachOther) {
  RunRanks(GetParam(), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    axcclChannel_t channel = MakeChannel(clique.comm(), 4, {{0, 1}, {2, 3}}, 0);
    const bool first = context.rank() < 2;
    for (int i = 0; i < (first ? 300 : 3); ++i)
      ASSERT_EQ(GatherRanks(clique, channel, 2, 1 + i % 7), first ? (Values{0, 1}) : (Values{2, 3}));
    EXPECT_OK(axcclChannelDestroy(channel));
  });
}

TEST_P(ChannelTest, ManyAtOnce) {
  RunOptions options;
  options.deadline = std::chrono::seconds(60);
  RunRanks(
      GetParam(),
      [](RankContext& context) {
        constexpr int kChannels = 200, kStreams = 4;
        Clique clique;
        ASSERT_TRUE(clique.Init(context, kStreams));
        std::vector<axcclChannel_t> channels;
        std::vector<std::unique_ptr<Gather>> gathers;
        for (int c = 0; c < kChannels; ++c) {
          channels.push_back(MakeChannel(clique.comm(), 4, {{0, 1, 2, 3}}, c));
          gathers.push_back(std::make_unique<Gather>(4, 1 + c % 50, 1000 * c + context.rank()));
        }
        ASSERT_TRUE(context.Step("calls on %d channels", kChannels));
        for (int round = 0; round < 3; ++round) {
          for (int c = 0; c < kChannels; ++c)
            ASSERT_OK(gathers[c]->Enqueue(channels[c], clique.stream(0, c % kStreams)));
        }
        ASSERT_TRUE(clique.Synchronize());
        for (int c = 0; c < kChannels; ++c) {
          const int64_t base = 1000 * c;
          ASSERT_EQ(gathers[c]->Values(), (Values{base, base + 1, base + 2, base + 3}));
        }
        for (axcclChannel_t channel : channels) EXPECT_OK(axcclChannelDestroy(channel));
      },
      options);
}

// The memory in use on the process's heap, in blocks.
int64_t HeapBlocks() {
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code error;
    const std::string target = std::filesystem::read_symlink(entry.path(), error).string();
    struct stat status {};
    if (target.find("axccl-heap") != std::string::npos && stat(entry.path().c_str(), &status) == 0)
      return status.st_blocks;
  }
  return -1;
}

size_t Descriptors() {
  size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) count += !entry.path().empty();
  return count;
}

TEST_P(ChannelTest, ComeAndGoAndLeaveNothingBehind) {
  RunOptions options;
  options.deadline = std::chrono::seconds(100);
  RunRanks(
      GetParam(),
      [](RankContext& context) {
        Clique clique;
        ASSERT_TRUE(clique.Init(context));
        Random random(harness::Scramble(Seed(), 71));
        int64_t blocks = 0;
        size_t descriptors = 0;
        for (int i = 0; i < 2000; ++i) {
          ASSERT_TRUE(context.Step("cycle %d", i));
          const bool pairs = random.OneIn(2);
          const int64_t id = static_cast<int64_t>(random.Below(3));
          axcclChannel_t channel = pairs ? MakeChannel(clique.comm(), 4, {{1, 0}, {2, 3}}, id)
                                         : MakeChannel(clique.comm(), 4, {{0, 1, 2, 3}}, id);
          Gather gather(pairs ? 2 : 4, 1 + static_cast<int64_t>(random.Below(300)), context.rank());
          const bool used = !random.OneIn(5);
          if (used) {
            ASSERT_OK(gather.Enqueue(channel, clique.stream()));
          }
          // Destroys the channel while the operation runs.
          ASSERT_OK(axcclChannelDestroy(channel));
          ASSERT_TRUE(clique.Synchronize());
          const Values expected = !pairs ? Values{0, 1, 2, 3} : context.rank() < 2 ? Values{1, 0} : Values{2, 3};
          if (used) {
            ASSERT_EQ(gather.Values(), expected);
          }
          if (i != 200 && i != 1999) continue;
          ASSERT_TRUE(context.Barrier(3));
          // Two more on all ranks: what the first leaves behind is freed by the second.
          for (int more = 0; more < 2; ++more) {
            ASSERT_OK(axcclChannelDestroy(MakeChannel(clique.comm(), 4, {}, 99)));
            ASSERT_TRUE(context.Barrier(3));
          }
          // One thread of each process counts, because counting opens a descriptor.
          const bool looks = context.rank() % context.layout().threads == 0;
          if (looks && i == 200) {
            blocks = HeapBlocks();
            descriptors = Descriptors();
            ASSERT_GT(blocks, 0);
          } else if (looks) {
            // The table of channels (64 KiB, and a few slots for each rank) may have touched more pages since.
            EXPECT_LE(HeapBlocks(), blocks + 4 * 80 * 2);
            EXPECT_EQ(Descriptors(), descriptors);
          }
          ASSERT_TRUE(context.Barrier(3));
        }
      },
      options);
}

TEST_P(ChannelTest, CreatingAChannelTwiceGivesTheSame) {
  RunRanks(GetParam(), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    axcclChannel_t first = MakeChannel(clique.comm(), 4, {{0, 1}, {3, 2}}, 5);
    axcclChannel_t second = MakeChannel(clique.comm(), 4, {{0, 1}, {3, 2}}, 5);
    axcclChannel_t other = MakeChannel(clique.comm(), 4, {{0, 1}, {3, 2}}, 6);
    EXPECT_EQ(first, second);
    EXPECT_NE(first, other);
    EXPECT_OK(axcclChannelDestroy(first));
    EXPECT_EQ(GatherRanks(clique, second, 2), context.rank() < 2 ? (Values{0, 1}) : (Values{3, 2}));
    EXPECT_OK(axcclChannelDestroy(second));
    EXPECT_EQ(axcclChannelDestroy(second), ncclInvalidArgument);
    // Creates it again while other ranks may still use the previous one.
    for (int i = 0; i < 20; ++i) {
      axcclChannel_t again = MakeChannel(clique.comm(), 4, {{0, 1}, {3, 2}}, 5);
      EXPECT_EQ(GatherRanks(clique, again, 2, 1 + i), context.rank() < 2 ? (Values{0, 1}) : (Values{3, 2}));
      EXPECT_OK(axcclChannelDestroy(again));
    }
    EXPECT_OK(axcclChannelDestroy(other));
  });
}

TEST_P(ChannelTest, RanksWaitForALateCreator) {
  RunRanks(GetParam(), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    Gather gather(4, 10, context.rank());
    if (context.rank() == 2) {
      ASSERT_TRUE(context.Barrier(1));
    }
    axcclChannel_t channel = MakeChannel(clique.comm(), 4, {{3, 2, 1, 0}}, 9);
    ASSERT_OK(gather.Enqueue(channel, clique.stream()));
    if (context.rank() != 2) {
      EXPECT_EQ(harness::QueryStream(clique.stream()), ncclInProgress);
      ASSERT_TRUE(context.Barrier(1));
    }
    ASSERT_TRUE(clique.Synchronize());
    EXPECT_EQ(gather.Values(), (Values{3, 2, 1, 0}));
    EXPECT_OK(axcclChannelDestroy(channel));
  });
}

TEST_P(ChannelTest, MixWithNcclCallsInOneGroup) {
  RunRanks(GetParam(), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context, 2));
    axcclChannel_t channel = MakeChannel(clique.comm(), 4, {{3, 0}, {1, 2}}, 3);
    for (int round = 0; round < 20; ++round) {
      Gather on_channel(2, 100, context.rank()), on_default(4, 10, context.rank());
      harness::DeviceVector<int> sums(1000, 1);
      const int last = round % 2;
      ASSERT_OK(ncclGroupStart());
      ASSERT_OK(on_channel.Enqueue(channel, clique.stream()));
      ASSERT_OK(ncclAllReduce(sums.data(), sums.data(), sums.size(), ncclInt32, ncclSum, clique.comm(),
                              Cuda(clique.stream(0, last))));
      ASSERT_OK(on_default.Enqueue(axcclDefaultChannel(clique.comm()), clique.stream()));
      ASSERT_OK(ncclGroupEnd());
      ASSERT_TRUE(clique.Synchronize());
      ASSERT_EQ(on_channel.Values(), context.rank() % 3 == 0 ? (Values{3, 0}) : (Values{1, 2}));
      ASSERT_EQ(on_default.Values(), (Values{0, 1, 2, 3}));
      ASSERT_EQ(std::count(sums.begin(), sums.end(), 4), 1000);
    }
    // Destroys it in the group: the call is still executed.
    Gather gather(2, 5, context.rank());
    ASSERT_OK(ncclGroupStart());
    ASSERT_OK(gather.Enqueue(channel, clique.stream()));
    EXPECT_OK(axcclChannelDestroy(channel));
    ASSERT_OK(ncclGroupEnd());
    ASSERT_TRUE(clique.Synchronize());
    EXPECT_EQ(gather.Values(), context.rank() % 3 == 0 ? (Values{3, 0}) : (Values{1, 2}));
  });
}

TEST_P(ChannelTest, OutliveTheirCommunicatorAsHandlesOnly) {
  RunRanks(GetParam(), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    axcclChannel_t used = MakeChannel(clique.comm(), 4, {{3, 2, 1, 0}}, 11);
    axcclChannel_t twice = MakeChannel(clique.comm(), 4, {{3, 2, 1, 0}}, 11);
    axcclChannel_t unused = MakeChannel(clique.comm(), 4, {}, 12);
    Gather gather(4, 20000, context.rank());
    ASSERT_OK(gather.Enqueue(used, clique.stream()));
    // Destroying waits for the channel's work.
    EXPECT_OK(ncclCommDestroy(clique.comm()));
    clique.ForgetComms();
    EXPECT_EQ(gather.Values(), (Values{3, 2, 1, 0}));
    EXPECT_EQ(gather.Enqueue(used, clique.stream()), ncclInvalidArgument);
    EXPECT_TRUE(LastErrorHas("of channel 11 has been destroyed")) << ncclGetLastError(nullptr);
    axcclChannelInfo_t info{};
    info.size = sizeof(info);
    EXPECT_EQ(axcclChannelGetInfo(unused, &info), ncclInvalidArgument);
    for (axcclChannel_t channel : {used, twice, unused}) EXPECT_OK(axcclChannelDestroy(channel));
    EXPECT_EQ(axcclChannelDestroy(used), ncclInvalidArgument);
  });
}

TEST_P(ChannelTest, FinalizeWaitsForChannels) {
  RunRanks(GetParam(), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    axcclChannel_t channel = MakeChannel(clique.comm(), 4, {}, 1);
    Gather gather(4, 30000, context.rank());
    ASSERT_OK(gather.Enqueue(channel, clique.stream()));
    EXPECT_OK(axcclChannelDestroy(channel));
    EXPECT_OK(ncclCommFinalize(clique.comm()));
    EXPECT_EQ(gather.Values(), (Values{0, 1, 2, 3}));
    axcclChannel_t late = nullptr;
    EXPECT_EQ(axcclChannelCreate(&late, clique.comm(), nullptr, 0, 0), ncclInvalidUsage);
    EXPECT_EQ(late, nullptr);
  });
}

// The message cannot leave before its stream gets there, which is while the rank waits.
TEST_P(ChannelTest, FinalizeWaitsForTaggedMessages) {
  if (harness::OnGpu()) GTEST_SKIP() << "of host ranks";
  RunRanks(GetParam(), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    axcclChannel_t channel = MakeChannel(clique.comm(), 4, {}, 1);
    axcclOptions_t options = AXCCL_OPTIONS_INITIALIZER;
    options.tag = 5;
    int32_t mine = context.rank(), received = -1;
    const View in(&mine, {1}), out(&received, {1});
    Gate gate;
    ASSERT_OK(axcclLaunchHostFunc(clique.stream(), WaitAtGate, &gate));
    ASSERT_OK(ncclGroupStart());
    ASSERT_OK(axcclSend(1, in, (context.rank() + 1) % 4, channel, &options, Cuda(clique.stream())));
    ASSERT_OK(axcclRecv(1, out, (context.rank() + 3) % 4, channel, &options, Cuda(clique.stream())));
    ASSERT_OK(ncclGroupEnd());
    std::thread opener([&] {
      EXPECT_EQ(axcclStreamSynchronizeFor(clique.stream(), 0.1), ncclInProgress);
      gate.Open();
    });
    EXPECT_OK(ncclCommFinalize(clique.comm()));
    EXPECT_EQ(received, (context.rank() + 3) % 4);
    opener.join();
    ASSERT_TRUE(clique.Synchronize());
    EXPECT_OK(axcclChannelDestroy(channel));
  });
}

std::string LayoutName(const testing::TestParamInfo<Layout>& info) { return info.param.Text(); }
INSTANTIATE_TEST_SUITE_P(Layouts, ChannelTest, testing::Values(Threads(4), Processes(4)), LayoutName);

// All ranks in one thread, which creates their channels one after the other.
TEST(Channel, ManyRanksInOneThread) {
  RunRanks(harness::OneThread(4), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    std::vector<axcclChannel_t> channels;
    std::vector<std::unique_ptr<Gather>> gathers;
    ASSERT_OK(ncclGroupStart());
    for (int i = 0; i < 4; ++i) {
      channels.push_back(MakeChannel(clique.comm(i), 4, {{2, 0}, {1, 3}}, 1));
      gathers.push_back(std::make_unique<Gather>(2, 100, clique.rank(i)));
      ASSERT_OK(gathers[i]->Enqueue(channels[i], clique.stream(i)));
    }
    ASSERT_OK(ncclGroupEnd());
    ASSERT_TRUE(clique.Synchronize());
    for (int i = 0; i < 4; ++i) {
      EXPECT_EQ(gathers[i]->Values(), i % 2 == 0 ? (Values{2, 0}) : (Values{1, 3}));
      EXPECT_OK(axcclChannelDestroy(channels[i]));
    }
  });
}

TEST(Channel, BadArguments) {
  RunRanks(Threads(2), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    axcclChannel_t channel = nullptr;
    axcclGroups_t groups = MakeGroups(3, {{0, 1, 2}});
    EXPECT_EQ(axcclChannelCreate(&channel, clique.comm(), groups, 0, 0), ncclInvalidArgument);
    EXPECT_TRUE(LastErrorHas("is for 3 ranks (1 replicas x 3 partitions), the communicator has 2"))
        << ncclGetLastError(nullptr);
    EXPECT_OK(axcclGroupsDestroy(groups));
    EXPECT_EQ(axcclChannelCreate(&channel, clique.comm(), groups, 0, 0), ncclInvalidArgument);
    EXPECT_EQ(axcclChannelCreate(&channel, clique.comm(), nullptr, 0, 2), ncclInvalidArgument);
    EXPECT_TRUE(LastErrorHas("flags is 0x2")) << ncclGetLastError(nullptr);
    EXPECT_EQ(axcclChannelCreate(nullptr, clique.comm(), nullptr, 0, 0), ncclInvalidArgument);
    EXPECT_EQ(axcclChannelCreate(&channel, nullptr, nullptr, 0, 0), ncclInvalidArgument);
    EXPECT_EQ(axcclChannelDestroy(nullptr), ncclInvalidArgument);
    EXPECT_EQ(axcclChannelDestroy(axcclDefaultChannel(clique.comm())), ncclInvalidArgument);
    EXPECT_TRUE(LastErrorHas("default channel")) << ncclGetLastError(nullptr);
    Gather gather(2, 1, 0);
    EXPECT_EQ(gather.Enqueue(nullptr, clique.stream()), ncclInvalidArgument);
    EXPECT_TRUE(LastErrorHas("argument channel is NULL")) << ncclGetLastError(nullptr);
    axcclChannelInfo_t info{};
    EXPECT_EQ(axcclChannelGetInfo(axcclDefaultChannel(clique.comm()), &info), ncclInvalidArgument);
  });
}

// Creates channels up to the limit; then the error names the limit.
TEST(Channel, NumberIsLimited) {
  RunOptions options;
  options.deadline = std::chrono::seconds(60);
  RunRanks(
      Processes(1),
      [](RankContext& context) {
        Clique clique;
        ASSERT_TRUE(clique.Init(context));
        std::vector<axcclChannel_t> channels;
        const int64_t blocks = HeapBlocks();
        ncclResult_t result = ncclSuccess;
        while (result == ncclSuccess && channels.size() < 5000) {
          axcclChannel_t channel = nullptr;
          result = axcclChannelCreate(&channel, clique.comm(), nullptr, static_cast<int64_t>(channels.size()), 0);
          if (result == ncclSuccess) channels.push_back(channel);
        }
        EXPECT_EQ(result, ncclInvalidUsage);
        EXPECT_EQ(channels.size(), 4095u);
        EXPECT_TRUE(LastErrorHas("(4095); destroy some")) << ncclGetLastError(nullptr);
        // The table and 64 bytes each: the memory for a channel's operations is allocated with the first operation.
        const int64_t most = blocks + 2 * (64 + 4096 * 64 / 1024 + 8);
        EXPECT_LE(HeapBlocks(), most);
        EXPECT_OK(axcclChannelDestroy(channels.back()));
        EXPECT_OK(axcclChannelCreate(&channels.back(), clique.comm(), nullptr, 7777, 0));
        EXPECT_EQ(GatherRanks(clique, channels.back(), 1), Values{0});
        for (axcclChannel_t channel : channels) ASSERT_OK(axcclChannelDestroy(channel));
        EXPECT_LE(HeapBlocks(), most);
      },
      options);
}

TEST(Channel, CreationIsCheap) {
  RunRanks(Threads(8), [](RankContext& context) {
    constexpr int kTimes = 1000;
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    axcclGroups_t groups = MakeGroups(8, {{0, 1, 2, 3}, {7, 6, 5, 4}});
    std::vector<axcclChannel_t> channels(kTimes);
    std::vector<uint64_t> times(kTimes);
    ASSERT_TRUE(context.Barrier());
    for (int i = 0; i < kTimes; ++i) {
      const uint64_t start = NowNs();
      ASSERT_OK(axcclChannelCreate(&channels[i], clique.comm(), groups, i, 0));
      times[i] = NowNs() - start;
    }
    std::nth_element(times.begin(), times.begin() + kTimes / 2, times.end());
    if (context.rank() == 0) std::printf("creating a channel on 8 ranks: median %.2f us\n", times[kTimes / 2] / 1e3);
    EXPECT_LT(times[kTimes / 2], 20000u * 3u * static_cast<uint64_t>(harness::TimeScale()));
    for (axcclChannel_t channel : channels) ASSERT_OK(axcclChannelDestroy(channel));
    EXPECT_OK(axcclGroupsDestroy(groups));
  });
}

}  // namespace
}  // namespace axccl::tests
