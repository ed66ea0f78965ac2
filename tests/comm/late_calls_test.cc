// What comes to its turn only after ncclCommAbort touches no buffer; and aborts from callbacks of reductions return.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <thread>
#include <vector>

#include "axccl/axccl.h"
#include "tests/harness/client.h"
#include "tests/harness/run_ranks.h"

namespace axccl::tests {
namespace {

using harness::Cuda;
using harness::RankContext;

void InAProcess(const std::function<void()>& body) {
  harness::RunRanks(harness::Processes(1), [&](RankContext&) { body(); });
}

// Work on a stream that does not end before it is opened.
class Gate {
 public:
  explicit Gate(axcclStream_t stream) {
    const auto wait = [](void* open) { static_cast<std::atomic<bool>*>(open)->wait(false); };
    EXPECT_OK(axcclLaunchHostFunc(stream, wait, &open_));
  }
  void Open() {
    open_.store(true);
    open_.notify_all();
  }

 private:
  std::atomic<bool> open_{false};
};

axcclStream_t MakeStream() {
  axcclStream_t stream = nullptr;
  EXPECT_OK(axcclStreamCreate(&stream, axcclStreamNonBlocking));
  return stream;
}

bool Are(const std::vector<int>& data, int value) {
  return std::count(data.begin(), data.end(), value) == static_cast<ptrdiff_t>(data.size());
}

TEST(AfterAnAbort, AMessageToSelfIsNotCopied) {
  InAProcess([] {
    ncclComm_t comm = nullptr;
    ASSERT_OK(ncclCommInitAll(&comm, 1, nullptr));
    const axcclStream_t stream = MakeStream();
    std::vector<int> in(10'000, 7), out(10'000, 0);
    Gate gate(stream);
    ASSERT_OK(ncclGroupStart());
    ASSERT_OK(ncclSend(in.data(), in.size(), ncclInt32, 0, comm, Cuda(stream)));
    ASSERT_OK(ncclRecv(out.data(), out.size(), ncclInt32, 0, comm, Cuda(stream)));
    ASSERT_OK(ncclGroupEnd());
    ASSERT_OK(ncclCommAbort(comm));
    std::fill(out.begin(), out.end(), 1);
    gate.Open();
    EXPECT_NE(axcclStreamSynchronize(stream), ncclSuccess);
    EXPECT_TRUE(Are(out, 1));
    EXPECT_OK(axcclStreamDestroy(stream));
  });
}

// Of shapes that have been called before, and of others.
TEST(AfterAnAbort, ACallOfAnOpenGroupIsNotMade) {
  InAProcess([] {
    for (const bool again : {true, false}) {
      ncclComm_t comm = nullptr;
      ASSERT_OK(ncclCommInitAll(&comm, 1, nullptr));
      const axcclStream_t stream = MakeStream();
      std::vector<int> in(8, 7), out(8, 0);
      const auto call = [&] {
        return ncclAllReduce(in.data(), out.data(), in.size(), ncclInt32, ncclSum, comm, Cuda(stream));
      };
      for (int i = 0; again && i < 3; ++i) ASSERT_OK(call());
      ASSERT_OK(axcclStreamSynchronize(stream));
      ASSERT_OK(ncclGroupStart());
      ASSERT_OK(call());
      std::thread([comm] { EXPECT_OK(ncclCommAbort(comm)); }).join();
      std::fill(out.begin(), out.end(), 1);
      EXPECT_NE(ncclGroupEnd(), ncclSuccess);
      (void)axcclStreamSynchronize(stream);
      EXPECT_TRUE(Are(out, 1));
      EXPECT_OK(axcclStreamDestroy(stream));
    }
  });
}

// Its words are ready at once, but an earlier call of the channel is before it.
TEST(AfterAnAbort, APipelineFillsNothingWithZeros) {
  InAProcess([] {
    ncclComm_t comms[2];
    ASSERT_OK(ncclCommInitAll(comms, 2, nullptr));
    ASSERT_OK(axcclHostSetDevice(0));
    const axcclStream_t busy = MakeStream(), idle = MakeStream();
    std::vector<int> in(1 << 18, 3), out(1 << 18, 0), x(16), y(16);
    const int64_t sizes[] = {1 << 18}, pairs[] = {0, 1};
    axcclPipelineSpec_t spec = AXCCL_PIPELINE_SPEC_INITIALIZER;
    spec.kind = axcclPipelinePermute;
    spec.in.data = in.data();
    spec.in.num_dims = 1;
    spec.in.sizes = sizes;
    spec.in.datatype = ncclInt32;
    spec.out = spec.in;
    spec.out.data = out.data();
    spec.pairs = pairs;
    spec.num_pairs = 1;
    spec.slices = 4;
    axcclPipeline_t pipeline = nullptr;
    ASSERT_OK(axcclPipelineCreate(&pipeline, &spec, axcclDefaultChannel(comms[0])));
    Gate gate(busy);
    ASSERT_OK(ncclAllReduce(x.data(), y.data(), x.size(), ncclInt32, ncclSum, comms[0], Cuda(busy)));
    ASSERT_OK(axcclPipelineStart(pipeline, Cuda(idle)));
    ASSERT_OK(ncclCommAbort(comms[0]));
    std::fill(out.begin(), out.end(), 1);
    gate.Open();
    EXPECT_NE(axcclStreamSynchronize(busy), ncclSuccess);
    (void)axcclPipelineFinish(pipeline, Cuda(idle));
    (void)axcclStreamSynchronize(idle);
    EXPECT_TRUE(Are(out, 1));
    EXPECT_OK(ncclCommAbort(comms[1]));
    _exit(testing::Test::HasFailure() ? 1 : 0);  // the pipeline of a communicator that is gone
  });
}

// Rank 0 calls last, so that it folds in the call, which has the communicator in use.
struct Callback {
  ncclComm_t comm = nullptr;
  std::atomic<int>* inside = nullptr;  // null: aborts nothing
  int wait_for = 0;                    // callbacks

