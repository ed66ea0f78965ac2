// collective_permute, send and recv on views, against their definition: random pairs, lists, shapes, strides, types and
// memory; channels; order; and the results of ranks that are in no group.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "tests/collectives/owned_view.h"
#include "tests/collectives/permute_cases.h"
#include "tests/harness/client.h"
#include "tests/harness/gpu.h"

namespace axccl::tests {
namespace {

using harness::Clique;
using harness::Cuda;
using harness::GuardedArena;
using harness::LastErrorHas;
using harness::Layout;
using harness::Memory;
using harness::Random;
using harness::RankContext;
using harness::RunRanks;
using harness::Scramble;
using harness::Seed;

void RunPermutes(RankContext& context, uint64_t seed) {
  Clique clique;
  ASSERT_TRUE(clique.Init(context));
  std::vector<std::vector<std::unique_ptr<GuardedArena>>> arenas(static_cast<size_t>(clique.size()));
  std::vector<axcclChannel_t> created(arenas.size());
  for (int m = 0; m < clique.size(); ++m) {
    for (const Memory memory : {Memory::kMemAlloc, Memory::kMalloc})
      arenas[static_cast<size_t>(m)].push_back(GuardedArena::Create(memory, size_t{64} << 20));
    ASSERT_OK(axcclChannelCreate(&created[static_cast<size_t>(m)], clique.comm(m), nullptr, 5, 0));
  }
  Random random(seed);
  for (int i = 0; i < 150; ++i) {
    const PermuteCase c = AnyPermuteCase(&random, clique.nranks());
    const bool on_default = random.OneIn(2);
    ASSERT_TRUE(context.Step("%s", c.Text().c_str()));
    std::vector<std::unique_ptr<PermutePart>> parts;
    for (int m = 0; m < clique.size(); ++m)
      parts.push_back(std::make_unique<PermutePart>(c, clique.rank(m), &arenas[static_cast<size_t>(m)]));
    if (clique.size() > 1) {
      ASSERT_OK(ncclGroupStart());
    }
    for (size_t m = 0; m < parts.size(); ++m) {
      const int member = static_cast<int>(m);
      EXPECT_OK(parts[m]->Launch(on_default ? axcclDefaultChannel(clique.comm(member)) : created[m],
                                 Cuda(clique.stream(member))))
          << c.Text();
    }
    if (clique.size() > 1) {
      ASSERT_OK(ncclGroupEnd());
    }
    ASSERT_TRUE(clique.Synchronize()) << c.Text();
    for (const auto& part : parts) part->Check();
    for (auto& own : arenas) {
      for (auto& arena : own) {
        EXPECT_EQ(arena->CheckSentinels(), "") << c.Text();
        arena->Reset();
      }
    }
    ASSERT_FALSE(testing::Test::HasFailure());
  }
  for (const axcclChannel_t channel : created) EXPECT_OK(axcclChannelDestroy(channel));
}

class PermuteTest : public testing::TestWithParam<Layout> {};

TEST_P(PermuteTest, RandomPairsAgreeWithTheDefinition) {
  const uint64_t seed =
      Scramble(Seed(), 0x9e3, static_cast<uint64_t>(GetParam().processes * 64 + GetParam().threads * 8));
  RunRanks(GetParam(), [&](RankContext& context) { RunPermutes(context, seed); });
}

INSTANTIATE_TEST_SUITE_P(Layouts, PermuteTest,
                         testing::Values(harness::Processes(1), harness::Processes(2), harness::Processes(4),
                                         harness::Threads(3), harness::Threads(6), harness::OneThread(4),
                                         Layout{2, 2, 1}),
                         [](const auto& info) { return info.param.Text(); });

// XLA's CollectivePermute_Simple (collective_ops_test.cc): pairs {1,0}, {0,1}, {2,2}; rank 3 gets zeros.
TEST(Permute, OfXla) {
  RunRanks(harness::Processes(4), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    const auto rank = static_cast<uint32_t>(context.rank());
    uint32_t in[2] = {rank + 10, rank + 10}, out[2] = {99, 99};
    const View from(in, {2}, {}, ncclUint32), to(out, {2}, {}, ncclUint32);
    const int64_t pairs[] = {1, 0, 0, 1, 2, 2};
    ASSERT_OK(axcclCollectivePermute(1, from, to, pairs, 3, axcclDefaultChannel(clique.comm()), nullptr,
                                     Cuda(clique.stream())));
    ASSERT_TRUE(clique.Synchronize());
    const uint32_t expected[] = {11, 10, 12, 0};
    EXPECT_EQ(out[0], expected[rank]);
    EXPECT_EQ(out[1], expected[rank]);
  });
}

// Messages of one sender on one channel arrive in order, and do not mix with those of another channel.
TEST(Messages, AreFifoOnAChannel) {
  for (const Layout& layout : {harness::Processes(2), harness::Threads(2)}) {
    RunRanks(layout, [](RankContext& context) {
      Clique clique;
      ASSERT_TRUE(clique.Init(context, 2));
      axcclChannel_t channels[2];
      for (int64_t id = 0; id < 2; ++id) ASSERT_OK(axcclChannelCreate(&channels[id], clique.comm(), nullptr, id, 0));
      constexpr int kMessages = 40;
      harness::DeviceVector<int32_t> data(2 * kMessages, -1);
      for (int i = 0; i < 2 * kMessages; ++i) {
        int32_t* const at = &data[static_cast<size_t>(i)];
        if (context.rank() == 0) *at = i;
        const View view(at, {1, 1});
        // The receiver takes the other channel's messages first.
        const int which = context.rank() == 0 ? i % 2 : i / kMessages;
        const int stream = which;
        if (context.rank() == 0) {
          ASSERT_OK(axcclSend(1, view, 1, channels[which], nullptr, Cuda(clique.stream(0, stream))));
        } else {
          ASSERT_OK(axcclRecv(1, view, 0, channels[which], nullptr, Cuda(clique.stream(0, stream))));
        }
      }
      ASSERT_TRUE(clique.Synchronize());
      if (context.rank() == 1) {
        for (int i = 0; i < kMessages; ++i) {
          EXPECT_EQ(data[static_cast<size_t>(i)], 2 * i);
          EXPECT_EQ(data[static_cast<size_t>(kMessages + i)], 2 * i + 1);
        }
      }
      ASSERT_TRUE(context.Barrier());
      for (const axcclChannel_t channel : channels) EXPECT_OK(axcclChannelDestroy(channel));
    });
  }
}

TEST(Messages, ToOneselfAndBetweenLayouts) {
  RunRanks(harness::Processes(2), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    const axcclChannel_t channel = axcclDefaultChannel(clique.comm());
    const cudaStream_t stream = Cuda(clique.stream());
    harness::DeviceVector<int32_t> in = {1, 2, 3, 4}, other(4), own(4);
    const View from(in.data(), {2, 2}), to(other.data(), {2, 2}, {1, 2}), self(own.data(), {2, 2}, {-2, 1});
    axcclView_t reversed = self.view;
    reversed.data = own.data() + 2;
    const int peer = 1 - context.rank();
    EXPECT_EQ(axcclSend(1, from, context.rank(), channel, nullptr, stream), ncclInvalidUsage);
    EXPECT_TRUE(LastErrorHas("axcclSend: rank")) << ncclGetLastError(nullptr);
    ASSERT_OK(ncclGroupStart());
    ASSERT_OK(axcclRecv(1, &reversed, context.rank(), channel, nullptr, stream));
    ASSERT_OK(axcclSend(1, from, peer, channel, nullptr, stream));
    ASSERT_OK(axcclRecv(1, to, peer, channel, nullptr, stream));
    ASSERT_OK(axcclSend(1, from, context.rank(), channel, nullptr, stream));
    ASSERT_OK(ncclGroupEnd());
    ASSERT_TRUE(clique.Synchronize());
    EXPECT_EQ(other, (harness::DeviceVector<int32_t>{1, 3, 2, 4}));
    EXPECT_EQ(own, (harness::DeviceVector<int32_t>{3, 4, 1, 2}));
  });
}

