// Ranks of a group share the event that ends its launch; apart from that, the order of each rank's calls is its own:
// what a rank launches later waits for no other rank's later calls.
//
// CUDA's rules on which that relies are in src/exec/cuda/orders.h. Each test would wait for ever, or get an error of
// the driver, if an event were recorded again, or destroyed, while another order or a graph needs it.
#include <gtest/gtest.h>

#include <functional>
#include <thread>
#include <vector>

#include "tests/cuda/graph.h"
#include "tests/cuda/words.h"
#include "tests/harness/channels.h"

namespace axccl::tests {
namespace {

using harness::Clique;
using harness::Cuda;
using harness::Gather;
using harness::MakeChannel;
using harness::RankContext;
using harness::RunOptions;
using harness::RunRanks;

// Two ranks on one device, which one thread calls.
void RunTwo(const std::function<void(RankContext&)>& body) {
  RunOptions options;
  options.environment = {{"SOFTGPU_DEVICES", "1"}, {"AXCCL_TIMEOUT", "20"}};
  RunRanks(harness::OneThread(2), body, options);
}

void SumInAGroup(const Clique& clique, Words* words) {
  ASSERT_OK(ncclGroupStart());
  for (int i = 0; i < 2; ++i) ASSERT_OK(Sum(&words[i], &words[i], clique.comm(i), clique.stream()));
  ASSERT_OK(ncclGroupEnd());
}

// Both ranks call, one after the other, on a stream each; the kernel of the first waits for that of the second.
void SumApart(const Clique& clique, Words* words, int first, int which = 0) {
  for (const int i : {first, 1 - first}) ASSERT_OK(Sum(&words[i], &words[i], clique.comm(i), clique.stream(i, which)));
}

TEST(Orders, AreApartAfterAGroup) {
  RunTwo([](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context, 2));
    Words words[2] = {Words(3000, 1), Words(3000, 1)};
    int32_t value = 1;
    for (int round = 0; round < 8; ++round) {
      ASSERT_NO_FATAL_FAILURE(SumInAGroup(clique, words));
      ASSERT_NO_FATAL_FAILURE(SumApart(clique, words, round % 2, round / 2 % 2));
      if (round % 3 == 0) {
        ASSERT_NO_FATAL_FAILURE(SumApart(clique, words, 1 - round % 2, 1));
        value *= 2;
      }
      value *= 4;
    }
    ASSERT_TRUE(clique.Synchronize());
    for (Words& of_rank : words) EXPECT_TRUE(of_rank.AreAll(value)) << of_rank.get()[0];
  });
}

// Each rank then lets go of what it shares, while the other looks for an event that no order needs.
TEST(Orders, MayBelongToAThreadEach) {
  RunTwo([](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context, 2));
    Words words[2] = {Words(100, 1), Words(100, 1)};
    constexpr int kCalls = 4;
    int32_t value = 1;
    for (int round = 0; round < 5; ++round, value *= 1 << (1 + kCalls)) {
      ASSERT_NO_FATAL_FAILURE(SumInAGroup(clique, words));
      std::vector<std::thread> threads;
      for (int i = 0; i < 2; ++i) {
        threads.emplace_back([&, i] {
          for (int call = 0; call < kCalls; ++call)
            EXPECT_OK(Sum(&words[i], &words[i], clique.comm(i), clique.stream(i, call % 2)));
        });
      }
      for (std::thread& thread : threads) thread.join();
    }
    ASSERT_TRUE(clique.Synchronize());
    for (Words& of_rank : words) EXPECT_TRUE(of_rank.AreAll(value)) << of_rank.get()[0];
  });
}

// A graph waits for the group before it, and not for what the other rank of the group has launched since.
TEST(Orders, OfAGraphIsItsOwnAfterAGroup) {
  RunTwo([](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    Words words[2] = {Words(3000, 1), Words(3000, 1)};
    ASSERT_NO_FATAL_FAILURE(SumInAGroup(clique, words));
    Graph graph;
    ASSERT_NO_FATAL_FAILURE(
        graph.Capture(clique.stream(), [&] { ASSERT_OK(Sum(&words[0], &words[0], clique.comm(), clique.stream())); }));
    const auto call_other = [&] { return Sum(&words[1], &words[1], clique.comm(1), clique.stream(1)); };
    int32_t value = 2;
    for (int round = 0; round < 6; ++round, value *= 2) {
      if (round % 2 == 0) {
        ASSERT_OK(call_other());
      }
      ASSERT_NO_FATAL_FAILURE(graph.Launch(clique.stream()));
      if (round % 2 != 0) {
        ASSERT_OK(call_other());
      }
      if (round % 3 != 2) continue;
      ASSERT_NO_FATAL_FAILURE(SumInAGroup(clique, words));
      value *= 2;
    }
    ASSERT_TRUE(clique.Synchronize());
    for (Words& of_rank : words) EXPECT_TRUE(of_rank.AreAll(value)) << of_rank.get()[0];
  });
}

// A graph records the end of each of its calls. CUDA does not say which of several records is the last one, unless one
// depends on the other.
TEST(Orders, FollowTheLastCallOfAGraph) {
  RunTwo([](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context, 2));
    Words words[2] = {Words(3000, 1), Words(3000, 1)};
    const auto call = [&](int i, int which = 0) {
      ASSERT_OK(Sum(&words[i], &words[i], clique.comm(i), clique.stream(i, which)));
    };
    constexpr int kCalls = 3;
    Graph graph;
    ASSERT_NO_FATAL_FAILURE(graph.Capture(clique.stream(), [&] {
      for (int k = 0; k < kCalls; ++k) ASSERT_NO_FATAL_FAILURE(call(0));
    }));
    int32_t value = 1;
    for (int round = 0; round < 6; ++round, value *= 1 << (kCalls + 1)) {
      ASSERT_NO_FATAL_FAILURE(graph.Launch(clique.stream()));
      ASSERT_NO_FATAL_FAILURE(call(0, 1));
      for (int k = 0; k <= kCalls; ++k) ASSERT_NO_FATAL_FAILURE(call(1));
    }
    ASSERT_TRUE(clique.Synchronize());
    for (Words& of_rank : words) EXPECT_TRUE(of_rank.AreAll(value)) << of_rank.get()[0];
  });
}

