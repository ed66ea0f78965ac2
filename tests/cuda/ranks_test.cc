// Ranks that share a GPU, groups of many calls, and the order of calls with streams and events.
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <vector>

#include "tests/collectives/owned_view.h"
#include "tests/cuda/words.h"
#include "tests/harness/case_runner.h"

namespace axccl::tests {
namespace {

using harness::Call;
using harness::CaseRunner;
using harness::Clique;
using harness::Cuda;
using harness::EnterGpu;
using harness::Fold;
using harness::GpuDriver;
using harness::Layout;
using harness::RankContext;
using harness::RunRanks;
using harness::Seed;

// ---- ranks on one multiprocessor: their launches share few blocks ----

class SharedTest : public testing::TestWithParam<Layout> {};

TEST_P(SharedTest, EveryKindOfCall) {
  const auto body = [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    CaseRunner runner(context, clique, size_t{2} << 20);
    for (const Call call : {Call::kAllReduce, Call::kAllGather, Call::kReduceScatter, Call::kAllToAll, Call::kBroadcast,
                            Call::kReduce, Call::kGather, Call::kScatter}) {
      for (const size_t count : {1, 1000})
        ASSERT_TRUE(runner.Enqueue({call, ncclInt32, Fold::kSum, count, 0, Seed()}, {}));
    }
    ASSERT_TRUE(runner.Finish());
  };
  RunRanks(GetParam(), body, SmallGpu());
}

INSTANTIATE_TEST_SUITE_P(Layouts, SharedTest,
                         testing::Values(harness::OneThread(16), harness::Threads(4), harness::Processes(5),
                                         Layout{2, 1, 4}, Layout{2, 2, 2}),
                         [](const auto& info) { return info.param.Text(); });

// ---- groups ----

// Every rank sends `messages` to every rank, itself included. Word i of message k from `a` to `b` is a * 1000 + b * 10
// + k.
void AllPairs(Clique& clique, int messages, size_t count) {
  const int n = clique.nranks();
  const size_t all = static_cast<size_t>(n * messages) * count;
  std::vector<std::unique_ptr<Words>> sent, received;
  const auto place = [&](const std::unique_ptr<Words>& words, int peer, int k) {
    return words->get() + static_cast<size_t>(peer * messages + k) * count;
  };
  const auto word = [](int from, int to, int k) { return from * 1000 + to * 10 + k; };
  for (int i = 0; i < clique.size(); ++i) {
    sent.push_back(std::make_unique<Words>(all));
    received.push_back(std::make_unique<Words>(all, -1));
    for (int peer = 0; peer < n; ++peer) {
      for (int k = 0; k < messages; ++k) std::fill_n(place(sent.back(), peer, k), count, word(clique.rank(i), peer, k));
    }
  }
  ASSERT_OK(ncclGroupStart());
  for (int i = 0; i < clique.size(); ++i) {
    const cudaStream_t stream = Cuda(clique.stream(i));
    ASSERT_OK(ncclGroupStart());  // nested: only the outermost end acts
    for (int k = 0; k < messages; ++k) {
      for (int peer = 0; peer < n; ++peer) {
        ASSERT_OK(ncclSend(place(sent[i], peer, k), count, ncclInt32, peer, clique.comm(i), stream));
        ASSERT_OK(ncclRecv(place(received[i], peer, k), count, ncclInt32, peer, clique.comm(i), stream));
      }
    }
    ASSERT_OK(ncclGroupEnd());
  }
  ASSERT_OK(ncclGroupEnd());
  ASSERT_TRUE(clique.Synchronize());
  for (int i = 0; i < clique.size(); ++i) {
    for (int peer = 0; peer < n; ++peer) {
      for (int k = 0; k < messages; ++k) {
        ASSERT_EQ(place(received[i], peer, k)[count - 1], word(peer, clique.rank(i), k)) << peer << " " << k;
      }
    }
  }
}

TEST(Groups, MoreCallsThanFitInTheParametersOfAKernel) {
  RunRanks(harness::OneThread(8), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    for (int round = 0; round < 3; ++round) ASSERT_NO_FATAL_FAILURE(AllPairs(clique, 3, 100));
  });
}

TEST(Groups, RanksThatWantManyLanesOfASmallDevice) {
  const auto body = [](RankContext& context) {
    ncclUniqueId id;
    ASSERT_TRUE(harness::ShareUniqueId(context, &id));
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.minCTAs = 32;
    ncclComm_t comms[8] = {};
    ASSERT_OK(ncclGroupStart());
    for (int r = 0; r < 8; ++r) ASSERT_OK(ncclCommInitRankConfig(&comms[r], 8, id, r, &config));
    ASSERT_OK(ncclGroupEnd());
    Clique clique;
    for (ncclComm_t comm : comms) ASSERT_TRUE(clique.Adopt(comm));
    ASSERT_NO_FATAL_FAILURE(AllPairs(clique, 1, 20000));
  };
  RunRanks(harness::OneThread(8), body, SmallGpu());
}

// ---- streams ----

TEST(Streams, CallsOfOneCommunicatorStayInOrder) {
  for (const Layout& layout : {harness::Threads(2), harness::Processes(2), harness::OneThread(2)}) {
    RunRanks(layout, [](RankContext& context) {
      Clique clique;
      ASSERT_TRUE(clique.Init(context, 2));
      std::vector<std::unique_ptr<Words>> data;
      for (int i = 0; i < clique.size(); ++i) data.push_back(std::make_unique<Words>(5000, 1));
      for (int round = 0; round < 20; ++round) {
        ASSERT_OK(ncclGroupStart());
        for (int i = 0; i < clique.size(); ++i)
          ASSERT_OK(Sum(data[i].get(), data[i].get(), clique.comm(i), clique.stream(i, round % 2)));
        ASSERT_OK(ncclGroupEnd());
      }
      ASSERT_TRUE(clique.Synchronize());
      for (const auto& words : data) EXPECT_TRUE(words->AreAll(1 << 20)) << words->get()[0];
    });
  }
}

// A destroyed stream's work continues, and a new stream may get its handle.
TEST(Streams, DestroyedWithWorkUnderWay) {
  RunRanks(harness::Processes(2), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    Words data(5000, 1);
    for (int round = 0; round < 20; ++round) {
      axcclStream_t stream = nullptr;
      ASSERT_OK(harness::CreateStream(&stream));
      ASSERT_OK(Sum(&data, &data, clique.comm(), stream));
      ASSERT_OK(harness::DestroyStream(stream));
    }
    ASSERT_OK(Sum(&data, &data, clique.comm(), clique.stream()));
    ASSERT_TRUE(clique.Synchronize());
    EXPECT_TRUE(data.AreAll(1 << 21)) << data.get()[0];
  });
}

