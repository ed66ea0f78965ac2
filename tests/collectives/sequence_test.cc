// Long random sequences of operations without synchronisation in between: different plans reuse scratch memory and
// counters back to back, communicators and streams interleave, and memory is freed and allocated.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>

#include "tests/collectives/cases.h"
#include "tests/harness/case_runner.h"
#include "tests/harness/gpu.h"

namespace axccl::tests {
namespace {

using harness::Call;
using harness::Case;
using harness::CaseRunner;
using harness::Clique;
using harness::Cuda;
using harness::Fold;
using harness::FullTests;
using harness::Layout;
using harness::Random;
using harness::RankContext;
using harness::RunRanks;
using harness::Scramble;
using harness::Seed;

// GPU ranks usually run on a GPU in software.
int Rounds() { return FullTests() ? 3000 : harness::OnGpu() ? 60 : harness::TimeScale() > 1 ? 100 : 250; }

class SequenceTest : public testing::TestWithParam<Layout> {};

TEST_P(SequenceTest, RandomOperationsOnOneCommunicator) {
  RunRanks(GetParam(), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    CaseRunner runner(context, clique, size_t{16} << 20);
    Random random(Scramble(Seed(), 10));
    for (int i = 0; i < Rounds(); ++i) {
      ASSERT_TRUE(runner.Enqueue(RandomCase(&random, context.nranks(), 100000), {}));
    }
    ASSERT_TRUE(runner.Finish());
  });
}

TEST_P(SequenceTest, OneCommunicatorOverSeveralStreams) {
  // Operations of one communicator run in issue order whatever their streams are.
  RunRanks(GetParam(), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context, 3));
    CaseRunner runner(context, clique, size_t{8} << 20);
    Random random(Scramble(Seed(), 11));
    Random own(Scramble(Seed(), 12, static_cast<uint64_t>(context.rank())));
    for (int i = 0; i < Rounds(); ++i) {
      // Ranks need not agree on the stream.
      const int stream = static_cast<int>(own.Below(3));
      ASSERT_TRUE(runner.Enqueue(RandomCase(&random, context.nranks(), 20000), {}, stream));
    }
    ASSERT_TRUE(runner.Finish());
  });
}

TEST_P(SequenceTest, SeveralCommunicatorsInterleaved) {
  RunRanks(GetParam(), [](RankContext& context) {
    constexpr int kComms = 4;
    Clique cliques[kComms];
    std::vector<std::unique_ptr<CaseRunner>> runners;
    for (Clique& clique : cliques) {
      ASSERT_TRUE(clique.Init(context));
      runners.push_back(std::make_unique<CaseRunner>(context, clique, size_t{4} << 20));
    }
    Random random(Scramble(Seed(), 13));
    for (int i = 0; i < Rounds(); ++i) {
      const size_t which = random.Below(kComms);
      ASSERT_TRUE(runners[which]->Enqueue(RandomCase(&random, context.nranks(), 20000), {}));
      if (random.OneIn(40)) {
        ASSERT_TRUE(runners[which]->Finish());
      }
    }
    for (auto& runner : runners) ASSERT_TRUE(runner->Finish());
  });
}

TEST_P(SequenceTest, ResultsFeedTheNextOperation) {
  // x -> all_gather -> reduce_scatter -> all_reduce ... in one buffer, in stream order only.
  RunRanks(GetParam(), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    const int n = context.nranks();
    constexpr size_t kCount = 3001;
    std::vector<std::vector<uint32_t>> data(static_cast<size_t>(clique.size()));
    for (auto& buffer : data) buffer.assign(kCount * static_cast<size_t>(n), 0);
    uint32_t expected = 1;
    for (size_t m = 0; m < data.size(); ++m) data[m].assign(data[m].size(), 1);
    for (int round = 0; round < 6; ++round) {
      ASSERT_TRUE(context.Step("round %d", round));
      ASSERT_OK(ncclGroupStart());
      for (int i = 0; i < clique.size(); ++i) {
        ASSERT_OK(ncclAllReduce(data[i].data(), data[i].data(), data[i].size(), ncclUint32, ncclSum, clique.comm(i),
                                Cuda(clique.stream(i))));
      }
      ASSERT_OK(ncclGroupEnd());
      expected *= static_cast<uint32_t>(n);
      ASSERT_OK(ncclGroupStart());
      for (int i = 0; i < clique.size(); ++i) {
        uint32_t* own = data[i].data() + static_cast<size_t>(clique.rank(i)) * kCount;
        ASSERT_OK(ncclReduceScatter(data[i].data(), own, kCount, ncclUint32, ncclSum, clique.comm(i),
                                    Cuda(clique.stream(i))));
      }
      ASSERT_OK(ncclGroupEnd());
      expected *= static_cast<uint32_t>(n);
      ASSERT_OK(ncclGroupStart());
      for (int i = 0; i < clique.size(); ++i) {
        uint32_t* own = data[i].data() + static_cast<size_t>(clique.rank(i)) * kCount;
        ASSERT_OK(ncclAllGather(own, data[i].data(), kCount, ncclUint32, clique.comm(i), Cuda(clique.stream(i))));
      }
      ASSERT_OK(ncclGroupEnd());
    }
    ASSERT_TRUE(clique.Synchronize());
    for (const auto& buffer : data) {
      for (size_t i = 0; i < buffer.size(); ++i) ASSERT_EQ(buffer[i], expected) << i;
    }
  });
}

