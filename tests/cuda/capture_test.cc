// Calls in CUDA graphs: captured once, launched many times, between calls that are made as usual.
//
// What a program may do: capture calls of a communicator, also its first ones; launch the graph any number of times, on
// all ranks alike, ordered by the program with the communicator's other calls; destroy graph and communicator in any
// order. What it may not: launch a graph after the communicator is gone.
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <vector>

#include "tests/cuda/words.h"

namespace axccl::tests {
namespace {

using harness::Clique;
using harness::Cuda;
using harness::EnterGpu;
using harness::GpuDriver;
using harness::Layout;
using harness::RankContext;
using harness::RunRanks;

class Graph {
 public:
  Graph() = default;
  ~Graph() { Destroy(); }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  // What `calls` enqueues on `stream`.
  void Capture(axcclStream_t stream, const std::function<void()>& calls) {
    constexpr int kThreadLocal = 1;
    ASSERT_NE(driver_, nullptr);
    ASSERT_EQ(driver_->begin_capture(stream, kThreadLocal), 0);
    calls();
    void* graph = nullptr;
    ASSERT_EQ(driver_->end_capture(stream, &graph), 0);
    ASSERT_NE(graph, nullptr);
    ASSERT_EQ(driver_->instantiate(&executable_, graph, 0), 0);
    ASSERT_EQ(driver_->destroy_graph(graph), 0);
  }
  void Launch(axcclStream_t stream) { ASSERT_EQ(driver_->launch_graph(executable_, stream), 0); }
  void Destroy() {
    if (executable_ == nullptr) return;
    EXPECT_EQ(driver_->destroy_executable(executable_), 0);
    executable_ = nullptr;
  }

 private:
  const GpuDriver* const driver_ = EnterGpu();
  void* executable_ = nullptr;
};

std::vector<std::unique_ptr<Words>> WordsFor(const Clique& clique, size_t size, int32_t value = 0) {
  std::vector<std::unique_ptr<Words>> words;
  for (int i = 0; i < clique.size(); ++i) words.push_back(std::make_unique<Words>(size, value));
  return words;
}

using RankWords = std::vector<std::unique_ptr<Words>>;

// All ranks of the thread in a group, on the first one's stream.
void SumAll(const Clique& clique, const RankWords& in, const RankWords& out) {
  ASSERT_OK(ncclGroupStart());
  for (int i = 0; i < clique.size(); ++i) ASSERT_OK(Sum(in[i].get(), out[i].get(), clique.comm(i), clique.stream()));
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

// More calls than fit in a kernel's parameters, of several kinds, messages to self and several to each peer among them.
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

INSTANTIATE_TEST_SUITE_P(Layouts, CaptureTest,
                         testing::Values(harness::Processes(2), harness::OneThread(3), Layout{2, 1, 2}),
                         [](const auto& info) { return info.param.Text(); });

}  // namespace
}  // namespace axccl::tests
