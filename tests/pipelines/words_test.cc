// Threads that only read and store words (axccl/device.h), beside threads that compute: what a word promises is there,
// in thousands of starts. Written for ThreadSanitizer, which sees whether a word orders what it must.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "tests/harness/client.h"
#include "tests/harness/random.h"
#include "tests/harness/timing.h"
#include "tests/pipelines/int_pipeline.h"

extern "C" int axccl_test_step_in_c(uint32_t* in, int64_t in_chunks, const uint32_t* out, int64_t out_chunks);

namespace axccl::tests {
namespace {

using harness::Clique;
using harness::Cuda;
using harness::FullTests;
using harness::Layout;
using harness::Processes;
using harness::Random;
using harness::RankContext;
using harness::RunOptions;
using harness::RunRanks;
using harness::Scramble;
using harness::Seed;
using harness::Threads;
using harness::TimeScale;

constexpr int64_t kRows = 14, kColumns = 40;

// A rank's part in a product: the all-gathered rows, times a vector, row by row.
class Product {
 public:
  Product(const IntCase& c, int rank, axcclChannel_t channel) : pipeline(c, rank, channel), c_(c) {
    words_ = pipeline.Words(axcclOut);
    for (int64_t p = 0; p < pipeline.out_chunks(); ++p) {
      axcclChunk_t chunk = AXCCL_CHUNK_INITIALIZER;
      EXPECT_OK(axcclPipelineGetChunk(pipeline.handle(), axcclOut, p, &chunk));
      chunks_.push_back(chunk);
    }
  }

  // Multiplies each chunk as soon as its word is 1. Returns whether all of them came.
  bool Multiply(uint64_t* sum) const {
    *sum = 0;
    for (const axcclChunk_t& chunk : chunks_) {
      if (axcclDeviceAwait(&words_[chunk.number]) != 1) return false;
      const auto* const data = static_cast<const uint32_t*>(chunk.view.data);
      const int64_t first = chunk.number * kColumns;
      for (int64_t i = 0; i < chunk.view.sizes[0] * kColumns; ++i)
        *sum += static_cast<uint64_t>(data[i]) * static_cast<uint64_t>((first + i) % 7 + 1);
    }
    return true;
  }

  IntPipeline pipeline;

 private:
  const IntCase c_;
  const uint32_t* words_ = nullptr;
  std::vector<axcclChunk_t> chunks_;
};

// The sum that Multiply must find, from what Check has found right.
uint64_t Expected(const Product& product) {
  uint64_t sum = 0;
  EXPECT_TRUE(product.Multiply(&sum));
  return sum;
}

void Compute(uint64_t rounds) {
  volatile uint64_t x = 1;
  for (uint64_t i = 0; i < rounds; ++i) x = x * 6364136223846793005u + 1;
}

// A thread multiplies whatever comes in each start, and hands its sums over.
class Multiplier {
 public:
  explicit Multiplier(const Product* product) : product_(product), thread_([this] { Main(); }) {}
  ~Multiplier() {
    stop_.store(true);
    wanted_.fetch_add(1);
    wanted_.notify_all();
    thread_.join();
  }
  void Begin() {
    wanted_.fetch_add(1);
    wanted_.notify_all();
  }
  bool End(uint64_t* sum) {
    const int start = wanted_.load();
    for (int done = done_.load(); done != start; done = done_.load()) done_.wait(done);
    *sum = sum_;
    return came_;
  }

 private:
  void Main() {
    for (int seen = 0;; ++seen) {
      for (int wanted = wanted_.load(); wanted == seen; wanted = wanted_.load()) wanted_.wait(wanted);
      if (stop_.load()) return;
      came_ = product_->Multiply(&sum_);
      done_.fetch_add(1);
      done_.notify_all();
    }
  }