TEST_P(SequenceTest, MemoryComesAndGoesBetweenOperations) {
  // Freed and reallocated memory often has the old address; the library must keep nothing about it.
  RunRanks(GetParam(), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    Random random(Scramble(Seed(), 14));
    for (int i = 0; i < 40; ++i) {
      CaseRunner runner(context, clique, size_t{64} << (10 + random.Below(5)));
      const size_t bytes = size_t{1} << random.Below(12);
      for (int k = 0; k < 3; ++k) ASSERT_TRUE(runner.Enqueue(RandomCase(&random, context.nranks(), bytes), {}));
      ASSERT_TRUE(runner.Finish());
    }
  });
}

TEST_P(SequenceTest, AllRanksSeeTheSameBits) {
  // Sums of arbitrary floats depend on the order of addition; all ranks must still agree, bit for bit.
  RunRanks(GetParam(), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    for (const size_t count : {1, 17, 1000, 40000}) {
      const size_t bytes = count * sizeof(float);
      for (int i = 0; i < clique.size(); ++i) {
        std::vector<float> data(count);
        Random random(Scramble(Seed(), count, static_cast<uint64_t>(clique.rank(i))));
        for (float& value : data) value = static_cast<float>(random.Next() % 100000) * 1e-3f - 37.1f;
        std::memcpy(context.board() + static_cast<size_t>(clique.rank(i)) * bytes, data.data(), bytes);
      }
      ASSERT_OK(ncclGroupStart());
      for (int i = 0; i < clique.size(); ++i) {
        void* data = context.board() + static_cast<size_t>(clique.rank(i)) * bytes;
        ASSERT_OK(ncclAllReduce(data, data, count, ncclFloat32, ncclSum, clique.comm(i), Cuda(clique.stream(i))));
      }
      ASSERT_OK(ncclGroupEnd());
      ASSERT_TRUE(clique.Synchronize());
      ASSERT_TRUE(context.Barrier());
      for (int r = 1; r < context.nranks(); ++r) {
        ASSERT_EQ(std::memcmp(context.board(), context.board() + static_cast<size_t>(r) * bytes, bytes), 0)
            << "rank " << r << " differs from rank 0, count " << count;
      }
      ASSERT_TRUE(context.Barrier());
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Layouts, SequenceTest,
                         testing::Values(harness::Threads(2), harness::Threads(4), harness::Processes(2),
                                         harness::Processes(3), harness::Processes(5), harness::OneThread(3),
                                         Layout{2, 2, 1}, Layout{2, 1, 2}),
                         [](const auto& info) { return info.param.Text(); });

TEST(RepeatedRuns, SameInputsGiveTheSameBits) {
  RunRanks(harness::Processes(4), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    constexpr size_t kCount = 10007;
    std::vector<float> in(kCount), first(kCount), again(kCount);
    Random random(Scramble(Seed(), static_cast<uint64_t>(context.rank())));
    for (float& value : in) value = static_cast<float>(random.Next() % 1000003) * 1e-4f;
    for (int round = 0; round < 30; ++round) {
      std::vector<float>& out = round == 0 ? first : again;
      ASSERT_OK(
          ncclAllReduce(in.data(), out.data(), kCount, ncclFloat32, ncclSum, clique.comm(), Cuda(clique.stream())));
      ASSERT_TRUE(clique.Synchronize());
      if (round > 0) {
        ASSERT_EQ(std::memcmp(first.data(), again.data(), kCount * sizeof(float)), 0) << round;
      }
    }
  });
}

}  // namespace
}  // namespace axccl::tests