// A second graph is captured between two calls of the first, which are on streams that nothing else orders.
TEST(Orders, OfCapturesThatAlternate) {
  RunTwo([](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context, 3));
    const harness::GpuDriver* const driver = harness::EnterGpu();
    Words words[2] = {Words(3000, 1), Words(3000, 1)};
    const auto call = [&](int i, int which = 0) {
      ASSERT_OK(Sum(&words[i], &words[i], clique.comm(i), clique.stream(i, which)));
    };
    const auto join = [&](int which, int to) {
      constexpr unsigned kNoTiming = 2;
      void* event = nullptr;
      ASSERT_EQ(driver->create_event(&event, kNoTiming), 0);
      ASSERT_EQ(driver->record_event(event, clique.stream(0, which)), 0);
      ASSERT_EQ(driver->stream_wait_event(clique.stream(0, to), event, 0), 0);
      ASSERT_EQ(driver->destroy_event(event), 0);
    };
    Graph outer, inner;
    ASSERT_NO_FATAL_FAILURE(outer.Capture(clique.stream(), [&] {
      ASSERT_NO_FATAL_FAILURE(join(0, 2));
      ASSERT_NO_FATAL_FAILURE(call(0, 0));
      ASSERT_NO_FATAL_FAILURE(inner.Capture(clique.stream(0, 1), [&] { ASSERT_NO_FATAL_FAILURE(call(0, 1)); }));
      ASSERT_NO_FATAL_FAILURE(call(0, 2));
      ASSERT_NO_FATAL_FAILURE(join(2, 0));
    }));
    int32_t value = 1;
    for (int round = 0; round < 6; ++round, value *= 8) {
      ASSERT_NO_FATAL_FAILURE(outer.Launch(clique.stream()));
      ASSERT_NO_FATAL_FAILURE(inner.Launch(clique.stream(0, 1)));
      for (int k = 0; k < 3; ++k) ASSERT_NO_FATAL_FAILURE(call(1));
    }
    ASSERT_TRUE(clique.Synchronize());
    for (Words& of_rank : words) EXPECT_TRUE(of_rank.AreAll(value)) << of_rank.get()[0];
  });
}

// The event that a graph waits for ends no other launch later, although no order has it any more.
TEST(Orders, OfAChannelIsApartFromGraphs) {
  RunTwo([](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context, 2));
    Words words[2] = {Words(3000, 1), Words(3000, 1)};
    ASSERT_NO_FATAL_FAILURE(SumInAGroup(clique, words));
    Graph graph;
    ASSERT_NO_FATAL_FAILURE(
        graph.Capture(clique.stream(), [&] { ASSERT_OK(Sum(&words[0], &words[0], clique.comm(), clique.stream())); }));
    ASSERT_NO_FATAL_FAILURE(SumApart(clique, words, 0));
    axcclChannel_t channels[2];
    Gather gathers[2] = {Gather(2, 1000, 5), Gather(2, 1000, 6)};
    for (int i = 0; i < 2; ++i) channels[i] = MakeChannel(clique.comm(i), 2, {}, 1);
    ASSERT_OK(gathers[0].Enqueue(channels[0], clique.stream(0, 1)));
    ASSERT_NO_FATAL_FAILURE(graph.Launch(clique.stream()));
    ASSERT_OK(Sum(&words[1], &words[1], clique.comm(1), clique.stream(1)));
    ASSERT_OK(harness::SynchronizeStream(clique.stream()));
    ASSERT_OK(gathers[1].Enqueue(channels[1], clique.stream(1, 1)));
    ASSERT_TRUE(clique.Synchronize());
    for (Words& of_rank : words) EXPECT_TRUE(of_rank.AreAll(8)) << of_rank.get()[0];
    for (int i = 0; i < 2; ++i) {
      EXPECT_EQ(gathers[i].Values(), (std::vector<int64_t>{5, 6}));
      EXPECT_OK(axcclChannelDestroy(channels[i]));
    }
  });
}

TEST(Orders, OutliveOtherCommunicatorsOfTheGroup) {
  RunTwo([](RankContext& context) {
    Clique first, second;
    ASSERT_TRUE(first.Init(context));
    ASSERT_TRUE(second.Init(context));
    Words a[2] = {Words(3000, 1), Words(3000, 1)}, b[2] = {Words(3000, 1), Words(3000, 1)};
    ASSERT_OK(ncclGroupStart());
    ASSERT_NO_FATAL_FAILURE(SumInAGroup(first, a));
    ASSERT_NO_FATAL_FAILURE(SumInAGroup(second, b));
    ASSERT_OK(ncclGroupEnd());
    ASSERT_TRUE(first.Destroy());
    ASSERT_NO_FATAL_FAILURE(SumApart(second, b, 1));
    ASSERT_NO_FATAL_FAILURE(SumInAGroup(second, b));
    ASSERT_TRUE(second.Synchronize());
    for (Words& of_rank : a) EXPECT_TRUE(of_rank.AreAll(2)) << of_rank.get()[0];
    for (Words& of_rank : b) EXPECT_TRUE(of_rank.AreAll(8)) << of_rank.get()[0];
  });
}

}  // namespace
}  // namespace axccl::tests
