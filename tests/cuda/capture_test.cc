// Calls in CUDA graphs: captured once, launched many times, between ordinary calls.
//
// A program may capture calls of a communicator, also its first ones; launch the graph any number of times, in the same
// order as all ranks, on any stream, between the communicator's other calls; and destroy graph and communicator in any
// order. It may not launch a graph after the communicator is gone, or make calls of one group on streams of which only
// some are captured.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/collectives/owned_view.h"
#include "tests/cuda/graph.h"
#include "tests/cuda/words.h"
#include "tests/harness/random.h"

namespace axccl::tests {
namespace {

using harness::Clique;
using harness::Cuda;
using harness::EnterGpu;
using harness::GpuDriver;
using harness::Layout;
using harness::RankContext;
using harness::RunRanks;

std::vector<std::unique_ptr<Words>> WordsFor(const Clique& clique, size_t size, int32_t value = 0) {
  std::vector<std::unique_ptr<Words>> words;
  for (int i = 0; i < clique.size(); ++i) words.push_back(std::make_unique<Words>(size, value));
  return words;
}

using RankWords = std::vector<std::unique_ptr<Words>>;

// Calls all ranks of the thread in a group, on the first one's stream.
void SumAll(const Clique& clique, const RankWords& in, const RankWords& out, int which = 0) {
  const axcclStream_t stream = clique.stream(0, which);
  ASSERT_OK(ncclGroupStart());
  for (int i = 0; i < clique.size(); ++i) ASSERT_OK(Sum(in[i].get(), out[i].get(), clique.comm(i), stream));
  ASSERT_OK(ncclGroupEnd());
}

class CaptureTest : public testing::TestWithParam<Layout> {};

TEST_P(CaptureTest, ReplaysBetweenOtherCalls) {
  RunRanks(GetParam(), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    const int n = context.nranks();
    for (const size_t size : {size_t{3}, size_t{5000}}) {
      const RankWords in = WordsFor(clique, size), out = WordsFor(clique, size), other = WordsFor(clique, size / 3);
      Graph graph;
      ASSERT_NO_FATAL_FAILURE(graph.Capture(clique.stream(), [&] { SumAll(clique, in, out); }));
      for (int round = 1; round <= 10; ++round) {
        for (const auto& words : in) words->Fill(round);
        for (const auto& words : other) words->Fill(1);
        ASSERT_TRUE(context.Step("replay %d of %zu", round, size));
        ASSERT_NO_FATAL_FAILURE(graph.Launch(clique.stream()));
        if (round % 2 == 0) {
          ASSERT_NO_FATAL_FAILURE(SumAll(clique, other, other));
        }
        if (round % 3 == 0) {
          ASSERT_NO_FATAL_FAILURE(graph.Launch(clique.stream()));
        }
        ASSERT_TRUE(clique.Synchronize());
        for (const auto& words : out) ASSERT_TRUE(words->AreAll(round * n)) << round << " " << words->get()[0];
        for (const auto& words : other) ASSERT_TRUE(words->AreAll(round % 2 == 0 ? n : 1)) << round;
      }
    }
  });
}

// Two graphs and ordinary calls, each on a stream of its own, all in the order in which they are launched, with nothing
// of the program's between them. The first graph has two calls.
TEST_P(CaptureTest, GraphsAndCallsOnSeveralStreamsFollowEachOther) {
  RunRanks(GetParam(), [](RankContext& context) {
    SCOPED_TRACE("AXCCL_TEST_SEED=" + std::to_string(harness::Seed()));
    constexpr int kStreams = 3;
    constexpr size_t kSizes[] = {5, 40000, 3000};
    Clique clique;
    ASSERT_TRUE(clique.Init(context, kStreams));
    RankWords words[kStreams], more = WordsFor(clique, 100);
    for (int i = 0; i < kStreams; ++i) words[i] = WordsFor(clique, kSizes[i]);
    Graph graphs[2];
    ASSERT_NO_FATAL_FAILURE(graphs[0].Capture(clique.stream(), [&] {
      SumAll(clique, words[0], words[0]);
      SumAll(clique, more, more);
    }));
    ASSERT_NO_FATAL_FAILURE(graphs[1].Capture(clique.stream(0, 1), [&] { SumAll(clique, words[1], words[1], 1); }));
    harness::Random random(harness::Scramble(harness::Seed(), 77));
    for (int round = 0; round < 10; ++round) {
      for (RankWords& each : words) {
        for (const auto& of_rank : each) of_rank->Fill(1);
      }
      int32_t values[kStreams] = {1, 1, 1};
      ASSERT_TRUE(context.Step("round %d", round));
      for (int i = 0; i < 12; ++i) {
        const auto which = static_cast<int>(random.Below(kStreams));
        if (values[which] > 1000000 / context.nranks()) continue;
        values[which] *= context.nranks();
        if (which == 2) {
          ASSERT_NO_FATAL_FAILURE(SumAll(clique, words[2], words[2], 2));
        } else {
          ASSERT_NO_FATAL_FAILURE(graphs[which].Launch(clique.stream(0, random.OneIn(2) ? which : 2)));
        }
      }
      ASSERT_TRUE(clique.Synchronize());
      for (int i = 0; i < kStreams; ++i) {
        for (const auto& of_rank : words[i]) ASSERT_TRUE(of_rank->AreAll(values[i])) << i << " " << of_rank->get()[0];
      }
    }
    ASSERT_TRUE(context.Barrier());
  });
}

// More calls than fit in a kernel's parameters, of several kinds, with messages to self and several to each peer.
TEST_P(CaptureTest, GroupOfManyCalls) {
  RunRanks(GetParam(), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    const int n = context.nranks();
    constexpr int kMessages = 14;
    const auto size = static_cast<size_t>(n * kMessages);
    const RankWords in = WordsFor(clique, size), out = WordsFor(clique, size), sums = WordsFor(clique, 100);
    Graph graph;
    ASSERT_NO_FATAL_FAILURE(graph.Capture(clique.stream(), [&] {
      ASSERT_OK(ncclGroupStart());
      for (int i = 0; i < clique.size(); ++i) {
        const cudaStream_t stream = Cuda(clique.stream());
        for (int m = 0; m < n * kMessages; ++m) {
          ASSERT_OK(ncclSend(in[i]->get() + m, 1, ncclInt32, m % n, clique.comm(i), stream));
          ASSERT_OK(ncclRecv(out[i]->get() + m, 1, ncclInt32, m % n, clique.comm(i), stream));
        }
        ASSERT_OK(Sum(sums[i].get(), sums[i].get(), clique.comm(i), clique.stream()));
      }
      ASSERT_OK(ncclGroupEnd());
    }));
    for (int round = 1; round <= 5; ++round) {
      for (int i = 0; i < clique.size(); ++i) {
        for (int m = 0; m < n * kMessages; ++m)
          in[i]->get()[m] = round * 10000 + m / n * 100 + clique.rank(i) * 10 + m % n;
        sums[i]->Fill(round);
      }
      ASSERT_NO_FATAL_FAILURE(graph.Launch(clique.stream()));
      ASSERT_TRUE(clique.Synchronize());
      for (int i = 0; i < clique.size(); ++i) {
        ASSERT_TRUE(sums[i]->AreAll(round * n));
        for (int m = 0; m < n * kMessages; ++m)
          ASSERT_EQ(out[i]->get()[m], round * 10000 + m / n * 100 + m % n * 10 + clique.rank(i)) << m;
      }
    }
  });
}