  static void Run(void*, const void*, size_t, void* context) {
    auto* const callback = static_cast<Callback*>(context);
    if (callback->inside == nullptr) return;
    ++*callback->inside;
    for (int i = 0; i < 2000 && *callback->inside < callback->wait_for; ++i) usleep(1000);
    EXPECT_OK(ncclCommAbort(callback->comm));
  }
};

class CallbackTest : public testing::TestWithParam<int> {};  // how many abort

TEST_P(CallbackTest, MayAbort) {
  const int aborting = GetParam();
  InAProcess([=] {
    ncclComm_t comms[2];
    ASSERT_OK(ncclCommInitAll(comms, 2, nullptr));
    std::atomic<int> inside{0};
    std::atomic<bool> called{false};  // by rank 1
    Callback callbacks[2];
    std::vector<std::thread> threads;
    for (int rank = 0; rank < 2; ++rank) {
      callbacks[rank] = {comms[rank], rank < aborting ? &inside : nullptr, aborting};
      threads.emplace_back([&, rank] {
        ASSERT_OK(axcclHostSetDevice(rank));
        const axcclStream_t stream = MakeStream();
        ncclRedOp_t op;
        ASSERT_OK(axcclRedOpCreateCallback(&op, Callback::Run, &callbacks[rank], ncclInt32, comms[rank]));
        std::vector<int> in(1024, 1), out(1024);
        if (rank == 0) called.wait(false);
        (void)ncclAllReduce(in.data(), out.data(), in.size(), ncclInt32, op, comms[rank], Cuda(stream));
        if (rank == 1) {
          called.store(true);
          called.notify_all();
        }
        (void)axcclStreamSynchronize(stream);
        if (rank >= aborting) {
          EXPECT_OK(ncclCommAbort(comms[rank]));
        }
        EXPECT_OK(axcclStreamDestroy(stream));
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(inside, aborting);
  });
}
INSTANTIATE_TEST_SUITE_P(Aborting, CallbackTest, testing::Values(1, 2));

}  // namespace
}  // namespace axccl::tests