// Both sides must give the same shapes.
TEST(Messages, MismatchIsReportedToBothSides) {
  RunRanks(harness::Processes(2), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    int32_t data[4] = {};
    const View four(data, {4}), square(data, {2, 2});
    const axcclChannel_t channel = axcclDefaultChannel(clique.comm());
    if (context.rank() == 0) {
      (void)axcclSend(1, four, 1, channel, nullptr, Cuda(clique.stream()));
    } else {
      (void)axcclRecv(1, square, 0, channel, nullptr, Cuda(clique.stream()));
    }
    clique.ExpectMismatch({"of blocks [4] int32", "of blocks [2, 2] int32"});
  });
}

// The pairs are the same on all ranks, also those that do not name the rank.
TEST(Permute, OtherPairsAreAMismatch) {
  RunRanks(harness::Processes(3), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    int32_t in[4] = {}, out[4] = {};
    const View from(in, {4}), to(out, {4});
    const int64_t pairs[] = {0, 1, 2, 0};
    if (context.rank() < 2) {
      (void)axcclCollectivePermute(1, from, to, pairs, context.rank() == 0 ? 1 : 2, axcclDefaultChannel(clique.comm()),
                                   nullptr, Cuda(clique.stream()));
      ASSERT_NO_FATAL_FAILURE(clique.ExpectMismatch({"CollectivePermute", "with other pairs or later operands"}));
    }
    ASSERT_TRUE(context.Barrier());
    if (context.rank() == 2) {
      EXPECT_OK(ncclCommAbort(clique.comm()));
      clique.ForgetComms();
    }
  });
}