TEST_P(CaptureTest, TwoGraphsOfTwoCommunicators) {
  RunRanks(GetParam(), [](RankContext& context) {
    Clique cliques[2];
    for (Clique& clique : cliques) ASSERT_TRUE(clique.Init(context));
    const int n = context.nranks();
    const axcclStream_t stream = cliques[0].stream();
    const RankWords a = WordsFor(cliques[0], 500, 1), b = WordsFor(cliques[0], 7000, 1);
    const auto sum = [&](const Clique& clique, const RankWords& words) {
      ASSERT_OK(ncclGroupStart());
      for (int i = 0; i < clique.size(); ++i) ASSERT_OK(Sum(words[i].get(), words[i].get(), clique.comm(i), stream));
      ASSERT_OK(ncclGroupEnd());
    };
    Graph first, second;
    ASSERT_NO_FATAL_FAILURE(first.Capture(stream, [&] {
      sum(cliques[0], a);
      sum(cliques[1], b);
    }));
    ASSERT_NO_FATAL_FAILURE(second.Capture(stream, [&] { sum(cliques[0], b); }));
    int32_t of_a = 1, of_b = 1;
    for (int round = 0; round < 6; ++round) {
      ASSERT_NO_FATAL_FAILURE((round % 2 == 0 ? first : second).Launch(stream));
      if (round % 2 == 0) of_a *= n;
      of_b *= n;
    }
    ASSERT_TRUE(cliques[0].Synchronize());
    for (const auto& words : a) EXPECT_TRUE(words->AreAll(of_a)) << words->get()[0];
    for (const auto& words : b) EXPECT_TRUE(words->AreAll(of_b)) << words->get()[0];
  });
}

