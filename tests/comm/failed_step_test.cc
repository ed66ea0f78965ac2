// A rank that is in the middle of a step when a call is given up: the step does not touch the memory of others once
// they have it back.
//
// The step is a callback that lasts as long as the test likes, as abort_buffers_test.cc stops ranks anywhere.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <functional>
#include <thread>

#include "tests/harness/client.h"
#include "tests/harness/run_ranks.h"
#include "tests/harness/timing.h"

namespace axccl::tests {
namespace {

using harness::Clique;
using harness::Cuda;
using harness::Processes;
using harness::RankContext;
using harness::RunOptions;
using harness::RunRanks;

constexpr unsigned char kCanary = 0x77;

// A slow callback: it ends a while after `until` has become true.
struct Slow {
  std::function<bool()> until;  // null: it ends at once
  std::atomic<bool> in{false}, out{false};
};

void Fold(void* a, const void* b, size_t n, void* context) {
  auto* const slow = static_cast<Slow*>(context);
  slow->in = true;
  if (slow->until) {
    while (!slow->until()) harness::LookLater();
    const timespec rest{0, 50'000'000};
    nanosleep(&rest, nullptr);
  }
  for (size_t i = 0; i < n; ++i) static_cast<float*>(a)[i] += static_cast<const float*>(b)[i];
  slow->out = true;
}

// ---- in one process ----

// Two ranks on host devices 0 and 1, each with a callback, and a third by itself on device 2.
class TwoDevices {
 public:
  TwoDevices() {
    const int devices[] = {0, 1}, third[] = {2};
    EXPECT_OK(ncclCommInitAll(comms, 2, devices));
    EXPECT_OK(ncclCommInitAll(&other, 1, third));
    for (int i = 0; i < 3; ++i) {
      EXPECT_OK(axcclHostSetDevice(i));
      EXPECT_OK(axcclStreamCreate(&streams[i], axcclStreamNonBlocking));
      if (i == 2) break;
      EXPECT_OK(axcclRedOpCreateCallback(&ops[i], Fold, &slow[i], ncclFloat32, comms[i]));
    }
  }
  ~TwoDevices() {
    for (axcclStream_t stream : streams) EXPECT_OK(axcclStreamDestroy(stream));
    EXPECT_OK(ncclCommDestroy(other));
  }
  ncclResult_t AllReduce(int rank, axcclStream_t stream) {
    return ncclAllReduce(&data[rank], &data[rank], 1, ncclFloat32, ops[rank], comms[rank], Cuda(stream));
  }

  ncclComm_t comms[2] = {}, other = nullptr;
  axcclStream_t streams[3] = {};
  ncclRedOp_t ops[2] = {};
  Slow slow[2];
  float data[3] = {1, 2, 3};
};

// Calls of a group that share a stream are driven together in the queue of one of their devices, also if they belong to
// several ranks.
TEST(StepOfAFailedCall, AbortAndRevokeWaitForTheStepWhereverItIsDriven) {
  RunRanks(Processes(1), [](RankContext&) {
    for (const int way : {0, 1, 2, 3}) {
      const bool shared = way % 2 != 0, revokes = way / 2 != 0;
      TwoDevices two;
      std::atomic<bool> aborting{false};
      two.slow[1].until = [&] { return aborting.load(); };
      std::thread first([&] {
        EXPECT_OK(two.AllReduce(0, two.streams[0]));
        (void)axcclStreamSynchronize(two.streams[0]);
      });
      std::thread second([&] {
        const axcclStream_t stream = two.streams[shared ? 2 : 1];
        EXPECT_OK(ncclGroupStart());
        if (shared) {
          EXPECT_OK(ncclAllReduce(&two.data[2], &two.data[2], 1, ncclFloat32, ncclSum, two.other, Cuda(stream)));
        }
        EXPECT_OK(two.AllReduce(1, stream));
        EXPECT_OK(ncclGroupEnd());
        (void)axcclStreamSynchronize(stream);
      });
      while (!two.slow[1].in) harness::LookLater();
      aborting = true;
      EXPECT_OK(revokes ? ncclCommRevoke(two.comms[1], NCCL_REVOKE_DEFAULT) : ncclCommAbort(two.comms[1]));
      EXPECT_TRUE(two.slow[1].out) << "a step on the rank's buffers is still running, "
                                   << (shared ? "in a group" : "alone") << (revokes ? ", revoked" : "");
      second.join();
      if (revokes) {
        EXPECT_OK(ncclCommAbort(two.comms[1]));
      }
      EXPECT_OK(ncclCommAbort(two.comms[0]));
      first.join();
    }
  });
}

// Rank 1 still reads rank 0's buffer when rank 0's call fails.
TEST(StepOfAFailedCall, FailureWaitsForTheStepsOfOtherRanksOfTheProcess) {
  RunOptions options;
  options.environment = {{"AXCCL_TIMEOUT", "1"}, {"NCCL_ALGO", "direct"}};
  const auto body = [](RankContext&) {
    TwoDevices two;
    two.slow[1].until = [&] {
      ncclResult_t state = ncclSuccess;
      return ncclCommGetAsyncError(two.comms[0], &state) != ncclSuccess || state != ncclSuccess;
    };
    std::thread second([&] {
      EXPECT_OK(two.AllReduce(1, two.streams[1]));
      EXPECT_NE(axcclStreamSynchronize(two.streams[1]), ncclSuccess);
    });
    EXPECT_OK(two.AllReduce(0, two.streams[0]));
    EXPECT_NE(axcclStreamSynchronize(two.streams[0]), ncclSuccess);
    EXPECT_TRUE(two.slow[1].out) << "a step on the rank's buffers is still running";
    second.join();
    for (ncclComm_t comm : two.comms) EXPECT_OK(ncclCommAbort(comm));
  };
  RunRanks(Processes(1), body, options);
}

// ---- in two processes ----

constexpr int kAborting = 0, kGoOn = 1;  // cells
constexpr size_t kFloats = (size_t{1} << 20) / sizeof(float);

// Two ranks whose reductions write into each other's outputs: the callback of rank 1 ends when its cell is set.
class TwoProcesses {
 public:
  TwoProcesses(RankContext& context, int cell, bool registered = false) : context_(context), registered_(registered) {
    if (context.rank() == 1) {
      slow_.until = [&context, cell] { return context.Get(cell) != 0 || context.AnyFailed(); };
    }
  }
  ~TwoProcesses() {
    for (float* memory : {in_, out_}) {
      if (registered_) {
        std::free(memory);
      } else {
        EXPECT_OK(ncclMemFree(memory));
      }
    }
  }

