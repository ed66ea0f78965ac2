// The NULL stream of threads that chose no device (on a CPU, most threads): pools whose threads make, call and wait for
// each other's communicators, and ranks that are threads of one process.
//
// In CUDA all of them are on device 0 unless they choose another, and NULL is one stream. Here each rank has its own
// host device, so NULL must mean the NULL streams of all devices that the thread uses.
#include <gtest/gtest.h>

#include <functional>
#include <numeric>
#include <stdexcept>
#include <thread>
#include <vector>

#include "tests/comm/streams.h"
#include "tests/harness/client.h"
#include "tests/harness/timing.h"

namespace axccl::tests {
namespace {

using harness::Clique;
using harness::Cuda;
using harness::Processes;
using harness::RankContext;
using harness::RunCliques;
using harness::RunRanks;
using harness::ShareUniqueId;
using harness::Threads;

// Runs `fn` on a pool thread; when this returns, the thread has ended.
void OnPoolThread(const std::function<void()>& fn) { std::thread(fn).join(); }

// Communicators of all ranks. Different threads make them, each while those of the previous ones still run.
class PoolComms {
 public:
  explicit PoolComms(int n) : comms_(static_cast<size_t>(n)) {}
  ~PoolComms() {
    for (const ncclComm_t comm : comms_) {
      if (comm != nullptr) {
        EXPECT_OK(ncclCommDestroy(comm));
      }
    }
  }
  bool Init(RankContext& context) { return Make(context, 0); }
  ncclComm_t operator[](size_t i) const { return comms_[i]; }