  const Product* const product_;
  std::atomic<int> wanted_{0}, done_{0};
  std::atomic<bool> stop_{false};
  uint64_t sum_ = 0;
  bool came_ = false;
  std::thread thread_;
};

class WordsTest : public testing::TestWithParam<Layout> {};

TEST_P(WordsTest, AThreadMultipliesWhatComes) {
  const int starts = FullTests() ? 3400 : 1000 / TimeScale();  // 10,000 on all layouts
  RunOptions options;
  options.deadline = std::chrono::seconds(40);
  RunRanks(
      GetParam(),
      [starts](RankContext& context) {
        Clique clique;
        ASSERT_TRUE(clique.Init(context));
        IntCase c = CaseOf(axcclPipelineAllGather, context.nranks(), 7);
        c.rows = kRows, c.columns = kColumns, c.produced = true;
        Product product(c, context.rank(), axcclDefaultChannel(clique.comm()));
        IntPipeline& pipeline = product.pipeline;
        uint32_t* const in = pipeline.Words(axcclIn);
        Random random(Scramble(Seed(), static_cast<uint64_t>(context.rank())));
        Multiplier multiplier(&product);
        for (int step = 0; step < starts; ++step) {
          ASSERT_TRUE(context.Step("start %d", step));
          pipeline.Prepare(step);
          // The stream is idle, so the words are 0 when this returns.
          ASSERT_OK(axcclPipelineStart(pipeline.handle(), Cuda(clique.stream())));
          multiplier.Begin();
          for (int64_t p = 0; p < pipeline.in_chunks(); ++p) {
            const int64_t chunk = pipeline.ChunkAt(axcclIn, p);
            Compute(random.Below(2000));
            if (random.OneIn(2)) {
              pipeline.Produce(chunk, step);
              axcclDeviceReady(&in[chunk]);
            } else {
              ASSERT_OK(pipeline.Declare(chunk, step));
            }
          }
          if (random.OneIn(3)) {
            ASSERT_OK(axcclPipelineWait(pipeline.handle(), static_cast<int64_t>(random.Below(7))));
          }
          uint64_t sum = 0;
          ASSERT_TRUE(multiplier.End(&sum));
          ASSERT_OK(axcclPipelineFinish(pipeline.handle(), Cuda(clique.stream())));
          ASSERT_TRUE(clique.Synchronize());
          ASSERT_EQ(pipeline.Check(step), "");
          ASSERT_EQ(sum, Expected(product));
        }
      },
      options);
}

// One thread of a rank produces, another consumes; neither is in the library. Reductions, too: the library reads what
// the word declares.
TEST_P(WordsTest, FromWordToWord) {
  const int starts = 400 / TimeScale();
  RunOptions options;
  options.deadline = std::chrono::seconds(40);
  RunRanks(
      GetParam(),
      [starts](RankContext& context) {
        Clique clique;
        ASSERT_TRUE(clique.Init(context));
        for (const axcclPipelineKind_t kind :
             {axcclPipelineAllReduce, axcclPipelineReduceScatter, axcclPipelineAllToAll}) {
          IntCase c = CaseOf(kind, context.nranks(), 2);
          c.columns = 100, c.produced = true;
          IntPipeline pipeline(c, context.rank(), axcclDefaultChannel(clique.comm()));
          uint32_t *const in = pipeline.Words(axcclIn), *const out = pipeline.Words(axcclOut);
          for (int step = 0; step < starts; ++step) {
            ASSERT_TRUE(context.Step("%s, start %d", KindName(kind), step));
            pipeline.Prepare(step);
            ASSERT_OK(axcclPipelineStart(pipeline.handle(), Cuda(clique.stream())));
            std::thread producer([&] { pipeline.DeclareByWords(in, step); });
            std::string wrong;
            for (int64_t chunk = 0; chunk < pipeline.out_chunks() && wrong.empty(); ++chunk)
              wrong = axcclDeviceAwait(&out[chunk]) == 1 ? pipeline.CheckChunk(chunk, step) : "the word is not 1";
            producer.join();
            ASSERT_EQ(wrong, "");
            ASSERT_OK(axcclPipelineFinish(pipeline.handle(), Cuda(clique.stream())));
            ASSERT_TRUE(clique.Synchronize());
          }
        }
      },
      options);
}

// Although the channel is busy, or another thread drives the queue: what a program stores then is not reset any more.
TEST_P(WordsTest, AreResetWhenAStartOnAnIdleStreamReturns) {
  const int rounds = 400 / TimeScale();
  RunRanks(GetParam(), [rounds](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context, 2));
    IntCase c = CaseOf(axcclPipelineAllGather, context.nranks(), 3);
    c.columns = 100, c.produced = true;
    const axcclChannel_t channel = axcclDefaultChannel(clique.comm());
    IntPipeline before(c, context.rank(), channel), pipeline(c, context.rank(), channel);
    uint32_t *const in = pipeline.Words(axcclIn), *const out = pipeline.Words(axcclOut);
    ASSERT_OK(pipeline.Step(0, Cuda(clique.stream())));
    ASSERT_TRUE(clique.Synchronize());
    for (int round = 1; round <= rounds; ++round) {
      ASSERT_TRUE(context.Step("round %d", round));
      before.Prepare(round);
      pipeline.Prepare(round);
      ASSERT_OK(axcclPipelineStart(before.handle(), Cuda(clique.stream())));
      ASSERT_OK(axcclPipelineStart(pipeline.handle(), Cuda(clique.stream(0, 1))));
      for (int64_t chunk = 0; chunk < pipeline.out_chunks(); ++chunk) ASSERT_EQ(axcclDeviceLook(&out[chunk]), 0u);
      for (int64_t chunk = 0; chunk < pipeline.in_chunks(); ++chunk) ASSERT_EQ(axcclDeviceLook(&in[chunk]), 0u);
      pipeline.DeclareByWords(in, round);
      ASSERT_OK(before.DeclareAll(round));
      ASSERT_OK(axcclPipelineFinish(before.handle(), Cuda(clique.stream())));
      ASSERT_OK(axcclPipelineFinish(pipeline.handle(), Cuda(clique.stream(0, 1))));
      ASSERT_TRUE(clique.Synchronize());
      ASSERT_EQ(before.Check(round), "");
      ASSERT_EQ(pipeline.Check(round), "");
    }
  });
}

