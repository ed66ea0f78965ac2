// From the second start on, a pipeline allocates no memory, whether its streams are idle or busy, and whatever declares
// and waits for its chunks.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <memory>

#include "tests/harness/client.h"
#include "tests/pipelines/int_pipeline.h"

namespace {

std::atomic<bool> g_counts{false};
std::atomic<long> g_allocations{0};

}  // namespace

// Of all threads: the library's move chunks, too.
extern "C" {
void* __libc_malloc(size_t bytes);  // NOLINT: glibc's name
void* malloc(size_t bytes) {
  if (g_counts.load(std::memory_order_relaxed)) g_allocations.fetch_add(1, std::memory_order_relaxed);
  return __libc_malloc(bytes);
}
}

namespace axccl::tests {
namespace {

using harness::Cuda;
using harness::Memory;

constexpr int kRanks = 2;
constexpr int64_t kSlices = 4;

class PipelineAllocationTest : public testing::TestWithParam<axcclPipelineKind_t> {
 protected:
  void SetUp() override {
    ASSERT_EQ(ncclCommInitAll(comms_.data(), kRanks, nullptr), ncclSuccess);
    for (int r = 0; r < kRanks; ++r) {
      ASSERT_EQ(axcclHostSetDevice(r), ncclSuccess);
      for (auto& stream : streams_[r]) ASSERT_EQ(axcclStreamCreate(&stream, axcclStreamNonBlocking), ncclSuccess);
      IntCase c = CaseOf(GetParam(), kRanks, kSlices);
      c.columns = 100, c.produced = true, c.memory = r == 0 ? Memory::kMalloc : Memory::kMemAlloc;
      pipelines_[r] = std::make_unique<IntPipeline>(c, r, axcclDefaultChannel(comms_[r]));
    }
  }
  void TearDown() override {
    for (int r = 0; r < kRanks; ++r) {
      pipelines_[r] = nullptr;
      for (auto& stream : streams_[r]) EXPECT_EQ(axcclStreamDestroy(stream), ncclSuccess);
      EXPECT_EQ(ncclCommDestroy(comms_[r]), ncclSuccess);
    }
  }

  void Start(int rank) {
    pipelines_[rank]->Prepare(step_);
    ASSERT_EQ(axcclPipelineStart(pipelines_[rank]->handle(), Cuda(streams_[rank][0])), ncclSuccess);
  }
  void Declare(int rank, bool by_stream) {
    for (int64_t chunk = 0; chunk < pipelines_[rank]->in_chunks(); ++chunk) {
      pipelines_[rank]->Produce(chunk, step_);
      axcclPipeline_t const pipeline = pipelines_[rank]->handle();
      ASSERT_EQ(by_stream ? axcclPipelineStreamReady(pipeline, chunk, Cuda(streams_[rank][1]))
                          : axcclPipelineReady(pipeline, chunk),
                ncclSuccess);
    }
  }
  void Finish() {
    for (int r = 0; r < kRanks; ++r)
      ASSERT_EQ(axcclPipelineFinish(pipelines_[r]->handle(), Cuda(streams_[r][0])), ncclSuccess);
    for (int r = 0; r < kRanks; ++r) {
      for (axcclStream_t stream : streams_[r]) ASSERT_EQ(axcclStreamSynchronize(stream), ncclSuccess);
      ASSERT_EQ(pipelines_[r]->Check(step_), "");
    }
  }
  // The streams are idle.
  void IdleStep() {
    for (int r = 0; r < kRanks; ++r) Start(r);
    for (int r = 0; r < kRanks; ++r) Declare(r, false);
    for (int r = 0; r < kRanks; ++r) ASSERT_EQ(axcclPipelineWait(pipelines_[r]->handle(), kSlices - 1), ncclSuccess);
    Finish();
  }
  // A call that waits for the other rank is before the start.
  void BusyStep() {
    for (int r = 0; r < kRanks; ++r) {
      ASSERT_EQ(ncclAllReduce(&in_[r], &out_[r], 1, ncclInt32, ncclSum, comms_[r], Cuda(streams_[r][0])), ncclSuccess);
      Start(r);
      ASSERT_EQ(axcclPipelineStreamWait(pipelines_[r]->handle(), 0, Cuda(streams_[r][2])), ncclSuccess);
    }
    for (int r = 0; r < kRanks; ++r) Declare(r, GetParam() == axcclPipelinePermute);
    Finish();
  }

  std::array<ncclComm_t, kRanks> comms_{};
  std::array<std::array<axcclStream_t, 3>, kRanks> streams_{};
  std::array<std::unique_ptr<IntPipeline>, kRanks> pipelines_;
  std::array<int, kRanks> in_{}, out_{};
  int step_ = 0;
};

TEST_P(PipelineAllocationTest, NoneFromTheSecondStartOn) {
  for (const bool busy : {false, true}) {
    const auto step = [&] {
      ++step_;
      busy ? BusyStep() : IdleStep();
    };
    for (int i = 0; i < 40; ++i) step();
    // The first wait of a thread that lasts long allocates once.
    long least = 1;
    for (int attempt = 0; attempt < 5 && least != 0; ++attempt) {
      g_allocations = 0;
      g_counts = true;
      for (int i = 0; i < 10; ++i) step();
      g_counts = false;
      least = g_allocations;
    }
    EXPECT_EQ(least, 0) << (busy ? "busy" : "idle") << " streams";
  }
}

// While a start waits for a rank that is late, threads look now and then whether ranks wait for each other.
TEST_P(PipelineAllocationTest, NoneInStartsThatStandStill) {
  const auto step = [&](std::chrono::milliseconds late) {
    ++step_;
    Start(0);
    Declare(0, false);
    const auto begin = std::chrono::steady_clock::now();
    while (std::chrono::steady_clock::now() - begin < late) {
      int done = 0;
      ASSERT_EQ(axcclPipelineTest(pipelines_[0]->handle(), 0, &done), ncclSuccess);
    }
    Start(1);
    Declare(1, false);
    Finish();
  };
  for (int i = 0; i < 40; ++i) step(std::chrono::milliseconds(0));
  long least = 1;
  for (int attempt = 0; attempt < 5 && least != 0; ++attempt) {
    g_allocations = 0;
    g_counts = true;
    step(std::chrono::milliseconds(200));
    g_counts = false;
    least = g_allocations;
  }
  EXPECT_EQ(least, 0);
}

INSTANTIATE_TEST_SUITE_P(Kinds, PipelineAllocationTest, testing::ValuesIn(kPipelineKinds),
                         [](const auto& info) { return KindName(info.param); });

}  // namespace
}  // namespace axccl::tests
