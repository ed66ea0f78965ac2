// Communicators on GPUs are made and destroyed: all their resources are freed.
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/cuda/words.h"
#include "tests/harness/timing.h"

namespace axccl::tests {
namespace {

using harness::AllowedNs;
using harness::Clique;
using harness::Cuda;
using harness::EnterGpu;
using harness::NowNs;
using harness::RankContext;
using harness::RunRanks;

struct Held {
  size_t memory = 0;  // of the device, free
  size_t descriptors = 0, threads = 0;
};

size_t EntriesOf(const char* folder) {
  size_t entries = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder)) ++entries;
  return entries;
}

Held Look() {
  Held held;
  size_t total = 0;
  EXPECT_EQ(EnterGpu()->memory_info(&held.memory, &total), 0);
  held.descriptors = EntriesOf("/proc/self/fd");
  held.threads = EntriesOf("/proc/self/task");
  return held;
}

void MakeUseAndDestroy(RankContext& context, Words* data) {
  Clique clique;
  ASSERT_TRUE(clique.Init(context));
  data->Fill(1);
  ASSERT_OK(Sum(data, data, clique.comm(), clique.stream()));
  const int n = context.nranks(), next = (context.rank() + 1) % n, previous = (context.rank() + n - 1) % n;
  ASSERT_OK(ncclGroupStart());
  ASSERT_OK(ncclSend(data->get(), 10, ncclInt32, next, clique.comm(), Cuda(clique.stream())));
  ASSERT_OK(ncclRecv(data->get() + 20, 10, ncclInt32, previous, clique.comm(), Cuda(clique.stream())));
  ASSERT_OK(ncclGroupEnd());
  ASSERT_TRUE(clique.Synchronize());
  ASSERT_TRUE(data->AreAll(n));
  ASSERT_TRUE(clique.Destroy());
}

// Memory that peers had mapped is freed soon after they have released it, which a thread that ends soon may do: waits
// until is_kept(free memory), and for this few threads.
template <class IsKept>
Held Await(const IsKept& is_kept, size_t threads) {
  Held held = Look();
  for (const uint64_t start = NowNs();
       (!is_kept(held.memory) || held.threads > threads) && NowNs() - start < AllowedNs(1000); held = Look())
    harness::LookLater();
  return held;
}

TEST(Lifecycle, NothingIsLeft) {
  RunRanks(harness::Processes(2), [](RankContext& context) {
    Words data(2000);
    const size_t at_first = Look().memory;
    for (int i = 0; i < 3; ++i) ASSERT_NO_FATAL_FAILURE(MakeUseAndDestroy(context, &data));
    ASSERT_TRUE(context.Barrier());
    // Of each device, for the calls of ranks to come: once, and once more for each rank of a cycle before that had not
    // given back all when the next one was made, which are some where the machine is busy, but not one for every cycle.
    constexpr size_t kKept = 1u << 20, kMost = 20;
    const auto is_kept = [&](size_t memory) {
      const size_t kept = at_first - memory;
      return kept >= kKept && kept <= kMost * kKept && kept % kKept == 0;
    };
    const Held before = Await(is_kept, Look().threads);
    EXPECT_TRUE(is_kept(before.memory)) << at_first - before.memory;
    ASSERT_TRUE(context.Barrier());
    for (int i = 0; i < 50; ++i) {
      ASSERT_TRUE(context.Step("cycle %d", i));
      ASSERT_NO_FATAL_FAILURE(MakeUseAndDestroy(context, &data));
    }
    ASSERT_TRUE(context.Barrier());
    const Held after = Await(is_kept, before.threads);
    EXPECT_TRUE(is_kept(after.memory)) << at_first - after.memory;
    EXPECT_LE(after.descriptors, before.descriptors);
    // A thread that was needed for the first time meanwhile, but not one for every cycle.
    EXPECT_LE(after.threads, before.threads + 1);
    ASSERT_TRUE(context.Barrier());
  });
}

// Rank 0 waits for calls that the others, some of them in its process, make only after they have destroyed a
// communicator that rank 0 is not in, and with a plan that is new on the device.
void DestroyWhileAnotherWaits(RankContext& context) {
  Clique clique;
  ASSERT_TRUE(clique.Init(context));
  const int n = context.nranks();
  const bool waits = context.rank() == 0;
  ncclComm_t others = nullptr;
  ASSERT_OK(ncclCommSplit(clique.comm(), waits ? NCCL_SPLIT_NOCOLOR : 0, context.rank(), &others, nullptr));
  // As with NCCL, a communicator is made while no operation of its parent is under way: the driver may wait for all
  // kernels when memory is allocated.
  ASSERT_TRUE(context.Barrier());
  Words few(3000, 1), many(200000, 1);
  ASSERT_OK(Sum(&few, &few, clique.comm(), clique.stream()));
  if (!waits) {
    ASSERT_OK(Sum(&few, &few, others, clique.stream()));
  }
  ASSERT_TRUE(clique.Synchronize());
  EXPECT_TRUE(few.AreAll(waits ? n : n * (n - 1))) << few.get()[0];
  ASSERT_TRUE(context.Barrier());
  if (waits) {
    ASSERT_OK(Sum(&many, &many, clique.comm(), clique.stream()));
  }
  ASSERT_TRUE(context.Barrier());
  if (!waits) {
    ASSERT_TRUE(context.Step("destroy"));
    ASSERT_OK(ncclCommDestroy(others));
    ASSERT_TRUE(context.Step("call"));
    ASSERT_OK(Sum(&many, &many, clique.comm(), clique.stream()));
  }
  ASSERT_TRUE(clique.Synchronize());
  EXPECT_TRUE(many.AreAll(n)) << many.get()[0];
  ASSERT_TRUE(context.Barrier());
}