  void Init() {
    ASSERT_TRUE(clique_.Init(context_));
    ASSERT_OK(axcclRedOpCreateCallback(&op_, Fold, &slow_, ncclFloat32, clique_.comm()));
    for (float** memory : {&in_, &out_}) {
      if (registered_) {
        void* handle = nullptr;
        *memory = static_cast<float*>(std::malloc(kFloats * sizeof(float)));
        ASSERT_OK(ncclCommRegister(clique_.comm(), *memory, kFloats * sizeof(float), &handle));
      } else {
        ASSERT_OK(ncclMemAlloc(reinterpret_cast<void**>(memory), kFloats * sizeof(float)));
      }
    }
    for (size_t i = 0; i < kFloats; ++i) in_[i] = static_cast<float>(context_.rank() + 1);
  }
  // Reduces `count` floats.
  ncclResult_t AllReduce(size_t count) {
    return ncclAllReduce(in_, out_, count, ncclFloat32, op_, clique_.comm(), Cuda(clique_.stream()));
  }
  // Called by rank 0 once rank 1 is in its callback.
  void Abort() {
    context_.Set(kAborting, 1);
    EXPECT_OK(ncclCommAbort(clique_.comm()));
    clique_.ForgetComms();
  }
  size_t Changed() const {
    const auto* const bytes = reinterpret_cast<const unsigned char*>(out_);
    return static_cast<size_t>(
        std::count_if(bytes, bytes + kFloats * sizeof(float), [](unsigned char b) { return b != kCanary; }));
  }
  // Rank 1's part: makes the call, and waits until everything it does for the call has ended. Returns its result.
  ncclResult_t Follow(size_t count) {
    ncclResult_t result = AllReduce(count);
    if (result == ncclSuccess) result = axcclStreamSynchronize(clique_.stream());
    EXPECT_OK(ncclCommAbort(clique_.comm()));
    clique_.ForgetComms();
    return result;
  }
  // Checks that other communicators can use the same buffers.
  void ExpectUsable(RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    ASSERT_OK(ncclAllReduce(in_, out_, kFloats, ncclFloat32, ncclSum, clique.comm(), Cuda(clique.stream())));
    ASSERT_OK(axcclStreamSynchronize(clique.stream()));
    EXPECT_EQ(std::count(out_, out_ + kFloats, 3.0f), static_cast<ptrdiff_t>(kFloats));
  }

  Slow& slow() { return slow_; }
  Clique& clique() { return clique_; }
  float* in() const { return in_; }
  float* out() const { return out_; }