TEST_P(CaptureTest, GraphsMayOutliveTheCommunicator) {
  RunRanks(GetParam(), [](RankContext& context) {
    Graph graph;
    for (const bool graph_first : {true, false}) {
      Clique clique;
      ASSERT_TRUE(clique.Init(context));
      const RankWords words = WordsFor(clique, 100, 1);
      ASSERT_NO_FATAL_FAILURE(graph.Capture(clique.stream(), [&] { SumAll(clique, words, words); }));
      ASSERT_NO_FATAL_FAILURE(graph.Launch(clique.stream()));
      ASSERT_TRUE(clique.Synchronize());
      for (const auto& data : words) EXPECT_TRUE(data->AreAll(context.nranks()));
      if (graph_first) graph.Destroy();
      ASSERT_TRUE(clique.Destroy());
      graph.Destroy();
    }
  });
}

// It waits for nothing: that would end every capture on the device.
TEST_P(CaptureTest, FreeingMemoryEndsNone) {
  RunRanks(GetParam(), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    const RankWords words = WordsFor(clique, 100, 1);
    void* memory = nullptr;
    ASSERT_OK(ncclMemAlloc(&memory, 5000));
    Graph graph;
    ASSERT_NO_FATAL_FAILURE(graph.Capture(clique.stream(), [&] {
      SumAll(clique, words, words);
      std::thread([&] { EXPECT_OK(ncclMemFree(memory)); }).join();
    }));
    ASSERT_NO_FATAL_FAILURE(graph.Launch(clique.stream()));
    ASSERT_TRUE(clique.Synchronize());
    for (const auto& data : words) EXPECT_TRUE(data->AreAll(context.nranks()));
    graph.Destroy();
  });
}

TEST_P(CaptureTest, DestroyWaitsForAGraphUnderWay) {
  RunRanks(GetParam(), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    const RankWords words = WordsFor(clique, 100000, 1);
    Graph graph;
    ASSERT_NO_FATAL_FAILURE(graph.Capture(clique.stream(), [&] { SumAll(clique, words, words); }));
    ASSERT_TRUE(context.Barrier());
    ASSERT_NO_FATAL_FAILURE(graph.Launch(clique.stream()));
    for (int i = 0; i < clique.size(); ++i) ASSERT_OK(ncclCommDestroy(clique.comm(i)));
    for (const auto& of_rank : words) EXPECT_TRUE(of_rank->AreAll(context.nranks())) << of_rank->get()[0];
    clique.ForgetComms();
    ASSERT_TRUE(clique.Synchronize());
    ASSERT_TRUE(context.Barrier());
  });
}

// A capture that spans two streams: calls of a group on both, and on the second alone.
TEST_P(CaptureTest, TwoStreams) {
  RunRanks(GetParam(), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context, 2));
    const GpuDriver* const driver = EnterGpu();
    const int n = context.nranks();
    const RankWords a = WordsFor(clique, 1000, 1), b = WordsFor(clique, 1000, 1);
    const axcclStream_t stream = clique.stream(0, 0), other = clique.stream(0, 1);
    void* event = nullptr;
    ASSERT_EQ(driver->create_event(&event, 2), 0);
    Graph graph;
    ASSERT_NO_FATAL_FAILURE(graph.Capture(stream, [&] {
      ASSERT_EQ(driver->record_event(event, stream), 0);
      ASSERT_EQ(driver->stream_wait_event(other, event, 0), 0);
      ASSERT_OK(ncclGroupStart());
      for (int i = 0; i < clique.size(); ++i) {
        ASSERT_OK(Sum(a[i].get(), a[i].get(), clique.comm(i), stream));
        ASSERT_OK(Sum(b[i].get(), b[i].get(), clique.comm(i), other));
      }
      ASSERT_OK(ncclGroupEnd());
      ASSERT_OK(ncclGroupStart());
      for (int i = 0; i < clique.size(); ++i) ASSERT_OK(Sum(b[i].get(), b[i].get(), clique.comm(i), other));
      ASSERT_OK(ncclGroupEnd());
      ASSERT_EQ(driver->record_event(event, other), 0);
      ASSERT_EQ(driver->stream_wait_event(stream, event, 0), 0);
    }));
    for (int round = 0; round < 3; ++round) ASSERT_NO_FATAL_FAILURE(graph.Launch(stream));
    ASSERT_TRUE(clique.Synchronize());
    for (const auto& words : a) EXPECT_TRUE(words->AreAll(n * n * n)) << words->get()[0];
    for (const auto& words : b) EXPECT_TRUE(words->AreAll(n * n * n * n * n * n)) << words->get()[0];
    ASSERT_EQ(driver->destroy_event(event), 0);
  });
}