 private:
  bool Make(RankContext& context, size_t i) {
    if (i == comms_.size()) return true;
    bool made = false;
    OnPoolThread([&] {
      ncclUniqueId id;
      if (!ShareUniqueId(context, &id)) return;
      EXPECT_OK(ncclCommInitRank(&comms_[i], context.nranks(), id, context.rank()));
      made = comms_[i] != nullptr && Make(context, i + 1);
    });
    return made;
  }
  std::vector<ncclComm_t> comms_;
};

ncclResult_t Sum(int* x, ncclComm_t comm, axcclStream_t stream = nullptr) {
  return ncclAllReduce(x, x, 1, ncclInt32, ncclSum, comm, Cuda(stream));
}

TEST(PoolThreads, WaitForCallsOnCommunicatorsThatOthersMade) {
  RunRanks(Processes(2), [](RankContext& context) {
    PoolComms comms(2);
    ASSERT_TRUE(comms.Init(context));
    OnPoolThread([&] {
      for (int round = 0; round < 4; ++round) {
        int x = context.rank() + 1;
        if (context.rank() == 1) {
          ASSERT_NE(context.Await(round), 0u);
        }
        ASSERT_OK(Sum(&x, comms[1]));
        if (context.rank() == 0) {
          // The peer waits for this, so the call cannot have ended.
          Event event;
          ASSERT_OK(axcclEventRecord(event, nullptr));
          EXPECT_EQ(axcclEventQuery(event), ncclInProgress);
          EXPECT_EQ(axcclStreamQuery(nullptr), ncclInProgress);
          context.Set(round, 1);
          if (round == 0) {
            EXPECT_OK(axcclEventSynchronize(event));
          }
          if (round == 1) {
            EXPECT_OK(axcclHostDeviceSynchronize());
          }
        }
        if (context.rank() == 1 || round > 1) {
          ASSERT_OK(axcclStreamSynchronize(nullptr));
        }
        EXPECT_EQ(x, 3);
      }
    });
  });
}

// For a thread that has made no calls, NULL means the calls of all threads.
TEST(PoolThreads, WaitForCallsOfOtherThreads) {
  RunRanks(Processes(2), [](RankContext& context) {
    PoolComms comms(2);
    ASSERT_TRUE(comms.Init(context));
    int x = context.rank() + 1;
    if (context.rank() == 1) {
      ASSERT_NE(context.Await(0), 0u);
    }
    OnPoolThread([&] { ASSERT_OK(Sum(&x, comms[1])); });
    OnPoolThread([&] {
      if (context.rank() == 0) {
        EXPECT_EQ(axcclStreamQuery(nullptr), ncclInProgress);
        context.Set(0, 1);
      }
      ASSERT_OK(axcclStreamSynchronize(nullptr));
      EXPECT_EQ(x, 3);
    });
  });
}

// Host functions and copies on NULL are ordered with calls on NULL, on whatever devices those are.
TEST(PoolThreads, NullIsOneStreamForWorkAndCalls) {
  RunRanks(Processes(2), [](RankContext& context) {
    PoolComms comms(3);
    ASSERT_TRUE(comms.Init(context));
    OnPoolThread([&] {
      for (int round = 0; round < 3; ++round) {
        struct State {
          Gate gate;
          int x = 0, copy = 0, other = 5;
        } s;
        ASSERT_OK(axcclLaunchHostFunc(
            nullptr,
            [](void* state) {
              static_cast<State*>(state)->gate.Wait();
              static_cast<State*>(state)->x = 1;
            },
            &s));
        ASSERT_OK(Sum(&s.x, comms[1]));  // 2
        ASSERT_OK(Sum(&s.x, comms[2]));  // 4, on another device
        ASSERT_OK(axcclMemcpyAsync(&s.copy, &s.x, sizeof(int), nullptr));
        ASSERT_OK(Sum(&s.copy, comms[0]));  // 8
        EXPECT_EQ(axcclStreamQuery(nullptr), ncclInProgress);
        s.gate.Open();
        ASSERT_OK(axcclStreamSynchronize(nullptr));
        EXPECT_EQ(s.x, 4);
        EXPECT_EQ(s.copy, 8);
      }
    });
  });
}

TEST(PoolThreads, WaitsOnNullDelayCalls) {
  RunRanks(Processes(2), [](RankContext& context) {
    PoolComms comms(2);
    ASSERT_TRUE(comms.Init(context));
    OnPoolThread([&] {
      struct State {
        Gate gate;
        int x = 0;
      } s;
      Stream input;
      Event ready;
      ASSERT_OK(axcclLaunchHostFunc(
          input,
          [](void* state) {
            static_cast<State*>(state)->gate.Wait();
            static_cast<State*>(state)->x = 1;
          },
          &s));
      ASSERT_OK(axcclEventRecord(ready, input));
      ASSERT_OK(axcclStreamWaitEvent(nullptr, ready));
      ASSERT_OK(Sum(&s.x, comms[1]));
      s.gate.Open();
      ASSERT_OK(axcclStreamSynchronize(nullptr));
      EXPECT_EQ(s.x, 2);
    });
  });
}

// The calls of a group are launched together; launched one by one, each would wait for the previous one.
TEST(PoolThreads, CallsOfAGroupDoNotWaitForEachOther) {
  RunRanks(Processes(2), [](RankContext& context) {
    PoolComms comms(2);
    ASSERT_TRUE(comms.Init(context));
    OnPoolThread([&] {
      for (int round = 0; round < 10; ++round) {
        int x[2] = {1, 10};
        const int first = context.rank();  // the ranks call in different orders
        ASSERT_OK(ncclGroupStart());
        ASSERT_OK(Sum(&x[first], comms[static_cast<size_t>(first)]));
        ASSERT_OK(Sum(&x[1 - first], comms[static_cast<size_t>(1 - first)]));
        ASSERT_OK(ncclGroupEnd());
        ASSERT_OK(axcclStreamSynchronize(nullptr));
        EXPECT_EQ(x[0], 2);
        EXPECT_EQ(x[1], 20);
      }
    });
  });
}

TEST(OneThread, MayCallTheRanksOfInitAllOneAfterTheOtherOnNull) {
  RunRanks(Processes(1), [](RankContext&) {
    ncclComm_t comms[3];
    ASSERT_OK(ncclCommInitAll(comms, 3, nullptr));
    for (int round = 0; round < 10; ++round) {
      int x[3] = {1, 2, 3};
      for (int i = 0; i < 3; ++i) ASSERT_OK(Sum(&x[i], comms[i]));
      ASSERT_OK(axcclStreamSynchronize(nullptr));
      EXPECT_EQ(x[0] + x[1] + x[2], 18);
    }
    for (const ncclComm_t comm : comms) ASSERT_OK(ncclCommDestroy(comm));
  });
}

// Communicators of a process whose ranks' devices are `first` and those that follow it.
class Ranks {
 public:
  Ranks(int n, int first) : comms_(static_cast<size_t>(n)) {
    std::vector<int> devices(comms_.size());
    std::iota(devices.begin(), devices.end(), first);
    EXPECT_OK(ncclCommInitAll(comms_.data(), n, devices.data()));
  }
  ~Ranks() {
    for (const ncclComm_t comm : comms_) EXPECT_OK(ncclCommDestroy(comm));
  }
  ncclComm_t operator[](size_t i) const { return comms_[i]; }