TEST(Lifecycle, DestroyingDoesNotWaitForOtherCommunicators) {
  RunRanks(harness::Threads(2), DestroyWhileAnotherWaits);
  RunRanks(harness::Layout{2, 2, 1}, DestroyWhileAnotherWaits);
}

TEST(Lifecycle, Split) {
  for (const harness::Layout& layout : {harness::Processes(4), harness::Threads(4)}) {
    RunRanks(layout, [](RankContext& context) {
      Clique clique;
      ASSERT_TRUE(clique.Init(context));
      ncclComm_t half = nullptr;
      ASSERT_OK(ncclCommSplit(clique.comm(), context.rank() % 2, -context.rank(), &half, nullptr));
      int rank = -1, device = -1;
      ASSERT_OK(ncclCommUserRank(half, &rank));
      ASSERT_OK(ncclCommCuDevice(half, &device));
      EXPECT_EQ(rank, context.rank() < 2 ? 1 : 0);
      EXPECT_EQ(device, 0);
      Words data(3000, context.rank());
      ASSERT_OK(Sum(&data, &data, half, clique.stream()));
      ASSERT_TRUE(clique.Synchronize());
      EXPECT_TRUE(data.AreAll(context.rank() % 2 == 0 ? 2 : 4)) << data.get()[0];
      ASSERT_OK(Sum(&data, &data, clique.comm(), clique.stream()));
      ASSERT_TRUE(clique.Synchronize());
      EXPECT_TRUE(data.AreAll(12)) << data.get()[0];
      ASSERT_TRUE(context.Barrier());
      ASSERT_OK(ncclCommDestroy(half));
      ASSERT_TRUE(context.Barrier());
    });
  }
}

// Returns the communicator's state once it is no longer ncclInProgress.
ncclResult_t Await(ncclComm_t comm) {
  ncclResult_t state = ncclInProgress;
  while (state == ncclInProgress) {
    EXPECT_OK(ncclCommGetAsyncError(comm, &state));
    harness::LookLater();
  }
  return state;
}

TEST(Lifecycle, NonBlockingAndFinalize) {
  RunRanks(harness::Processes(2), [](RankContext& context) {
    ncclUniqueId id;
    ASSERT_TRUE(harness::ShareUniqueId(context, &id));
    const ncclComm_t comm = harness::BeginInit(id, 2, context.rank());
    ASSERT_NE(comm, nullptr);
    ASSERT_EQ(Await(comm), ncclSuccess) << ncclGetLastError(comm);
    axcclStream_t stream = nullptr;
    ASSERT_OK(harness::CreateStream(&stream));
    Words data(20000, 1);
    for (int i = 0; i < 5; ++i) {
      const ncclResult_t called = Sum(&data, &data, comm, stream);
      ASSERT_TRUE(called == ncclInProgress || called == ncclSuccess);
    }
    const ncclResult_t finalizing = ncclCommFinalize(comm);
    ASSERT_TRUE(finalizing == ncclInProgress || finalizing == ncclSuccess) << finalizing;
    ASSERT_EQ(Await(comm), ncclSuccess) << ncclGetLastError(comm);
    // Finalized: everything is done.
    EXPECT_EQ(EnterGpu()->query_stream(stream), 0);
    EXPECT_TRUE(data.AreAll(32)) << data.get()[0];
    ASSERT_OK(ncclCommDestroy(comm));
    ASSERT_OK(harness::DestroyStream(stream));
  });
}

TEST(Lifecycle, InitAllUsesTheDevicesInTurn) {
  const auto body = [](RankContext& context) {
    ncclComm_t comms[3] = {};
    ASSERT_OK(ncclCommInitAll(comms, 3, nullptr));
    for (int i = 0; i < 3; ++i) {
      int device = -1;
      ASSERT_OK(ncclCommCuDevice(comms[i], &device));
      EXPECT_EQ(device, i % 2);
    }
    ASSERT_OK(ncclGroupStart());
    for (ncclComm_t comm : comms) ASSERT_OK(ncclCommDestroy(comm));
    ASSERT_OK(ncclGroupEnd());
  };
  RunRanks(harness::Processes(1), body, SmallGpu(2));
}

TEST(Lifecycle, MemoryOfTheLibrary) {
  RunRanks(harness::OneThread(2), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    void* memory = nullptr;
    ASSERT_OK(ncclMemAlloc(&memory, 4096));
    const harness::GpuDriver* const driver = EnterGpu();
    Words outs[2] = {Words(1024), Words(1024)};
    ASSERT_EQ(driver->fill(reinterpret_cast<uint64_t>(memory), 3, 1024, clique.stream()), 0);
    ASSERT_OK(ncclGroupStart());
    for (int i = 0; i < 2; ++i)
      ASSERT_OK(ncclAllReduce(memory, outs[i].get(), 512, ncclInt32, ncclSum, clique.comm(i), Cuda(clique.stream())));
    ASSERT_OK(ncclGroupEnd());
    ASSERT_TRUE(clique.Synchronize());
    for (Words& out : outs) {
      EXPECT_EQ(out.get()[511], 6);
      EXPECT_EQ(out.get()[512], 0);
    }
    ASSERT_OK(ncclMemFree(memory));
    EXPECT_NE(ncclMemFree(memory), ncclSuccess);
  });
}

}  // namespace
}  // namespace axccl::tests
