// Calls on views are asynchronous: each can be enqueued before its input has been produced, an event shows when it is
// done, and the consumer of the result can be enqueued behind that event, all before anything has run.
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <numeric>
#include <vector>

#include "tests/collectives/owned_view.h"
#include "tests/harness/client.h"

namespace axccl::tests {
namespace {

using harness::Clique;
using harness::Cuda;
using harness::RankContext;
using harness::RunRanks;

using Values = std::vector<int32_t>;

// A callback that waits until the test continues writes the input; another callback copies the output.
struct Pipeline {
  std::promise<void> go;
  std::shared_future<void> started = go.get_future().share();
  Values in = Values(4, -1), out = Values(8, -1), seen;
  int rank = 0;

  static void Produce(void* argument) {
    auto* p = static_cast<Pipeline*>(argument);
    p->started.wait();
    std::iota(p->in.begin(), p->in.end(), 10 * p->rank);
  }
  static void Consume(void* argument) {
    auto* p = static_cast<Pipeline*>(argument);
    p->seen = p->out;
  }
};

struct Operation {
  const char* name;
  Values (*expected)(int rank);
  ncclResult_t (*call)(Pipeline* p, axcclChannel_t channel, cudaStream_t stream);
};

constexpr int64_t kTwoEach[] = {2, 2}, kStarts[] = {0, 2}, kFour[] = {4, 4}, kSwap[] = {0, 1, 1, 0};
constexpr int32_t kRoot = 1;

const Operation kOperations[] = {
    {"AllGather", [](int) { return Values{0, 1, 2, 3, 10, 11, 12, 13}; },
     [](Pipeline* p, axcclChannel_t c, cudaStream_t s) {
       return axcclAllGather(1, View(p->in.data(), {4}), View(p->out.data(), {8}), 0, c, nullptr, s);
     }},
    {"ReduceScatter",
     [](int r) {
       return r == 0 ? Values{10, 12} : Values{14, 16};
     },
     [](Pipeline* p, axcclChannel_t c, cudaStream_t s) {
       return axcclReduceScatter(1, View(p->in.data(), {4}), View(p->out.data(), {2}), 0, ncclSum, c, nullptr, s);
     }},
    {"AllReduce",
     [](int) {
       return Values{10, 12, 14, 16};
     },
     [](Pipeline* p, axcclChannel_t c, cudaStream_t s) {
       return axcclAllReduce(1, View(p->in.data(), {4}), View(p->out.data(), {4}), ncclSum, c, nullptr, s);
     }},
    {"AllToAll",
     [](int r) {
       return r == 0 ? Values{0, 1, 10, 11} : Values{2, 3, 12, 13};
     },
     [](Pipeline* p, axcclChannel_t c, cudaStream_t s) {
       return axcclAllToAll(1, View(p->in.data(), {4}), View(p->out.data(), {4}), 0, 0, c, nullptr, s);
     }},
    {"Gather", [](int r) { return r == 1 ? Values{0, 1, 2, 3, 10, 11, 12, 13} : Values{}; },
     [](Pipeline* p, axcclChannel_t c, cudaStream_t s) {
       return axcclGather(1, View(p->in.data(), {4}), View(p->out.data(), {8}), 0, 1, c, nullptr, s);
     }},
    {"Scatter",
     [](int r) {
       return r == 0 ? Values{10, 11} : Values{12, 13};
     },
     [](Pipeline* p, axcclChannel_t c, cudaStream_t s) {
       return axcclScatter(1, View(p->in.data(), {4}), View(p->out.data(), {2}), 0, 1, c, nullptr, s);
     }},
    {"Broadcast",
     [](int) {
       return Values{10, 11, 12, 13};
     },
     [](Pipeline* p, axcclChannel_t c, cudaStream_t s) {
       return axcclBroadcast(1, View(p->in.data(), {4}), View(p->out.data(), {4}), 1, c, nullptr, s);
     }},
    {"Reduce",
     [](int r) {
       return r == 1 ? Values{10, 12, 14, 16} : Values{0, 0, 0, 0};
     },
     [](Pipeline* p, axcclChannel_t c, cudaStream_t s) {
       return axcclReduce(1, View(p->in.data(), {4}), View(p->out.data(), {4}), ncclSum, 1, c, nullptr, s);
     }},
    {"AllToAllV",
     [](int r) {
       return r == 0 ? Values{0, 1, 10, 11} : Values{2, 3, 12, 13};
     },
     [](Pipeline* p, axcclChannel_t c, cudaStream_t s) {
       return axcclAllToAllV(1, View(p->in.data(), {4}), View(p->out.data(), {4}), 0, kTwoEach, kTwoEach, c, nullptr,
                             s);
     }},
    {"AllGatherV", [](int) { return Values{0, 1, 2, 3, 10, 11, 12, 13}; },
     [](Pipeline* p, axcclChannel_t c, cudaStream_t s) {
       return axcclAllGatherV(1, View(p->in.data(), {4}), View(p->out.data(), {8}), 0, kFour, c, nullptr, s);
     }},
    {"Ragged",
     [](int r) {
       return r == 0 ? Values{0, 1, 10, 11} : Values{2, 3, 12, 13};
     },
     [](Pipeline* p, axcclChannel_t c, cudaStream_t s) {
       static const int64_t targets[2][2] = {{0, 0}, {2, 2}};
       return axcclRaggedAllToAll(1, View(p->in.data(), {4}), View(p->out.data(), {4}), 0, kStarts, kTwoEach,
                                  targets[p->rank], kTwoEach, c, nullptr, s);
     }},
    {"BroadcastFrom",
     [](int) {
       return Values{10, 11, 12, 13};
     },
     [](Pipeline* p, axcclChannel_t c, cudaStream_t s) {
       return axcclBroadcastFrom(1, View(p->in.data(), {4}), View(p->out.data(), {4}), &kRoot, c, nullptr, s);
     }},
    {"ReduceTo",
     [](int r) {
       return r == 1 ? Values{10, 12, 14, 16} : Values{0, 0, 0, 0};
     },
     [](Pipeline* p, axcclChannel_t c, cudaStream_t s) {
       return axcclReduceTo(1, View(p->in.data(), {4}), View(p->out.data(), {4}), ncclSum, &kRoot, c, nullptr, s);
     }},
    {"Permute",
     [](int r) {
       return r == 0 ? Values{10, 11, 12, 13} : Values{0, 1, 2, 3};
     },
     [](Pipeline* p, axcclChannel_t c, cudaStream_t s) {
       return axcclCollectivePermute(1, View(p->in.data(), {4}), View(p->out.data(), {4}), kSwap, 2, c, nullptr, s);
     }},
    {"SendRecv",
     [](int r) {
       return r == 1 ? Values{0, 1, 2, 3} : Values{};
     },
     [](Pipeline* p, axcclChannel_t c, cudaStream_t s) {
       if (p->rank == 0) return axcclSend(1, View(p->in.data(), {4}), 1, c, nullptr, s);
       return axcclRecv(1, View(p->out.data(), {4}), 0, c, nullptr, s);
     }},
};

class AsyncTest : public testing::TestWithParam<Operation> {};

TEST_P(AsyncTest, IsEnqueuedAheadOfItsProducer) {
  for (const auto& layout : {harness::Processes(2), harness::Threads(2)}) {
    RunRanks(layout, [&](RankContext& context) {
      Clique clique;
      ASSERT_TRUE(clique.Init(context, 3));
      Pipeline pipeline;
      pipeline.rank = context.rank();
      axcclEvent_t produced, done;
      ASSERT_OK(axcclEventCreate(&produced));
      ASSERT_OK(axcclEventCreate(&done));
      const axcclStream_t producer = clique.stream(0, 0), stream = clique.stream(0, 1), consumer = clique.stream(0, 2);
      ASSERT_OK(axcclLaunchHostFunc(producer, Pipeline::Produce, &pipeline));
      ASSERT_OK(axcclEventRecord(produced, producer));
      ASSERT_OK(axcclStreamWaitEvent(stream, produced));
      ASSERT_OK(GetParam().call(&pipeline, axcclDefaultChannel(clique.comm()), Cuda(stream)));  // start
      ASSERT_OK(axcclEventRecord(done, stream));                                                // done
      ASSERT_OK(axcclStreamWaitEvent(consumer, done));
      ASSERT_OK(axcclLaunchHostFunc(consumer, Pipeline::Consume, &pipeline));
      EXPECT_EQ(axcclEventQuery(done), ncclInProgress);
      EXPECT_EQ(pipeline.in, Values(4, -1));
      pipeline.go.set_value();
      ASSERT_OK(axcclStreamSynchronize(consumer));
      EXPECT_OK(axcclEventQuery(done));
      Values expected = GetParam().expected(context.rank());
      expected.resize(8, -1);
      EXPECT_EQ(pipeline.seen, expected);
      EXPECT_OK(axcclEventDestroy(produced));
      EXPECT_OK(axcclEventDestroy(done));
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Calls, AsyncTest, testing::ValuesIn(kOperations),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace axccl::tests