// A thread that waits in the library must not sleep for longer than the progress thread, to which it does not leave the
// work: nothing rings when a program stores a word.
TEST(Words, AreSeenSoonByAThreadThatWaits) {
  constexpr int64_t kSlices = 100;
  RunRanks(Processes(1), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    IntCase c = CaseOf(axcclPipelineAllGather, 1, kSlices);
    c.produced = true;
    IntPipeline pipeline(c, 0, axcclDefaultChannel(clique.comm()));
    uint32_t* const in = pipeline.Words(axcclIn);
    pipeline.Prepare(0);
    ASSERT_OK(axcclPipelineStart(pipeline.handle(), Cuda(clique.stream())));
    std::atomic<int64_t> waits{-1};
    std::thread producer([&] {
      for (int64_t chunk = 0; chunk < kSlices; ++chunk) {
        while (waits.load() < chunk) harness::LookLater();
        Compute(1000000);  // until the other one sleeps
        pipeline.Produce(chunk, 0);
        axcclDeviceReady(&in[chunk]);
      }
    });
    const uint64_t start = harness::NowNs();
    for (int64_t chunk = 0; chunk < kSlices; ++chunk) {
      waits.store(chunk);
      EXPECT_OK(axcclPipelineWait(pipeline.handle(), chunk));
    }
    EXPECT_LT(harness::NowNs() - start, harness::AllowedNs(250));
    producer.join();
    ASSERT_OK(axcclPipelineFinish(pipeline.handle(), Cuda(clique.stream())));
    ASSERT_TRUE(clique.Synchronize());
    EXPECT_EQ(pipeline.Check(0), "");
  });
}

TEST_P(WordsTest, TheHeaderInC) {
  RunRanks(GetParam(), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    IntCase c = CaseOf(axcclPipelineAllGather, context.nranks(), 7);
    c.produced = true;
    IntPipeline pipeline(c, context.rank(), axcclDefaultChannel(clique.comm()));
    uint32_t *const in = pipeline.Words(axcclIn), *const out = pipeline.Words(axcclOut);
    for (int step = 0; step < 3; ++step) {
      pipeline.Prepare(step);
      for (int64_t chunk = 0; chunk < pipeline.in_chunks(); ++chunk) pipeline.Produce(chunk, step);
      ASSERT_OK(axcclPipelineStart(pipeline.handle(), Cuda(clique.stream())));
      EXPECT_EQ(axccl_test_step_in_c(in, pipeline.in_chunks(), out, pipeline.out_chunks()), pipeline.out_chunks());
      ASSERT_OK(axcclPipelineFinish(pipeline.handle(), Cuda(clique.stream())));
      ASSERT_TRUE(clique.Synchronize());
      ASSERT_EQ(pipeline.Check(step), "");
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Layouts, WordsTest, testing::Values(Processes(2), Threads(2), Threads(3)),
                         [](const auto& info) { return info.param.Text(); });

}  // namespace
}  // namespace axccl::tests