struct Seen {
  Words* words;
  std::vector<int32_t> values;
};

void Look(void* seen) {
  auto* const s = static_cast<Seen*>(seen);
  s->values.push_back(s->words->get()[s->words->size() - 1]);
}

// Fills on one stream, sums on another, with callbacks after them; only the application's events order the streams.
TEST(Streams, EventsOfTheApplicationAndCallbacks) {
  RunRanks(harness::Processes(2), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context, 2));
    const GpuDriver* const driver = EnterGpu();
    ASSERT_NE(driver, nullptr);
    axcclStream_t const filling = clique.stream(0, 0), summing = clique.stream(0, 1);
    Words in(3000), out(3000);
    Seen seen{&out, {}};
    void* event = nullptr;
    ASSERT_EQ(driver->create_event(&event, 0), 0);
    for (int round = 0; round < 20; ++round) {
      ASSERT_EQ(driver->fill(reinterpret_cast<uint64_t>(in.get()), round + 1, in.size(), filling), 0);
      ASSERT_EQ(driver->record_event(event, filling), 0);
      ASSERT_EQ(driver->stream_wait_event(summing, event, 0), 0);
      ASSERT_OK(Sum(&in, &out, clique.comm(), summing));
      ASSERT_EQ(driver->call_host(summing, Look, &seen), 0);
      ASSERT_EQ(driver->record_event(event, summing), 0);
      ASSERT_EQ(driver->stream_wait_event(filling, event, 0), 0);
    }
    ASSERT_TRUE(clique.Synchronize());
    ASSERT_EQ(seen.values.size(), 20u);
    for (int round = 0; round < 20; ++round) EXPECT_EQ(seen.values[static_cast<size_t>(round)], 2 * (round + 1));
    ASSERT_EQ(driver->destroy_event(event), 0);
  });
}