 private:
  RankContext& context_;
  const bool registered_;
  Clique clique_;
  Slow slow_;
  ncclRedOp_t op_{};
  float *in_ = nullptr, *out_ = nullptr;
};

RunOptions WritingIntoOthers() {
  RunOptions options;
  options.environment = {{"NCCL_ALGO", "direct"}};
  return options;
}

// Rank 1 is in the middle of its step when rank 0 aborts, or when rank 0's call fails by its deadline. It ends the step
// a while afterwards, or long after rank 0 has its buffers back.
TEST(StepOfAFailedCall, DoesNotWriteToBuffersOfAnotherProcess) {
  enum class End { kAbort, kLateAbort, kDeadline };
  for (const End end : {End::kAbort, End::kLateAbort, End::kDeadline}) {
    for (const bool registered : {false, true}) {
      const auto body = [=](RankContext& context) {
        TwoProcesses two(context, end == End::kAbort ? kAborting : kGoOn, registered);
        ASSERT_NO_FATAL_FAILURE(two.Init());
        if (context.rank() == 0) {
          EXPECT_OK(two.AllReduce(kFloats));
          std::thread driving([&] { EXPECT_NE(axcclStreamSynchronize(two.clique().stream()), ncclSuccess); });
          ASSERT_TRUE(context.Barrier(0));  // rank 1 is in its callback
          if (end != End::kDeadline) two.Abort();
          driving.join();
          std::memset(two.out(), kCanary, kFloats * sizeof(float));
          context.Set(kGoOn, 1);
        } else {
          std::thread following([&] {
            const ncclResult_t result = two.Follow(kFloats);
            EXPECT_TRUE(result == ncclRemoteError || (end == End::kDeadline && result == ncclTimeout)) << result;
          });
          while (!two.slow().in && !context.AnyFailed()) harness::LookLater();
          ASSERT_TRUE(context.Barrier(0));
          following.join();
        }
        ASSERT_TRUE(context.Barrier(1));
        if (context.rank() == 0) {
          EXPECT_EQ(two.Changed(), 0u) << "bytes written into a buffer that belongs to the application";
          if (end == End::kDeadline) two.Abort();
        }
        two.ExpectUsable(context);
        ASSERT_TRUE(context.Barrier(2));
      };
      RunOptions options = WritingIntoOthers();
      if (end == End::kDeadline) options.environment.emplace_back("AXCCL_TIMEOUT", "1");
      RunRanks(Processes(2), body, options);
    }
  }
}

// Memory is taken back in whole pages. A running call of another communicator whose output shares one of these pages
// may write a part of its output to the wrong memory, and must then not succeed.
TEST(StepOfAFailedCall, DamageToACallThatSharesAPageIsReported) {
  for (const bool shared : {false, true}) {
    const auto body = [shared](RankContext& context) {
      TwoProcesses two(context, kGoOn);
      ASSERT_NO_FATAL_FAILURE(two.Init());
      Clique other;
      ASSERT_TRUE(other.Init(context));
      // A hundred pages less one float; the rest starts in the same page or in the next one.
      const size_t first = 100 * 1024 - 1, second = shared ? first : first + 1;
      const auto reduce_rest = [&] {
        EXPECT_OK(ncclAllReduce(two.in() + second, two.out() + second, kFloats - second, ncclFloat32, ncclSum,
                                other.comm(), Cuda(other.stream())));
      };
      if (context.rank() == 0) {
        reduce_rest();  // continues when rank 1 makes the call, too
        EXPECT_OK(two.AllReduce(first));
        std::thread driving([&] { (void)axcclStreamSynchronize(two.clique().stream()); });
        ASSERT_TRUE(context.Barrier(0));
        EXPECT_OK(ncclCommAbort(two.clique().comm()));
        two.clique().ForgetComms();
        driving.join();
        context.Set(kGoOn, 1);
        if (shared) {
          EXPECT_EQ(axcclStreamSynchronize(other.stream()), ncclSystemError);
          harness::ExpectLastErrorHas({"a page of the output", "different pages of 4 KiB"});
        } else {
          EXPECT_OK(axcclStreamSynchronize(other.stream()));
          EXPECT_EQ(std::count(two.out() + second, two.out() + kFloats, 3.0f),
                    static_cast<ptrdiff_t>(kFloats - second));
        }
      } else {
        std::thread following([&] { EXPECT_EQ(two.Follow(first), ncclRemoteError); });
        while (!two.slow().in && !context.AnyFailed()) harness::LookLater();
        ASSERT_TRUE(context.Barrier(0));
        following.join();
        reduce_rest();
        EXPECT_OK(axcclStreamSynchronize(other.stream()));
      }
      ASSERT_TRUE(context.Barrier(1));
      EXPECT_OK(ncclCommAbort(other.comm()));
      other.ForgetComms();
    };
    RunRanks(Processes(2), body, WritingIntoOthers());
  }
}

}  // namespace
}  // namespace axccl::tests
