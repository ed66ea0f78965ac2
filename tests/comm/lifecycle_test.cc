// Finalize, Destroy, Abort, non-blocking communicators, registration, windows and custom reductions.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "tests/harness/case_runner.h"
#include "tests/harness/timing.h"

namespace axccl::tests {
namespace {

using harness::AllowedNs;
using harness::AwaitComm;
using harness::Call;
using harness::CaseRunner;
using harness::Clique;
using harness::Cuda;
using harness::Fold;
using harness::NowNs;
using harness::Processes;
using harness::RankContext;
using harness::RunCliques;
using harness::RunOptions;
using harness::RunRanks;
using harness::Seed;
using harness::ShareUniqueId;

// ---- ends ----

TEST(Lifecycle, NullIsNothingToDestroyOrAbort) {
  RunRanks(Processes(1), [](RankContext&) {
    EXPECT_OK(ncclCommDestroy(nullptr));
    EXPECT_OK(ncclCommAbort(nullptr));
    EXPECT_OK(ncclCommFinalize(nullptr));
    EXPECT_OK(ncclCommRevoke(nullptr, NCCL_REVOKE_DEFAULT));
  });
}

TEST(Lifecycle, FinalizeThenDestroy) {
  RunCliques(Processes(3), [](RankContext& context, Clique& clique) {
    std::vector<int> data(10000, 1);
    ASSERT_OK(
        ncclAllReduce(data.data(), data.data(), data.size(), ncclInt32, ncclSum, clique.comm(), Cuda(clique.stream())));
    ASSERT_OK(ncclCommFinalize(clique.comm()));
    // Finalize of a blocking communicator has waited for what was enqueued.
    EXPECT_EQ(data[9999], 3);
    EXPECT_EQ(ncclCommFinalize(clique.comm()), ncclInvalidArgument);
    const ncclResult_t late =
        ncclAllReduce(data.data(), data.data(), 1, ncclInt32, ncclSum, clique.comm(), Cuda(clique.stream()));
    EXPECT_TRUE(late == ncclInvalidUsage || late == ncclInvalidArgument) << late;
    EXPECT_OK(ncclCommDestroy(clique.comm()));
    EXPECT_EQ(ncclCommDestroy(clique.comm()), ncclInvalidArgument);
    EXPECT_EQ(ncclCommAbort(clique.comm()), ncclInvalidArgument);
    EXPECT_EQ(ncclCommFinalize(clique.comm()), ncclInvalidArgument);
    clique.ForgetComms();
  });
}

TEST(Lifecycle, DestroyWaitsForEnqueuedWork) {
  RunRanks(Processes(2), [](RankContext& context) {
    for (int round = 0; round < 10; ++round) {
      Clique clique;
      ASSERT_TRUE(clique.Init(context));
      std::vector<int> data(300000, 1);
      ASSERT_OK(ncclAllReduce(data.data(), data.data(), data.size(), ncclInt32, ncclSum, clique.comm(),
                              Cuda(clique.stream())));
      EXPECT_OK(ncclCommDestroy(clique.comm()));
      clique.ForgetComms();
      ASSERT_OK(axcclStreamSynchronize(clique.stream()));
      EXPECT_EQ(data[299999], 2);
    }
  });
}

TEST(Lifecycle, RanksMayDestroyAtDifferentTimes) {
  RunRanks(Processes(3), [](RankContext& context) {
    for (int round = 0; round < 10; ++round) {
      Clique first;
      Clique second;
      ASSERT_TRUE(first.Init(context));
      ASSERT_TRUE(second.Init(context));
      CaseRunner runner(context, second, size_t{1} << 20);
      // The ranks destroy the first communicator before, while or after the second one is used.
      if (context.rank() == 0) {
        ASSERT_TRUE(first.Destroy());
      }
      ASSERT_TRUE(runner.Enqueue({Call::kAllReduce, ncclFloat32, Fold::kSum, 50000, 0, Seed()}, {}));
      if (context.rank() == 1) {
        ASSERT_TRUE(first.Destroy());
      }
      ASSERT_TRUE(runner.Finish());
    }
  });
}

// ---- while they are being made ----

// Begins an init of a rank whose peers never come.
ncclComm_t BeginAlone() {
  ncclUniqueId id;
  EXPECT_OK(ncclGetUniqueId(&id));
  return harness::BeginInit(id, 2, 0);
}

RunOptions PatientInit() {
  RunOptions options;
  options.environment = {{"AXCCL_INIT_TIMEOUT", "600"}};
  return options;
}

TEST(BeingMade, DestroyOrAbortEndsTheWait) {
  RunRanks(
      Processes(1),
      [](RankContext&) {
        for (int i = 0; i < 4; ++i) {
          const ncclComm_t comm = BeginAlone();
          ASSERT_NE(comm, nullptr);
          const int64_t begin = NowNs();
          EXPECT_OK(i % 2 == 0 ? ncclCommDestroy(comm) : ncclCommAbort(comm));
          EXPECT_LT(NowNs() - begin, AllowedNs(1'000'000'000));
          ncclResult_t state = ncclSuccess;
          EXPECT_EQ(ncclCommGetAsyncError(comm, &state), ncclInvalidArgument);
        }
      },
      PatientInit());
}

// NCCL lets another thread abort a communicator while its init blocks; the handle is set from the start.
TEST(BeingMade, AbortEndsAnInitThatBlocksAnotherThread) {
  RunRanks(
      Processes(1),
      [](RankContext& context) {
        ncclUniqueId id;
        ASSERT_OK(ncclGetUniqueId(&id));
        alignas(std::atomic_ref<ncclComm_t>::required_alignment) ncclComm_t comm = nullptr;
        ncclResult_t made = ncclSuccess;
        std::thread blocked([&] { made = ncclCommInitRank(&comm, 2, id, 0); });
        ncclComm_t seen = nullptr;
        while (seen == nullptr && !context.AnyFailed()) {
          seen = std::atomic_ref<ncclComm_t>(comm).load(std::memory_order_acquire);
          std::this_thread::yield();
        }
        EXPECT_OK(ncclCommAbort(seen));
        blocked.join();
        EXPECT_EQ(made, ncclInvalidUsage);
        EXPECT_EQ(comm, nullptr);
      },
      PatientInit());
}

// In every order, an init that returns success has made a communicator, and an abort that returns success has ended it.
TEST(BeingMade, AnInitThatIsAbortedAtAnyTimeNeverGivesADeadHandle) {
  RunRanks(
      Processes(1),
      [](RankContext& context) {
        for (int round = 0; round < 40; ++round) {
          ASSERT_TRUE(context.Step("round %d", round));
          ncclUniqueId id;
          ASSERT_OK(ncclGetUniqueId(&id));
          alignas(std::atomic_ref<ncclComm_t>::required_alignment) ncclComm_t comm = nullptr;
          ncclResult_t made = ncclSuccess;
          std::thread blocked([&] { made = ncclCommInitRank(&comm, 1, id, 0); });
          ncclComm_t seen = nullptr;
          while (seen == nullptr && !context.AnyFailed()) {
            seen = std::atomic_ref<ncclComm_t>(comm).load(std::memory_order_acquire);
            std::this_thread::yield();
          }
          for (int i = 0; i < round; ++i) std::this_thread::yield();
          EXPECT_OK(ncclCommAbort(seen));
          blocked.join();
          if (made == ncclSuccess) {
            EXPECT_EQ(comm, seen);
          } else {
            EXPECT_EQ(comm, nullptr);
          }
          ncclResult_t state = ncclSuccess;
          EXPECT_EQ(ncclCommGetAsyncError(seen, &state), ncclInvalidArgument);
        }
      },
      PatientInit());
}

// ---- non-blocking ----

TEST(NonBlocking, InitOperateFinalizeDestroy) {
  RunRanks(Processes(3), [](RankContext& context) {
    ncclUniqueId id;
    ASSERT_TRUE(ShareUniqueId(context, &id));
    const ncclComm_t comm = harness::BeginInit(id, 3, context.rank());
    ASSERT_NE(comm, nullptr);
    ASSERT_OK(AwaitComm(context, comm));
    axcclStream_t stream = nullptr;
    ASSERT_OK(axcclStreamCreate(&stream, axcclStreamNonBlocking));
    int data[100];
    for (int& value : data) value = context.rank();
    const ncclResult_t called = ncclAllReduce(data, data, 100, ncclInt32, ncclSum, comm, Cuda(stream));
    ASSERT_TRUE(called == ncclSuccess || called == ncclInProgress) << called;
    ASSERT_OK(AwaitComm(context, comm));
    ASSERT_OK(axcclStreamSynchronize(stream));
    for (const int value : data) ASSERT_EQ(value, 3);
    ncclConfig_t config = harness::NonBlocking();
    ncclComm_t child = nullptr;
    const ncclResult_t split = ncclCommSplit(comm, 0, 0, &child, &config);
    ASSERT_TRUE(split == ncclSuccess || split == ncclInProgress) << split;
    ASSERT_OK(AwaitComm(context, comm));
    ASSERT_NE(child, nullptr);
    ASSERT_OK(AwaitComm(context, child));
    EXPECT_OK(ncclCommDestroy(child));
    const ncclResult_t finalized = ncclCommFinalize(comm);
    ASSERT_TRUE(finalized == ncclSuccess || finalized == ncclInProgress) << finalized;
    ASSERT_OK(AwaitComm(context, comm));
    EXPECT_OK(ncclCommDestroy(comm));
    EXPECT_OK(axcclStreamDestroy(stream));
  });
}

TEST(NonBlocking, InitReturnsAtOnceThoughThePeerIsMissing) {
  RunRanks(Processes(2), [](RankContext& context) {
    ncclUniqueId id;
    ASSERT_TRUE(ShareUniqueId(context, &id));
    if (context.rank() == 1) {
      ASSERT_EQ(context.Await(0), 1u);  // set by rank 0 after its call
    }
    const ncclComm_t comm = harness::BeginInit(id, 2, context.rank());
    ASSERT_NE(comm, nullptr);
    if (context.rank() == 0) {
      ncclResult_t state = ncclSuccess;
      ASSERT_OK(ncclCommGetAsyncError(comm, &state));
      EXPECT_EQ(state, ncclInProgress);
      ncclWindow_t window = nullptr;
      void* handle = nullptr;
      EXPECT_EQ(ncclCommWindowRegister(comm, &id, sizeof(id), &window, 0), ncclInvalidUsage);
      EXPECT_OK(ncclCommRegister(comm, &id, sizeof(id), &handle));
      EXPECT_OK(ncclCommDeregister(comm, handle));
      context.Set(0, 1);
    }
    ASSERT_OK(AwaitComm(context, comm));
    EXPECT_OK(ncclCommDestroy(comm));
  });
}

TEST(NonBlocking, AbortEndsAnInitWhosePeerNeverComes) {
  RunRanks(Processes(1), [](RankContext&) {
    for (int round = 0; round < 5; ++round) {
      ncclUniqueId id;
      ASSERT_OK(ncclGetUniqueId(&id));
      const ncclComm_t comm = harness::BeginInit(id, 2, 0);
      ASSERT_NE(comm, nullptr);
      const uint64_t start = NowNs();
      EXPECT_OK(ncclCommAbort(comm));
      EXPECT_LT(NowNs() - start, AllowedNs(100));
    }
  });
}

TEST(NonBlocking, EnvironmentOverridesTheConfig) {
  harness::RunOptions options;
  options.environment = {{"NCCL_COMM_BLOCKING", "0"}};
  RunRanks(
      Processes(2),
      [](RankContext& context) {
        ncclUniqueId id;
        ASSERT_TRUE(ShareUniqueId(context, &id));
        ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
        config.blocking = 1;
        ncclComm_t comm = nullptr;
        if (context.rank() == 1) {
          ASSERT_EQ(context.Await(0), 1u);  // if rank 0's init blocked, it would never set this
        }
        const ncclResult_t started = ncclCommInitRankConfig(&comm, 2, id, context.rank(), &config);
        ASSERT_TRUE(started == ncclSuccess || started == ncclInProgress) << started;
        context.Set(0, 1);
        ASSERT_OK(AwaitComm(context, comm));
        EXPECT_OK(ncclCommDestroy(comm));
      },
      options);
}

// ---- memory ----

TEST(Memory, AllocAndFree) {
  RunRanks(Processes(1), [](RankContext&) {
    for (const size_t bytes : {size_t{1}, size_t{4096}, size_t{100000}, size_t{64} << 20}) {
      void* p = nullptr;
      ASSERT_OK(ncclMemAlloc(&p, bytes));
      ASSERT_NE(p, nullptr);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(p) % 64, 0u);
      std::memset(p, 1, bytes);
      EXPECT_OK(ncclMemFree(p));
    }
    EXPECT_EQ(ncclMemAlloc(nullptr, 10), ncclInvalidArgument);
    int local = 0;
    EXPECT_EQ(ncclMemFree(&local), ncclInvalidArgument);
    void* p = &local;
    EXPECT_OK(ncclMemAlloc(&p, 0));  // as NCCL
    EXPECT_EQ(p, nullptr);
    EXPECT_NE(ncclMemAlloc(&p, SIZE_MAX / 2), ncclSuccess);
    EXPECT_EQ(p, nullptr);
    ASSERT_OK(ncclMemAlloc(&p, 100));
    EXPECT_OK(ncclMemFree(p));
    EXPECT_EQ(ncclMemFree(p), ncclInvalidArgument);
  });
}

TEST(Memory, RegisterAndDeregister) {
  RunCliques(Processes(2), [](RankContext& context, Clique& clique) {
    std::vector<int> plain(100000, 1);
    void* shared = nullptr;
    ASSERT_OK(ncclMemAlloc(&shared, 400000));
    void* handles[3] = {};
    ASSERT_OK(ncclCommRegister(clique.comm(), plain.data(), 400000, &handles[0]));
    ASSERT_OK(ncclCommRegister(clique.comm(), shared, 400000, &handles[1]));
    ASSERT_OK(ncclCommRegister(clique.comm(), static_cast<char*>(shared) + 4096, 8192, &handles[2]));
    std::memcpy(shared, plain.data(), 400000);
    ASSERT_OK(ncclAllReduce(shared, plain.data(), 100000, ncclInt32, ncclSum, clique.comm(), Cuda(clique.stream())));
    ASSERT_TRUE(clique.Synchronize());
    EXPECT_EQ(plain[99999], 2);
    for (void* handle : handles) EXPECT_OK(ncclCommDeregister(clique.comm(), handle));
    EXPECT_EQ(ncclCommDeregister(clique.comm(), handles[0]), ncclInvalidArgument);
    EXPECT_EQ(ncclCommDeregister(clique.comm(), &plain), ncclInvalidArgument);
    EXPECT_EQ(ncclCommRegister(clique.comm(), nullptr, 10, &handles[0]), ncclInvalidArgument);
    EXPECT_EQ(ncclCommRegister(clique.comm(), shared, 10, nullptr), ncclInvalidArgument);
    EXPECT_EQ(ncclCommRegister(clique.comm(), shared, SIZE_MAX, &handles[0]), ncclInvalidArgument);
    EXPECT_EQ(ncclCommRegister(clique.comm(), reinterpret_cast<void*>(16), 1 << 20, &handles[0]), ncclInvalidArgument);
    EXPECT_EQ(ncclCommRegister(nullptr, shared, 10, &handles[0]), ncclInvalidArgument);
    EXPECT_OK(ncclMemFree(shared));
  });
}

TEST(Memory, Windows) {
  RunCliques(Processes(2), [](RankContext& context, Clique& clique) {
    void* memory = nullptr;
    ASSERT_OK(ncclMemAlloc(&memory, 1 << 20));
    ncclWindow_t window = nullptr;
    ASSERT_TRUE(context.Step("window register"));
    ASSERT_OK(ncclCommWindowRegister(clique.comm(), memory, 1 << 20, &window, NCCL_WIN_COLL_SYMMETRIC));
    EXPECT_NE(window, nullptr);
    int* data = static_cast<int*>(memory);
    for (int i = 0; i < 1000; ++i) data[i] = i;
    ASSERT_OK(ncclAllReduce(data, data, 1000, ncclInt32, ncclSum, clique.comm(), Cuda(clique.stream())));
    ASSERT_TRUE(clique.Synchronize());
    EXPECT_EQ(data[999], 1998);
    EXPECT_OK(ncclCommWindowDeregister(clique.comm(), window));
    EXPECT_EQ(ncclCommWindowDeregister(clique.comm(), window), ncclInvalidArgument);
    EXPECT_OK(ncclCommWindowDeregister(clique.comm(), nullptr));
    EXPECT_OK(ncclCommDeregister(clique.comm(), nullptr));
    EXPECT_EQ(ncclCommWindowRegister(clique.comm(), nullptr, 4096, &window, 0), ncclInvalidArgument);
    EXPECT_EQ(ncclCommWindowRegister(clique.comm(), memory, 4096, nullptr, 0), ncclInvalidArgument);
    EXPECT_EQ(ncclCommWindowRegister(nullptr, memory, 4096, &window, 0), ncclInvalidArgument);
    EXPECT_EQ(ncclCommWindowRegister(clique.comm(), memory, size_t{1} << 40, &window, 0), ncclInvalidArgument);
    EXPECT_TRUE(harness::LastErrorHas("argument buff has fewer than 1099511627776 bytes")) << ncclGetLastError(nullptr);
    EXPECT_OK(ncclMemFree(memory));
  });
}

// A handle of one communicator names nothing of another one.
TEST(Memory, HandlesBelongToTheirCommunicator) {
  RunRanks(Processes(1), [](RankContext& context) {
    Clique one, other;
    ASSERT_TRUE(one.Init(context));
    ASSERT_TRUE(other.Init(context));
    std::vector<int> plain(200000);
    void* handles[2] = {};
    ASSERT_OK(ncclCommRegister(one.comm(), plain.data(), 400000, &handles[0]));
    ASSERT_OK(ncclCommRegister(other.comm(), plain.data() + 100000, 400000, &handles[1]));
    EXPECT_EQ(ncclCommDeregister(other.comm(), handles[0]), ncclInvalidArgument);
    EXPECT_EQ(ncclCommDeregister(one.comm(), handles[1]), ncclInvalidArgument);
    EXPECT_OK(ncclCommDeregister(one.comm(), handles[0]));
    EXPECT_OK(ncclCommDeregister(other.comm(), handles[1]));
    void* memory = nullptr;
    ASSERT_OK(ncclMemAlloc(&memory, 8192));
    ncclWindow_t windows[2] = {};
    ASSERT_OK(ncclCommWindowRegister(one.comm(), memory, 4096, &windows[0], 0));
    ASSERT_OK(ncclCommWindowRegister(other.comm(), static_cast<char*>(memory) + 4096, 4096, &windows[1], 0));
    void* found = nullptr;
    EXPECT_EQ(ncclWinGetUserPtr(other.comm(), windows[0], &found), ncclInvalidArgument);
    EXPECT_EQ(ncclCommWindowDeregister(one.comm(), windows[1]), ncclInvalidArgument);
    ASSERT_OK(ncclWinGetUserPtr(one.comm(), windows[0], &found));
    EXPECT_EQ(found, memory);
    EXPECT_OK(ncclCommWindowDeregister(one.comm(), windows[0]));
    EXPECT_OK(ncclCommWindowDeregister(other.comm(), windows[1]));
    EXPECT_OK(ncclMemFree(memory));
  });
}

TEST(Memory, WindowsAndRegistrationsAreNotTheSame) {
  RunCliques(Processes(1), [](RankContext&, Clique& clique) {
    void *memory = nullptr, *registration = nullptr, *at = nullptr;
    ncclWindow_t window = nullptr;
    const ncclComm_t comm = clique.comm();
    ASSERT_OK(ncclMemAlloc(&memory, 1 << 16));
    EXPECT_EQ(ncclCommWindowRegister(comm, memory, 1 << 16, &window, 0x100), ncclInvalidArgument);
    ASSERT_OK(ncclCommWindowRegister(comm, memory, 1 << 16, &window, NCCL_WIN_DEFAULT));
    ASSERT_OK(ncclCommRegister(comm, memory, 1 << 16, &registration));
    EXPECT_OK(ncclWinGetUserPtr(comm, window, &at));
    EXPECT_EQ(at, memory);
    const auto no_window = reinterpret_cast<ncclWindow_t>(registration);
    EXPECT_EQ(ncclWinGetUserPtr(comm, no_window, &at), ncclInvalidArgument);
    EXPECT_EQ(ncclCommDeregister(comm, window), ncclInvalidArgument);
    EXPECT_EQ(ncclCommWindowDeregister(comm, no_window), ncclInvalidArgument);
    EXPECT_OK(ncclCommDeregister(comm, registration));
    EXPECT_OK(ncclCommWindowDeregister(comm, window));
    EXPECT_OK(ncclMemFree(memory));
  });
}

// ---- custom reductions ----

TEST(RedOp, BelongsToItsCommunicatorAndType) {
  RunRanks(Processes(2), [](RankContext& context) {
    Clique one;
    Clique two;
    ASSERT_TRUE(one.Init(context));
    ASSERT_TRUE(two.Init(context));
    float scalar = 0.5f;
    ncclRedOp_t op;
    ASSERT_OK(ncclRedOpCreatePreMulSum(&op, &scalar, ncclFloat32, ncclScalarHostImmediate, one.comm()));
    EXPECT_GE(static_cast<int>(op), static_cast<int>(ncclNumOps));
    float data[4] = {2, 4, 6, 8};
    EXPECT_EQ(ncclAllReduce(data, data, 4, ncclFloat32, op, two.comm(), Cuda(two.stream())), ncclInvalidArgument);
    EXPECT_EQ(ncclAllReduce(data, data, 4, ncclInt32, op, one.comm(), Cuda(one.stream())), ncclInvalidArgument);
    EXPECT_EQ(ncclRedOpDestroy(op, two.comm()), ncclInvalidArgument);
    ASSERT_OK(ncclAllReduce(data, data, 4, ncclFloat32, op, one.comm(), Cuda(one.stream())));
    EXPECT_OK(ncclRedOpDestroy(op, one.comm()));
    ASSERT_TRUE(one.Synchronize());
    EXPECT_EQ(data[3], 8.0f);
    EXPECT_EQ(ncclRedOpDestroy(op, one.comm()), ncclInvalidArgument);
    EXPECT_EQ(ncclAllReduce(data, data, 4, ncclFloat32, op, one.comm(), Cuda(one.stream())), ncclInvalidArgument);
    EXPECT_EQ(ncclRedOpDestroy(ncclSum, one.comm()), ncclInvalidArgument);
  });
}

TEST(RedOp, RefusesBadArguments) {
  RunCliques(Processes(1), [](RankContext& context, Clique& clique) {
    float scalar = 1;
    ncclRedOp_t op;
    const ncclComm_t comm = clique.comm();
    EXPECT_EQ(ncclRedOpCreatePreMulSum(nullptr, &scalar, ncclFloat32, ncclScalarHostImmediate, comm),
              ncclInvalidArgument);
    EXPECT_EQ(ncclRedOpCreatePreMulSum(&op, nullptr, ncclFloat32, ncclScalarHostImmediate, comm), ncclInvalidArgument);
    // C programs may pass any number: only with -fstrict-enums do compilers assume that the value is in the
    // enumeration.
    for (const int number : {99, -1}) {
      const auto datatype = static_cast<ncclDataType_t>(number);
      const auto residence = static_cast<ncclScalarResidence_t>(number);
      EXPECT_EQ(ncclRedOpCreatePreMulSum(&op, &scalar, datatype, ncclScalarHostImmediate, comm), ncclInvalidArgument);
      EXPECT_EQ(ncclRedOpCreatePreMulSum(&op, &scalar, ncclFloat32, residence, comm), ncclInvalidArgument);
      EXPECT_EQ(ncclAllReduce(&scalar, &scalar, 1, datatype, ncclSum, comm, nullptr), ncclInvalidArgument);
      EXPECT_EQ(ncclAllReduce(&scalar, &scalar, 1, ncclFloat32, static_cast<ncclRedOp_t>(number), comm, nullptr),
                ncclInvalidArgument);
      EXPECT_EQ(ncclRedOpDestroy(static_cast<ncclRedOp_t>(number), comm), ncclInvalidArgument);
      EXPECT_STREQ(ncclGetErrorString(static_cast<ncclResult_t>(number)), "unknown result code");
    }
    EXPECT_EQ(ncclRedOpCreatePreMulSum(&op, &scalar, ncclFloat32, ncclScalarHostImmediate, nullptr),
              ncclInvalidArgument);
  });
}

TEST(RedOp, ManyLiveAtOnceAndHandlesAreReused) {
  RunCliques(Processes(2), [](RankContext& context, Clique& clique) {
    for (int round = 0; round < 3; ++round) {
      std::vector<ncclRedOp_t> ops(300);
      for (size_t i = 0; i < ops.size(); ++i) {
        int64_t scalar = static_cast<int64_t>(i);
        ASSERT_OK(ncclRedOpCreatePreMulSum(&ops[i], &scalar, ncclInt64, ncclScalarHostImmediate, clique.comm()));
      }
      for (size_t i = 0; i < ops.size(); i += 50) {
        int64_t value = 3;
        ASSERT_OK(ncclAllReduce(&value, &value, 1, ncclInt64, ops[i], clique.comm(), Cuda(clique.stream())));
        ASSERT_TRUE(clique.Synchronize());
        EXPECT_EQ(value, static_cast<int64_t>(6 * i));
      }
      for (const ncclRedOp_t op : ops) ASSERT_OK(ncclRedOpDestroy(op, clique.comm()));
    }
  });
}

TEST(RedOp, NumberIsLimited) {
  RunCliques(Processes(1), [](RankContext&, Clique& clique) {
    std::vector<ncclRedOp_t> ops(4096);
    int64_t scalar = 3;
    const auto make = [&](ncclRedOp_t* op) {
      return ncclRedOpCreatePreMulSum(op, &scalar, ncclInt64, ncclScalarHostImmediate, clique.comm());
    };
    for (ncclRedOp_t& op : ops) ASSERT_OK(make(&op));
    ncclRedOp_t one_more = ncclSum;
    EXPECT_EQ(make(&one_more), ncclInvalidUsage);
    harness::ExpectLastErrorHas({"ncclRedOpCreatePreMulSum", "4096"});
    ASSERT_OK(ncclRedOpDestroy(ops[7], clique.comm()));
    ASSERT_OK(make(&ops[7]));
    int64_t value = 5;
    ASSERT_OK(ncclAllReduce(&value, &value, 1, ncclInt64, ops[7], clique.comm(), Cuda(clique.stream())));
    ASSERT_TRUE(clique.Synchronize());
    EXPECT_EQ(value, 15);
  });
}

}  // namespace
}  // namespace axccl::tests