// The NULL stream under each of its names, ordered with a blocking stream by CUDA's legacy rule; and the per-thread
// stream.
TEST(Streams, NullStream) {
  for (const Layout& layout : {harness::Processes(2), harness::OneThread(2)}) {
    RunRanks(layout, [](RankContext& context) {
      Clique clique;
      ASSERT_TRUE(clique.Init(context));
      const GpuDriver* const driver = EnterGpu();
      ASSERT_NE(driver, nullptr);
      void* blocking = nullptr;
      ASSERT_EQ(driver->create_stream(&blocking, 0), 0);
      Words data(3000);
      std::vector<std::unique_ptr<Words>> out;
      for (int i = 0; i < clique.size(); ++i) out.push_back(std::make_unique<Words>(3000));
      Seen seen{out[0].get(), {}};
      for (int round = 0; round < 9; ++round) {
        auto* const stream = reinterpret_cast<cudaStream_t>(round % 3);  // 0 and 1: the NULL stream; 2: the thread's
        ASSERT_EQ(driver->fill(reinterpret_cast<uint64_t>(data.get()), round + 1, data.size(), blocking), 0);
        if (round % 3 == 2) {
          ASSERT_EQ(driver->synchronize(blocking), 0);
        }
        ASSERT_OK(ncclGroupStart());
        for (int i = 0; i < clique.size(); ++i)
          ASSERT_OK(ncclAllReduce(data.get(), out[i]->get(), data.size(), ncclInt32, ncclSum, clique.comm(i), stream));
        ASSERT_OK(ncclGroupEnd());
        if (round % 3 == 2) {
          ASSERT_EQ(driver->synchronize(stream), 0);
        }
        ASSERT_EQ(driver->call_host(blocking, Look, &seen), 0);
      }
      ASSERT_EQ(driver->synchronize(blocking), 0);
      ASSERT_EQ(seen.values.size(), 9u);
      for (int round = 0; round < 9; ++round) EXPECT_EQ(seen.values[static_cast<size_t>(round)], 2 * (round + 1));
      ASSERT_EQ(driver->destroy_stream(blocking), 0);
    });
  }
}

// After every kind of call was made once, no call allocates memory of the device.
TEST(Streams, NothingIsAllocatedOnceWarm) {
  RunRanks(harness::OneThread(2), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context, 2));
    const GpuDriver* const driver = EnterGpu();
    Words in(3000), out(18000);
    const auto calls = [&] {
      for (const size_t count : {size_t{3}, size_t{3000}}) {
        ASSERT_OK(ncclGroupStart());
        for (int i = 0; i < clique.size(); ++i) {
          // Each rank has its own stream, so that they are ordered, too.
          const cudaStream_t stream = Cuda(clique.stream(0, i));
          int32_t* const results = out.get() + i * 9000;
          ASSERT_OK(ncclAllReduce(in.get(), results, count, ncclInt32, ncclSum, clique.comm(i), stream));
          ASSERT_OK(ncclSend(in.get(), count, ncclInt32, 1 - i, clique.comm(i), stream));
          ASSERT_OK(ncclRecv(results + 3000, count, ncclInt32, 1 - i, clique.comm(i), stream));
          const auto size = static_cast<int64_t>(count);
          ASSERT_OK(axcclAllReduce(1, View(in.get(), {size}), View(results + 6000, {size}), ncclSum,
                                   axcclDefaultChannel(clique.comm(i)), nullptr, stream));
        }
        ASSERT_OK(ncclGroupEnd());
        // Calls that run at the same time have separate memory.
        ASSERT_TRUE(clique.Synchronize());
      }
    };
    ASSERT_NO_FATAL_FAILURE(calls());
    size_t warm = 0, now = 0, total = 0;
    ASSERT_EQ(driver->memory_info(&warm, &total), 0);
    for (int round = 0; round < 10; ++round) ASSERT_NO_FATAL_FAILURE(calls());
    ASSERT_EQ(driver->memory_info(&now, &total), 0);
    EXPECT_EQ(now, warm);
  });
}

// Ranks of one process on two devices.
TEST(Devices, TwoInOneProcess) {
  const auto body = [](RankContext& context) {
    ASSERT_NE(EnterGpu(context.rank()), nullptr);
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    int device = -1;
    ASSERT_OK(ncclCommCuDevice(clique.comm(), &device));
    EXPECT_EQ(device, context.rank());
    Words data(3000, 1);
    for (int round = 0; round < 3; ++round) ASSERT_OK(Sum(&data, &data, clique.comm(), clique.stream()));
    ASSERT_TRUE(clique.Synchronize());
    EXPECT_TRUE(data.AreAll(8)) << data.get()[0];
    ASSERT_TRUE(context.Barrier());
  };
  RunRanks(harness::Threads(2), body, SmallGpu(2));
  RunRanks(harness::Processes(2), body, SmallGpu(2));
}

}  // namespace
}  // namespace axccl::tests