TEST(Permute, WrongArgumentsAreNamed) {
  RunRanks(harness::Threads(2), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    int32_t in[4] = {}, out[4] = {7, 7, 7, 7};
    const View from(in, {4}), to(out, {4}), small(out, {3});
    const axcclChannel_t channel = axcclDefaultChannel(clique.comm());
    const cudaStream_t stream = Cuda(clique.stream());
    auto refused = [&](const axcclView_t* a, const axcclView_t* b, std::vector<int64_t> pairs, const char* words) {
      EXPECT_EQ(
          axcclCollectivePermute(1, a, b, pairs.data(), static_cast<int>(pairs.size() / 2), channel, nullptr, stream),
          ncclInvalidArgument)
          << words;
      EXPECT_TRUE(LastErrorHas(words)) << words << " not in " << ncclGetLastError(nullptr);
      EXPECT_TRUE(LastErrorHas("axcclCollectivePermute")) << ncclGetLastError(nullptr);
    };
    refused(from, to, {0, 1, 0, 0}, "0");
    refused(from, to, {0, 1, 1, 1}, "1");
    refused(from, to, {0, 2}, "the target of pair 0 is 2, out of range; pass ranks of the channel's group (0..1)");
    refused(from, to, {0, 1, -1, 0},
            "the source of pair 1 is -1, out of range; pass ranks of the channel's group (0..1)");
    refused(from, small, {0, 1, 1, 0}, "expected 4");
    refused(from, from, {0, 1, 1, 0}, "cannot run in place");
    refused(nullptr, to, {0, 1, 1, 0}, "the input is missing");
    refused(from, nullptr, {0, 1, 1, 0}, "the output is missing");
    EXPECT_EQ(axcclSend(1, from, 2, channel, nullptr, stream), ncclInvalidArgument);
    EXPECT_TRUE(LastErrorHas("axcclSend: argument peer is 2; pass a rank of the channel's group (0..1)"));
    EXPECT_EQ(axcclRecv(1, nullptr, 1, channel, nullptr, stream), ncclInvalidArgument);
    EXPECT_TRUE(LastErrorHas("axcclRecv: the output is missing")) << ncclGetLastError(nullptr);
    EXPECT_EQ(out[0], 7);
    ASSERT_TRUE(clique.Synchronize());
  });
}

// Only ranks 0 and 2 of four are in a group.
TEST(Outside, RanksInNoGroupGetZeros) {
  RunRanks(harness::Processes(4), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    const int64_t ids[] = {0, 2};
    axcclGroupSpec_t spec = AXCCL_GROUP_SPEC_INITIALIZER;
    spec.num_replicas = 1, spec.num_partitions = 4, spec.mode = axcclFlattenedIds;
    spec.ids = ids, spec.num_groups = 1, spec.group_size = 2;
    axcclGroups_t groups;
    ASSERT_OK(axcclGroupsCreate(&groups, &spec));
    axcclChannel_t channel;
    ASSERT_OK(axcclChannelCreate(&channel, clique.comm(), groups, 1, 0));
    const bool inside = context.rank() % 2 == 0;
    const int position = context.rank() / 2;
    const cudaStream_t stream = Cuda(clique.stream());
    int32_t in[2] = {context.rank() + 1, context.rank() + 1}, out[5][2];
    std::memset(out, 0x55, sizeof(out));
    const View from(in, {2}), to0(out[0], {2}), to1(out[1], {2}), to2(out[2], {2}), to3(out[3], {2}), to4(out[4], {2});
    const int64_t pairs[] = {0, 1};
    const int32_t roots[] = {1};
    ASSERT_OK(axcclBroadcast(1, from, to0, 0, channel, nullptr, stream));
    ASSERT_OK(axcclReduce(1, from, to1, ncclSum, 1, channel, nullptr, stream));
    ASSERT_OK(axcclCollectivePermute(1, from, to2, pairs, 1, channel, nullptr, stream));
    ASSERT_OK(axcclBroadcastFrom(1, from, to3, roots, channel, nullptr, stream));
    ASSERT_OK(axcclReduceTo(1, from, to4, ncclSum, roots, channel, nullptr, stream));
    ASSERT_TRUE(clique.Synchronize());
    const int32_t expected[5] = {inside ? 1 : 0, context.rank() == 2 ? 4 : 0, context.rank() == 2 ? 1 : 0,
                                 inside ? 3 : 0, context.rank() == 2 ? 4 : 0};
    for (int i = 0; i < 5; ++i) {
      EXPECT_EQ(out[i][0], expected[i]) << i << " position " << position;
      EXPECT_EQ(out[i][1], expected[i]) << i;
    }
    if (!inside) {
      EXPECT_EQ(axcclAllReduce(1, from, to0, ncclSum, channel, nullptr, stream), ncclInvalidUsage);
      EXPECT_TRUE(LastErrorHas("is in no group of channel 1")) << ncclGetLastError(nullptr);
    }
    EXPECT_OK(axcclChannelDestroy(channel));
    EXPECT_OK(axcclGroupsDestroy(groups));
  });
}

}  // namespace
}  // namespace axccl::tests