// Calls on views: the graph owns their tables, so calls between its launches do not matter.
TEST_P(CaptureTest, Views) {
  RunRanks(GetParam(), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    constexpr int64_t kRows = 7, kColumns = 33;
    const int n = context.nranks();
    const RankWords in = WordsFor(clique, kRows * kColumns),
                    out = WordsFor(clique, static_cast<size_t>(kRows * kColumns * n));
    // The columns of all ranks side by side: dimension 1.
    const auto gather = [&](int64_t columns) {
      ASSERT_OK(ncclGroupStart());
      for (int i = 0; i < clique.size(); ++i)
        ASSERT_OK(axcclAllGather(1, View(in[i]->get(), {kRows, columns}, {kColumns, 1}),
                                 View(out[i]->get(), {kRows, n * columns}, {n * kColumns, 1}), 1,
                                 axcclDefaultChannel(clique.comm(i)), nullptr, Cuda(clique.stream())));
      ASSERT_OK(ncclGroupEnd());
    };
    Graph wide, narrow;
    ASSERT_NO_FATAL_FAILURE(wide.Capture(clique.stream(), [&] { gather(kColumns); }));
    ASSERT_NO_FATAL_FAILURE(narrow.Capture(clique.stream(), [&] { gather(kColumns / 2); }));
    for (int round = 0; round < 6; ++round) {
      const int64_t columns = round % 3 == 0 ? kColumns : round % 3 == 1 ? kColumns / 2 : kColumns / 3;
      for (int i = 0; i < clique.size(); ++i) {
        for (int64_t e = 0; e < kRows * kColumns; ++e)
          in[i]->get()[e] = static_cast<int32_t>(round * 10000 + clique.rank(i) * 1000 + e);
        out[i]->Fill(-1);
      }
      if (round % 3 == 2) {
        ASSERT_NO_FATAL_FAILURE(gather(columns));
      } else {
        ASSERT_NO_FATAL_FAILURE((round % 3 == 0 ? wide : narrow).Launch(clique.stream()));
      }
      ASSERT_TRUE(clique.Synchronize());
      for (const auto& words : out) {
        for (int64_t row = 0; row < kRows; ++row) {
          for (int64_t column = 0; column < n * kColumns; ++column) {
            const int64_t rank = column / columns, e = row * kColumns + column % columns;
            const int64_t expected = column < n * columns ? round * 10000 + rank * 1000 + e : -1;
            ASSERT_EQ(words->get()[row * n * kColumns + column], expected) << "round " << round << ", row " << row;
          }
        }
      }
    }
  });
}

// One rank's calls are in a graph, the other's are not: the graph is launched as often as the other rank calls.
TEST(Mixed, BetweenProcesses) {
  RunRanks(harness::Processes(2), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    const RankWords words = WordsFor(clique, 3000, 1);
    Graph graph;
    if (context.rank() == 0) {
      ASSERT_NO_FATAL_FAILURE(graph.Capture(clique.stream(), [&] { SumAll(clique, words, words); }));
    }
    for (int round = 1; round <= 6; ++round) {
      if (context.rank() == 0 && round % 3 != 0) {
        ASSERT_NO_FATAL_FAILURE(graph.Launch(clique.stream()));
      } else {
        ASSERT_NO_FATAL_FAILURE(SumAll(clique, words, words));
      }
      ASSERT_TRUE(clique.Synchronize());
      ASSERT_TRUE(words[0]->AreAll(1 << round)) << words[0]->get()[0];
    }
  });
}