 private:
  std::vector<ncclComm_t> comms_;
};

// An event of NULL comes after the calls on all NULL streams of the thread.
TEST(PoolThreads, AnEventOfNullWaitsForAllItsStreams) {
  RunRanks(Processes(1), [](RankContext&) {
    Ranks first(2, 10), second(2, 20);
    OnPoolThread([&] {
      int x[2] = {1, 2}, y[2] = {10, 20};
      Event of_first, of_both;
      ASSERT_OK(Sum(&x[0], first[0]));
      ASSERT_OK(axcclEventRecord(of_first, nullptr));
      ASSERT_OK(Sum(&y[0], second[0]));
      ASSERT_OK(axcclEventRecord(of_both, nullptr));
      EXPECT_EQ(axcclEventQuery(of_first), ncclInProgress);
      OnPoolThread([&] { ASSERT_OK(Sum(&x[1], first[1])); });
      ASSERT_OK(axcclEventSynchronize(of_first));
      EXPECT_EQ(x[0], 3);
      EXPECT_EQ(axcclEventQuery(of_both), ncclInProgress);
      OnPoolThread([&] { ASSERT_OK(Sum(&y[1], second[1])); });
      ASSERT_OK(axcclEventSynchronize(of_both));
      EXPECT_EQ(y[0], 30);
      ASSERT_OK(axcclStreamSynchronize(nullptr));
    });
    OnPoolThread([] { ASSERT_OK(axcclHostDeviceSynchronize()); });
  });
}

// The work of one NULL stream of the thread has failed, that of the others has not.
TEST(PoolThreads, GetTheErrorOfAnyNullStreamOnce) {
  RunRanks(Processes(1), [](RankContext&) {
    Ranks first(1, 10), second(1, 20);
    const auto query = [] {
      ncclResult_t result = axcclStreamQuery(nullptr);
      for (; result == ncclInProgress; result = axcclStreamQuery(nullptr)) harness::LookLater();
      return result;
    };
    const std::function<ncclResult_t()> ways[] = {query, [] { return axcclStreamSynchronize(nullptr); },
                                                  [] { return axcclStreamSynchronizeFor(nullptr, 600); },
                                                  axcclHostDeviceSynchronize};
    for (const auto& wait : ways) {
      OnPoolThread([&] {
        int x = 1, y = 2;
        ASSERT_OK(Sum(&x, first[0]));
        ASSERT_OK(Sum(&y, second[0]));
        // On the first device.
        ASSERT_OK(axcclLaunchHostFunc(
            nullptr, [](void*) { throw std::runtime_error("the first"); }, nullptr));
        ASSERT_OK(axcclLaunchHostFunc(
            nullptr, [](void*) { throw std::runtime_error("a later one"); }, nullptr));
        ASSERT_OK(Sum(&y, second[0]));
        EXPECT_EQ(wait(), ncclInvalidUsage);
        harness::ExpectLastErrorHas({"the first"});
        EXPECT_OK(wait());
      });
    }
  });
}

TEST(PoolThreads, WaitForAllTheirDevices) {
  RunRanks(Processes(1), [](RankContext&) {
    Ranks first(1, 10), second(2, 20);
    for (int round = 0; round < 20; ++round) {
      int x = 1, y[2] = {1, 2};
      Gate gate;
      std::thread peer([&] {
        gate.Wait();
        ASSERT_OK(Sum(&y[1], second[1]));
        ASSERT_OK(axcclStreamSynchronize(nullptr));
      });
      OnPoolThread([&] {
        ASSERT_OK(Sum(&x, first[0]));
        ASSERT_OK(Sum(&y[0], second[0]));
        gate.Open();
        ASSERT_OK(axcclHostDeviceSynchronize());
        EXPECT_EQ(y[0], 3);
      });
      peer.join();
    }
  });
}

// A thread that ends leaves no error to the next thread with its device.
TEST(ManyThreads, InheritNoErrors) {
  RunRanks(Processes(1), [](RankContext&) {
    const auto per_thread = reinterpret_cast<axcclStream_t>(2);  // cudaStreamPerThread: claims a device
    OnPoolThread([&] {
      Event event;
      ASSERT_OK(axcclStreamSynchronize(per_thread));
      ASSERT_OK(axcclLaunchHostFunc(
          nullptr, [](void*) { throw 1; }, nullptr));
      ASSERT_OK(axcclEventRecord(event, nullptr));
      ASSERT_OK(axcclEventSynchronize(event));
    });
    OnPoolThread([&] {
      ASSERT_OK(axcclStreamSynchronize(per_thread));
      EXPECT_OK(axcclStreamSynchronize(nullptr)) << "the error of another thread";
    });
  });
}

// One rank is a call ahead, which cannot end before the other has waited.
TEST(RankThreads, DoNotWaitForEachOthersNullStreams) {
  RunCliques(Threads(2), [](RankContext& context, Clique& clique) {
    for (int round = 0; round < 4; ++round) {
      int x = 1, y = 1, copy = 0;
      ASSERT_OK(Sum(&x, clique.comm()));
      if (context.rank() == 1) {
        ASSERT_OK(Sum(&y, clique.comm()));
        context.Set(round, 1);
      } else {
        ASSERT_NE(context.Await(round), 0u);
        ASSERT_OK(axcclMemcpyAsync(&copy, &x, sizeof(int), nullptr));
        ASSERT_OK(axcclStreamSynchronize(nullptr));
        EXPECT_EQ(copy, 2);
        ASSERT_OK(Sum(&y, clique.comm()));
      }
      ASSERT_OK(axcclStreamSynchronize(nullptr));
      EXPECT_EQ(x + y, 4);
      ASSERT_TRUE(context.Barrier());
    }
  });
}

// A process may start more threads over time than there are device numbers.
TEST(ManyThreads, GiveTheirDevicesBack) {
  RunRanks(Processes(1), [](RankContext&) {
    ncclComm_t kept = nullptr;
    ASSERT_OK(ncclCommInitAll(&kept, 1, nullptr));
    for (int i = 0; i < 1100; ++i) {
      OnPoolThread([] {
        axcclStream_t per_thread = reinterpret_cast<axcclStream_t>(2);  // cudaStreamPerThread: claims a device
        ASSERT_OK(axcclStreamSynchronize(per_thread));
      });
    }
    OnPoolThread([&] {
      ncclUniqueId id;
      ncclComm_t comm = nullptr;
      int device = -1;
      ASSERT_OK(ncclGetUniqueId(&id));
      ASSERT_OK(ncclCommInitRank(&comm, 1, id, 0));
      ASSERT_OK(ncclCommCuDevice(comm, &device));
      EXPECT_NE(device, 0) << "the device is in use";
      EXPECT_LT(device, 10);
      ASSERT_OK(ncclCommDestroy(comm));
    });
    ASSERT_OK(ncclCommDestroy(kept));
  });
}

TEST(ManyThreads, GetAnErrorWhenNoDeviceIsLeft) {
  RunRanks(Processes(1), [](RankContext&) {
    std::vector<axcclStream_t> streams(1024);
    for (int device = 0; device < 1024; ++device) {
      ASSERT_OK(axcclHostSetDevice(device));
      ASSERT_OK(axcclStreamCreate(&streams[static_cast<size_t>(device)], axcclStreamNonBlocking));
    }
    ncclUniqueId id;
    ASSERT_OK(ncclGetUniqueId(&id));
    OnPoolThread([&] {
      ncclComm_t comm = nullptr;
      EXPECT_EQ(ncclCommInitRank(&comm, 1, id, 0), ncclInvalidUsage);
      harness::ExpectLastErrorHas({"1024 host devices", "axcclHostSetDevice"});
    });
    ASSERT_OK(axcclStreamDestroy(streams[700]));
    OnPoolThread([&] {
      ncclComm_t comm = nullptr;
      int device = -1;
      ASSERT_OK(ncclCommInitRank(&comm, 1, id, 0));
      ASSERT_OK(ncclCommCuDevice(comm, &device));
      EXPECT_EQ(device, 700);
      ASSERT_OK(ncclCommDestroy(comm));
    });
    for (int device = 0; device < 1024; ++device) {
      if (device != 700) {
        ASSERT_OK(axcclStreamDestroy(streams[static_cast<size_t>(device)]));
      }
    }
  });
}

}  // namespace
}  // namespace axccl::tests