// Mixing them in one group is refused, and nothing of the group is enqueued; in separate groups it works.
TEST(Mixed, InOneGroup) {
  RunRanks(harness::OneThread(2), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context, 2));
    const RankWords words = WordsFor(clique, 3000, 1);
    const auto sum = [&](int i, axcclStream_t stream) {
      ASSERT_OK(Sum(words[i].get(), words[i].get(), clique.comm(i), stream));
    };
    const axcclStream_t captured = clique.stream(0, 0), eager = clique.stream(0, 1);
    Graph graph, refused;
    for (const int first : {0, 1}) {
      ASSERT_NO_FATAL_FAILURE(refused.Capture(captured, [&] {
        ASSERT_OK(ncclGroupStart());
        sum(0, first == 0 ? captured : eager);
        sum(1, first == 0 ? eager : captured);
        EXPECT_EQ(ncclGroupEnd(), ncclInvalidUsage);
        const std::string captures = "rank " + std::to_string(first) + " calls ncclAllReduce";
        const std::string does_not =
            "which is being captured, and rank " + std::to_string(1 - first) + " calls ncclAllReduce";
        for (const std::string& part : {captures, does_not, std::string("which is not; capture both")})
          EXPECT_TRUE(harness::LastErrorHas(part)) << ncclGetLastError(nullptr);
      }));
      ASSERT_NO_FATAL_FAILURE(refused.Launch(captured));
      ASSERT_TRUE(clique.Synchronize());
      EXPECT_TRUE(words[0]->AreAll(1) && words[1]->AreAll(1));
      refused.Destroy();
    }
    // One rank calls on two streams.
    ASSERT_NO_FATAL_FAILURE(refused.Capture(captured, [&] {
      ASSERT_OK(ncclGroupStart());
      sum(0, captured);
      sum(0, eager);
      EXPECT_EQ(ncclGroupEnd(), ncclInvalidUsage);
      EXPECT_TRUE(harness::LastErrorHas("which is being captured, and rank 0 calls")) << ncclGetLastError(nullptr);
    }));
    ASSERT_NO_FATAL_FAILURE(graph.Capture(captured, [&] { sum(0, captured); }));
    sum(1, eager);
    ASSERT_NO_FATAL_FAILURE(graph.Launch(captured));
    ASSERT_TRUE(clique.Synchronize());
    EXPECT_TRUE(words[0]->AreAll(2) && words[1]->AreAll(2));
  });
}

TEST(Mixed, CapturesOfTwoGraphs) {
  RunRanks(harness::OneThread(2), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context, 2));
    const RankWords words = WordsFor(clique, 300, 1);
    Graph first, second;
    ASSERT_NO_FATAL_FAILURE(first.Capture(clique.stream(0, 0), [&] {
      ASSERT_NO_FATAL_FAILURE(second.Capture(clique.stream(0, 1), [&] {
        ASSERT_OK(ncclGroupStart());
        for (int i = 0; i < 2; ++i) ASSERT_OK(Sum(words[i].get(), words[i].get(), clique.comm(i), clique.stream(0, i)));
        EXPECT_EQ(ncclGroupEnd(), ncclInvalidUsage);
        EXPECT_TRUE(harness::LastErrorHas("different graphs")) << ncclGetLastError(nullptr);
      }));
    }));
    ASSERT_NO_FATAL_FAILURE(SumAll(clique, words, words));
    ASSERT_TRUE(clique.Synchronize());
    EXPECT_TRUE(words[0]->AreAll(2) && words[1]->AreAll(2));
  });
}

// One call of one rank, with kBlock words in each block.
using RankCall = std::function<ncclResult_t(int32_t* in, int32_t* out, int rank, int n, ncclComm_t, cudaStream_t)>;
constexpr size_t kBlock = 100;

std::vector<std::pair<const char*, RankCall>> AllCalls() {
  constexpr ncclDataType_t kType = ncclInt32;
  return {
      {"AllReduce", [](auto* in, auto* out, int, int, auto comm,
                       auto stream) { return ncclAllReduce(in, out, kBlock, kType, ncclMax, comm, stream); }},
      {"AllGather", [](auto* in, auto* out, int, int, auto comm,
                       auto stream) { return ncclAllGather(in, out, kBlock, kType, comm, stream); }},
      {"ReduceScatter", [](auto* in, auto* out, int, int, auto comm,
                           auto stream) { return ncclReduceScatter(in, out, kBlock, kType, ncclSum, comm, stream); }},
      {"Broadcast", [](auto* in, auto* out, int, int n, auto comm,
                       auto stream) { return ncclBroadcast(in, out, kBlock, kType, n - 1, comm, stream); }},
      {"Reduce", [](auto* in, auto* out, int, int n, auto comm,
                    auto stream) { return ncclReduce(in, out, kBlock, kType, ncclSum, n - 1, comm, stream); }},
      {"AlltoAll", [](auto* in, auto* out, int, int, auto comm,
                      auto stream) { return ncclAlltoAll(in, out, kBlock, kType, comm, stream); }},
      {"Gather", [](auto* in, auto* out, int, int, auto comm,
                    auto stream) { return ncclGather(in, out, kBlock, kType, 0, comm, stream); }},
      {"Scatter", [](auto* in, auto* out, int, int, auto comm,
                     auto stream) { return ncclScatter(in, out, kBlock, kType, 0, comm, stream); }},
      {"Send and Recv",
       [](auto* in, auto* out, int rank, int n, auto comm, auto stream) {
         const ncclResult_t sent = ncclSend(in, kBlock, kType, (rank + 1) % n, comm, stream);
         return sent != ncclSuccess ? sent : ncclRecv(out, kBlock, kType, (rank + n - 1) % n, comm, stream);
       }},
      {"CollectivePermute",
       [](auto* in, auto* out, int, int, auto comm, auto stream) {
         const int64_t pairs[] = {0, 1, 1, 0};
         return axcclCollectivePermute(1, View(in, {10, 10}), View(out, {10, 10}, {1, 10}), pairs, 2,
                                       axcclDefaultChannel(comm), nullptr, stream);
       }},
      {"AllGatherV",
       [](auto* in, auto* out, int rank, int n, auto comm, auto stream) {
         std::vector<int64_t> rows;
         for (int r = 0; r < n; ++r) rows.push_back(r);
         return axcclAllGatherV(1, View(in, {rank, 5}), View(out, {n * (n - 1) / 2, 5}), 0, rows.data(),
                                axcclDefaultChannel(comm), nullptr, stream);
       }},
      {"AllToAllV",
       [](auto* in, auto* out, int rank, int n, auto comm, auto stream) {
         std::vector<int64_t> sent, received;
         for (int r = 0; r < n; ++r) sent.push_back(rank + 2 * r), received.push_back(r + 2 * rank);
         return axcclAllToAllV(1, View(in, {n * rank + n * (n - 1), 2}), View(out, {n * (n - 1) / 2 + 2 * n * rank, 2}),
                               0, sent.data(), received.data(), axcclDefaultChannel(comm), nullptr, stream);
       }},
  };
}

// A graph gives the same results as the same call without one, each time with other inputs.
TEST_P(CaptureTest, EveryKindOfCall) {
  RunRanks(GetParam(), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    const int n = context.nranks();
    const size_t size = kBlock * static_cast<size_t>(n);
    const RankWords in = WordsFor(clique, size), out = WordsFor(clique, size), expected = WordsFor(clique, size);
    for (const auto& [name, rank_call] : AllCalls()) {
      ASSERT_TRUE(context.Step("%s", name));
      const auto call = [&, &call_one = rank_call](const RankWords& to) {
        ASSERT_OK(ncclGroupStart());
        for (int i = 0; i < clique.size(); ++i)
          ASSERT_OK(call_one(in[i]->get(), to[i]->get(), clique.rank(i), n, clique.comm(i), Cuda(clique.stream())));
        ASSERT_OK(ncclGroupEnd());
      };
      Graph graph;
      ASSERT_NO_FATAL_FAILURE(graph.Capture(clique.stream(), [&] { call(out); }));
      for (int round = 0; round < 3; ++round) {
        for (int i = 0; i < clique.size(); ++i) {
          for (size_t e = 0; e < size; ++e)
            in[i]->get()[e] = static_cast<int32_t>(round * 100000 + clique.rank(i) * 10000 + e);
          out[i]->Fill(-1);
          expected[i]->Fill(-1);
        }
        ASSERT_NO_FATAL_FAILURE(graph.Launch(clique.stream()));
        ASSERT_NO_FATAL_FAILURE(call(expected));
        ASSERT_TRUE(clique.Synchronize());
        for (int i = 0; i < clique.size(); ++i)
          ASSERT_TRUE(std::equal(out[i]->get(), out[i]->get() + size, expected[i]->get()))
              << name << ", round " << round;
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Layouts, CaptureTest,
                         testing::Values(harness::Processes(2), harness::OneThread(3), Layout{2, 1, 2}),
                         [](const auto& info) { return info.param.Text(); });

}  // namespace
}  // namespace axccl::tests
