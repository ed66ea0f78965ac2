// Scratch that GPU ranks take when large calls cannot go from buffer to buffer: managed memory, which cannot be shared.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/cuda/graph.h"
#include "tests/cuda/matrix_calls.h"
#include "tests/cuda/words.h"
#include "tests/harness/timing.h"

namespace axccl::tests {
namespace {

using harness::Clique;
using harness::EnterGpu;
using harness::GpuDriver;
using harness::Layout;
using harness::RankContext;
using harness::RunOptions;
using harness::RunRanks;

constexpr size_t kWords = 70'000;
constexpr int32_t kSentinel = -77;
// Calls that go through the scratch that ranks have, before they take more.
constexpr uint64_t kPatience = 4;

RunOptions Growing(std::vector<std::pair<std::string, std::string>> more = {}) {
  RunOptions options = SmallGpu(2);
  options.environment.insert(options.environment.end(), {{"NCCL_P2P_DIRECT_DISABLE", "1"},  // for ranks of one process
                                                         {"AXCCL_SCRATCH_BYTES", "64K"},
                                                         {"AXCCL_GROW_BYTES", "256K"},
                                                         {"AXCCL_MAP_BYTES", "256K"},
                                                         {"AXCCL_GROWN_SCRATCH_BYTES", "2M"}});
  for (auto& variable : more) options.environment.push_back(std::move(variable));
  return options;
}

uint64_t Grown(ncclComm_t comm) { return harness::InfoOf(comm).grown; }

// Counts the memory that processes share as files, of this process and mapped of others: that is grown scratch, unless
// the test has other memory of that kind.
int SharedFiles() {
  std::ifstream maps("/proc/self/maps");
  int count = 0;
  for (std::string line; std::getline(maps, line);) count += line.find("softgpu-memory") != std::string::npos;
  return count;
}

void Await(const char* what, const std::function<bool()>& condition) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10) * harness::TimeScale();
  while (!condition() && std::chrono::steady_clock::now() < deadline) harness::LookLater();
  EXPECT_TRUE(condition()) << what;
}

// Buffers of calls, with words behind them that no call may write.
struct Buffers {
  explicit Buffers(int ranks)
      : in(kWords), out(kWords + 1, kSentinel), all(kWords * static_cast<size_t>(ranks) + 1, kSentinel) {}
  Words in, out, all;
};

int32_t InputOf(int rank, int round, size_t i) { return rank * 1000 + round * 100 + static_cast<int32_t>(i % 97); }

int32_t SumOf(int ranks, int round, size_t i) {
  int32_t sum = 0;
  for (int rank = 0; rank < ranks; ++rank) sum += InputOf(rank, round, i);
  return sum;
}

void Fill(int rank, int round, Buffers* buffers) {
  for (size_t i = 0; i < kWords; ++i) buffers->in.get()[i] = InputOf(rank, round, i);
}

// How many words are wrong after a sum and a gather of that round.
size_t CountWrong(int ranks, int round, Buffers* buffers) {
  size_t wrong = 0;
  for (size_t i = 0; i < kWords; ++i) {
    wrong += buffers->out.get()[i] != SumOf(ranks, round, i);
    for (int rank = 0; rank < ranks; ++rank)
      wrong += buffers->all.get()[kWords * static_cast<size_t>(rank) + i] != InputOf(rank, round, i);
  }
  wrong += buffers->out.get()[kWords] != kSentinel;
  wrong += buffers->all.get()[kWords * static_cast<size_t>(ranks)] != kSentinel;
  return wrong;
}

ncclResult_t CallTwice(Buffers* buffers, ncclComm_t comm, axcclStream_t stream) {
  const cudaStream_t on = harness::Cuda(stream);
  const ncclResult_t called =
      ncclAllReduce(buffers->in.get(), buffers->out.get(), kWords, ncclInt32, ncclSum, comm, on);
  if (called != ncclSuccess) return called;
  return ncclAllGather(buffers->in.get(), buffers->all.get(), kWords, ncclInt32, comm, on);
}

// Makes two calls, and checks what they bring.
void Round(RankContext& context, ncclComm_t comm, axcclStream_t stream, int round, Buffers* buffers) {
  int ranks = 0, rank = 0;
  ASSERT_OK(ncclCommCount(comm, &ranks));
  ASSERT_OK(ncclCommUserRank(comm, &rank));
  Fill(rank, round, buffers);
  ASSERT_OK(CallTwice(buffers, comm, stream));
  ASSERT_OK(harness::SynchronizeStream(stream));
  ASSERT_EQ(CountWrong(ranks, round, buffers), 0u) << "round " << round;
  ASSERT_TRUE(context.Barrier());
}

// Makes rounds until one has used grown scratch, which is the same one on all ranks. They take it while they are idle,
// which they seldom are here, and map it when they get to that.
void MakeRoundsUntilUsed(RankContext& context, ncclComm_t comm, axcclStream_t stream, Buffers* buffers, int* round) {
  constexpr int kMost = 1000;
  const uint64_t grown = Grown(comm);
  ASSERT_TRUE(context.Barrier());
  for (const int first = *round; Grown(comm) == grown && *round < first + kMost;)
    ASSERT_NO_FATAL_FAILURE(Round(context, comm, stream, ++*round, buffers));
  EXPECT_GT(Grown(comm), grown);
}

// The same from before there is any.
void MakeRoundsUntilGrown(RankContext& context, ncclComm_t comm, axcclStream_t stream, Buffers* buffers, int* round) {
  const int before = SharedFiles();
  const uint64_t grown = Grown(comm);
  ASSERT_TRUE(context.Barrier());
  for (uint64_t calls = 0; calls < kPatience; calls += 2)
    ASSERT_NO_FATAL_FAILURE(Round(context, comm, stream, ++*round, buffers));
  EXPECT_EQ(Grown(comm), grown);
  Await("there is no more scratch", [&] { return SharedFiles() > before; });
  MakeRoundsUntilUsed(context, comm, stream, buffers, round);
}

class GrownScratchTest : public testing::TestWithParam<Layout> {};  // one rank a thread

// It is taken once, all calls use it from then on, and they take nothing else.
TEST_P(GrownScratchTest, IsTakenOnceByAllRanks) {
  RunRanks(
      GetParam(),
      [](RankContext& context) {
        Clique clique;
        ASSERT_NE(EnterGpu(context.rank() % 2), nullptr);
        ASSERT_TRUE(clique.Init(context));
        Buffers buffers(context.nranks());
        int round = 0;
        ASSERT_NO_FATAL_FAILURE(MakeRoundsUntilGrown(context, clique.comm(), clique.stream(), &buffers, &round));
        ASSERT_NO_FATAL_FAILURE(Round(context, clique.comm(), clique.stream(), ++round, &buffers));
        const int files = SharedFiles();
        const uint64_t grown = Grown(clique.comm());
        // Ranks of one process have theirs, and map those of the others.
        EXPECT_GE(files, context.nranks());
        for (int more = 0; more < 5; ++more)
          ASSERT_NO_FATAL_FAILURE(Round(context, clique.comm(), clique.stream(), ++round, &buffers));
        EXPECT_EQ(Grown(clique.comm()), grown + 10);
        EXPECT_EQ(SharedFiles(), files);
        EXPECT_EQ(harness::InfoOf(clique.comm()).mapped, 0u);
        ASSERT_TRUE(context.Barrier());
      },
      Growing());
}

INSTANTIATE_TEST_SUITE_P(Layouts, GrownScratchTest,
                         testing::Values(harness::Processes(2), harness::Processes(3), Layout{2, 2, 1},
                                         Layout{1, 2, 1}),
                         [](const auto& info) { return info.param.Text(); });

// Every kind of collective finds its slots there.
TEST(GrownScratch, AllKinds) {
  RunRanks(
      harness::Processes(3),
      [](RankContext& context) {
        Clique clique;
        ASSERT_TRUE(clique.Init(context));
        const int ranks = context.nranks(), rank = context.rank();
        Buffers buffers(ranks);
        int round = 0;
        ASSERT_NO_FATAL_FAILURE(MakeRoundsUntilGrown(context, clique.comm(), clique.stream(), &buffers, &round));
        const uint64_t before = Grown(clique.comm());
        const cudaStream_t stream = harness::Cuda(clique.stream());
        Words many(kWords * static_cast<size_t>(ranks));
        for (int r = 0; r < ranks; ++r) {
          for (size_t i = 0; i < kWords; ++i) many.get()[kWords * static_cast<size_t>(r) + i] = InputOf(rank, r, i);
        }
        Fill(rank, 0, &buffers);
        ASSERT_OK(ncclReduceScatter(many.get(), buffers.out.get(), kWords, ncclInt32, ncclSum, clique.comm(), stream));
        ASSERT_OK(ncclAlltoAll(many.get(), buffers.all.get(), kWords, ncclInt32, clique.comm(), stream));
        ASSERT_TRUE(clique.Synchronize());
        for (size_t i = 0; i < kWords; ++i) {
          ASSERT_EQ(buffers.out.get()[i], SumOf(ranks, rank, i)) << i;
          for (int r = 0; r < ranks; ++r)
            ASSERT_EQ(buffers.all.get()[kWords * static_cast<size_t>(r) + i], InputOf(r, rank, i)) << i;
        }
        ASSERT_OK(ncclBroadcast(buffers.in.get(), buffers.out.get(), kWords, ncclInt32, 1, clique.comm(), stream));
        ASSERT_OK(ncclReduce(buffers.in.get(), many.get(), kWords, ncclInt32, ncclSum, 2, clique.comm(), stream));
        ASSERT_TRUE(clique.Synchronize());
        for (size_t i = 0; i < kWords; ++i) {
          ASSERT_EQ(buffers.out.get()[i], InputOf(1, 0, i)) << i;
          if (rank == 2) {
            ASSERT_EQ(many.get()[i], SumOf(ranks, 0, i)) << i;
          }
        }
        EXPECT_EQ(Grown(clique.comm()), before + 4);
        ASSERT_TRUE(context.Barrier());
      },
      Growing());
}

// Of managed memory, too.
TEST(GrownScratch, Views) {
  RunRanks(
      harness::Processes(2),
      [](RankContext& context) {
        Clique clique;
        ASSERT_TRUE(clique.Init(context));
        Buffers buffers(2);
        DeviceRoom room(size_t{8} << 20, true);
        int round = 0;
        ASSERT_NO_FATAL_FAILURE(MakeRoundsUntilGrown(context, clique.comm(), clique.stream(), &buffers, &round));
        const MatrixGroup group{axcclDefaultChannel(clique.comm()), 2, context.rank(), 200, 400, clique.stream()};
        for (const MatrixCall& one : group.Calls(1)) {
          room.Reset();
          Matrix in(&room, one.in_rows, one.in_columns, context.rank() == 0, 1),
              out(&room, one.out_rows, one.out_columns, context.rank() == 1, 2);
          in.Fill(context.rank(), 1);
          const uint64_t before = Grown(clique.comm());
          ASSERT_OK(one.call(in.view(), out.view())) << one.name;
          ASSERT_TRUE(clique.Synchronize());
          EXPECT_EQ(out.CountWrong(one.expected), 0) << one.name;
          EXPECT_EQ(Grown(clique.comm()), before + 1) << one.name;
          ASSERT_TRUE(context.Barrier());
        }
      },
      Growing());
}

TEST(GrownScratch, NotWithoutPermission) {
  RunRanks(
      harness::Processes(2),
      [](RankContext& context) {
        Clique clique;
        ASSERT_TRUE(clique.Init(context));
        Buffers buffers(context.nranks());
        for (int round = 1; round < 10; ++round)
          ASSERT_NO_FATAL_FAILURE(Round(context, clique.comm(), clique.stream(), round, &buffers));
        EXPECT_EQ(Grown(clique.comm()), 0u);
        EXPECT_EQ(SharedFiles(), 0);
        ASSERT_TRUE(context.Barrier());
      },
      Growing({{"AXCCL_GROWN_SCRATCH_BYTES", "0"}}));
}

// If one rank can have none, the others give theirs back, and no rank tries again.
TEST(GrownScratch, OneRankHasNone) {
  for (const int without : {0, 1}) {
    RunRanks(
        harness::Processes(2),
        [without](RankContext& context) {
          if (context.rank() == without) {
            ASSERT_EQ(setenv("SOFTGPU_VMM", "0", 1), 0);
          }
          Clique clique;
          ASSERT_TRUE(clique.Init(context));
          Buffers buffers(context.nranks());
          int round = 0;
          while (round < 8) ASSERT_NO_FATAL_FAILURE(Round(context, clique.comm(), clique.stream(), ++round, &buffers));
          Await("the other rank keeps its own", [] { return SharedFiles() == 0; });
          ASSERT_TRUE(context.Barrier());
          while (round < 16) ASSERT_NO_FATAL_FAILURE(Round(context, clique.comm(), clique.stream(), ++round, &buffers));
          EXPECT_EQ(Grown(clique.comm()), 0u);
          Await("the other rank keeps its own", [] { return SharedFiles() == 0; });
          ASSERT_TRUE(context.Barrier());
        },
        Growing());
  }
}

// More than the devices have.
TEST(GrownScratch, NoRankHasAny) {
  RunRanks(
      harness::Processes(2),
      [](RankContext& context) {
        Clique clique;
        ASSERT_TRUE(clique.Init(context));
        Buffers buffers(context.nranks());
        for (int round = 1; round < 10; ++round)
          ASSERT_NO_FATAL_FAILURE(Round(context, clique.comm(), clique.stream(), round, &buffers));
        EXPECT_EQ(Grown(clique.comm()), 0u);
        ASSERT_TRUE(context.Barrier());
      },
      Growing({{"AXCCL_GROWN_SCRATCH_BYTES", "100G"}}));
}

// Each communicator has its own, which ends with it.
TEST(GrownScratch, OfPartsAndNothingIsLeft) {
  RunRanks(
      harness::Processes(2),
      [](RankContext& context) {
        Clique clique;
        ASSERT_TRUE(clique.Init(context));
        Buffers buffers(context.nranks());
        int round = 0;
        ASSERT_NO_FATAL_FAILURE(MakeRoundsUntilGrown(context, clique.comm(), clique.stream(), &buffers, &round));
        ncclComm_t part = nullptr;
        ASSERT_OK(ncclCommSplit(clique.comm(), 0, -context.rank(), &part, nullptr));
        ASSERT_NO_FATAL_FAILURE(MakeRoundsUntilGrown(context, part, clique.stream(), &buffers, &round));
        ASSERT_NO_FATAL_FAILURE(Round(context, clique.comm(), clique.stream(), ++round, &buffers));
        EXPECT_EQ(SharedFiles(), 4);
        ASSERT_OK(ncclCommDestroy(part));
        Await("scratch is left of the part", [] { return SharedFiles() == 2; });
        ASSERT_TRUE(context.Barrier());
        ASSERT_NO_FATAL_FAILURE(Round(context, clique.comm(), clique.stream(), ++round, &buffers));
        ASSERT_TRUE(clique.Destroy());
        Await("scratch is left", [] { return SharedFiles() == 0; });
        ASSERT_TRUE(context.Barrier());
      },
      Growing());
}

// Calls of a graph keep the scratch with which they were captured. Ranks take more while a capture is under way.
TEST(GrownScratch, Graphs) {
  RunRanks(
      harness::Processes(2),
      [](RankContext& context) {
        constexpr int kGlobal = 0;
        Clique clique;
        ASSERT_TRUE(clique.Init(context));
        const GpuDriver* const driver = EnterGpu();
        Buffers buffers(context.nranks());
        const auto begin = [&] { ASSERT_EQ(driver->begin_capture(clique.stream(), kGlobal), 0); };
        const auto end = [&](void** executable) {
          void* graph = nullptr;
          ASSERT_OK(CallTwice(&buffers, clique.comm(), clique.stream()));
          ASSERT_EQ(driver->end_capture(clique.stream(), &graph), 0);
          ASSERT_EQ(driver->instantiate(executable, graph, 0), 0);
          ASSERT_EQ(driver->destroy_graph(graph), 0);
        };
        const auto replay = [&](void* executable, int round) {
          Fill(context.rank(), round, &buffers);
          ASSERT_EQ(driver->launch_graph(executable, clique.stream()), 0);
          ASSERT_TRUE(clique.Synchronize());
          EXPECT_EQ(CountWrong(context.nranks(), round, &buffers), 0u) << round;
          ASSERT_TRUE(context.Barrier());
        };
        void *before = nullptr, *meanwhile = nullptr, *after = nullptr;
        ASSERT_NO_FATAL_FAILURE(begin());
        ASSERT_NO_FATAL_FAILURE(end(&before));
        ASSERT_NO_FATAL_FAILURE(replay(before, 1));
        ASSERT_NO_FATAL_FAILURE(replay(before, 2));
        ASSERT_NO_FATAL_FAILURE(begin());
        Await("there is no more scratch", [] { return SharedFiles() != 0; });
        ASSERT_NO_FATAL_FAILURE(end(&meanwhile));
        ASSERT_TRUE(context.Barrier());
        int round = 3;
        ASSERT_NO_FATAL_FAILURE(MakeRoundsUntilUsed(context, clique.comm(), clique.stream(), &buffers, &round));
        const uint64_t grown = Grown(clique.comm());
        ASSERT_NO_FATAL_FAILURE(begin());
        ASSERT_NO_FATAL_FAILURE(end(&after));
        ASSERT_NO_FATAL_FAILURE(replay(before, 6));
        EXPECT_EQ(Grown(clique.comm()), grown);
        ASSERT_NO_FATAL_FAILURE(replay(meanwhile, 7));
        // The ranks may have mapped it before either of its calls was captured, or not.
        const uint64_t with_meanwhile = Grown(clique.comm());
        EXPECT_LE(with_meanwhile, grown + 2);
        ASSERT_NO_FATAL_FAILURE(replay(after, 8));
        EXPECT_EQ(Grown(clique.comm()), with_meanwhile + 2);
        for (void* const executable : {before, meanwhile, after}) ASSERT_EQ(driver->destroy_executable(executable), 0);
        ASSERT_TRUE(context.Barrier());
      },
      Growing());
}

// While a kernel of the library waits in this process, nothing is taken: a driver might wait for it.
TEST(GrownScratch, NotWhileAKernelIsUnderWay) {
  RunRanks(
      harness::Processes(2),
      [](RankContext& context) {
        Clique clique, other;
        ASSERT_TRUE(clique.Init(context));
        ASSERT_TRUE(other.Init(context));
        Buffers buffers(context.nranks());
        Words one(3000, 1);
        int round = 0;
        const bool waits = context.rank() == 0;
        if (waits) {
          ASSERT_OK(Sum(&one, &one, other.comm(), other.stream()));
        }
        while (round < 4) ASSERT_NO_FATAL_FAILURE(Round(context, clique.comm(), clique.stream(), ++round, &buffers));
        if (!waits) Await("there is no more scratch", [] { return SharedFiles() == 1; });
        ASSERT_TRUE(context.Barrier());
        while (round < 8) ASSERT_NO_FATAL_FAILURE(Round(context, clique.comm(), clique.stream(), ++round, &buffers));
        EXPECT_EQ(Grown(clique.comm()), 0u);
        Await("it is that of the rank whose kernels have ended", [] { return SharedFiles() == 1; });
        ASSERT_TRUE(context.Barrier());
        if (!waits) {
          ASSERT_OK(Sum(&one, &one, other.comm(), other.stream()));
        }
        ASSERT_TRUE(other.Synchronize());
        EXPECT_TRUE(one.AreAll(2));
        if (waits) Await("there is no more scratch", [] { return SharedFiles() == 2; });
        ASSERT_TRUE(context.Barrier());
        ASSERT_NO_FATAL_FAILURE(MakeRoundsUntilUsed(context, clique.comm(), clique.stream(), &buffers, &round));
        ASSERT_TRUE(context.Barrier());
      },
      Growing());
}

// By a window, kernels of the application may wait for other ranks, and a driver for these.
TEST(GrownScratch, NotWhileThereIsAWindow) {
  RunRanks(
      harness::Processes(2),
      [](RankContext& context) {
        Clique clique;
        ASSERT_TRUE(clique.Init(context));
        Buffers buffers(context.nranks());
        constexpr size_t kBytes = size_t{2} << 20;
        void* memory = nullptr;
        ncclWindow_t window = nullptr;
        ASSERT_OK(ncclMemAlloc(&memory, kBytes));
        ASSERT_OK(ncclCommWindowRegister(clique.comm(), memory, kBytes, &window, NCCL_WIN_DEFAULT));
        ASSERT_TRUE(context.Barrier());
        const int files = SharedFiles();
        int round = 0;
        while (round < 8) ASSERT_NO_FATAL_FAILURE(Round(context, clique.comm(), clique.stream(), ++round, &buffers));
        EXPECT_EQ(Grown(clique.comm()), 0u);
        EXPECT_EQ(SharedFiles(), files);
        ASSERT_TRUE(context.Barrier());
        ASSERT_OK(ncclCommWindowDeregister(clique.comm(), window));
        ASSERT_TRUE(context.Barrier());
        ASSERT_OK(ncclMemFree(memory));
        ASSERT_NO_FATAL_FAILURE(MakeRoundsUntilUsed(context, clique.comm(), clique.stream(), &buffers, &round));
        ASSERT_TRUE(context.Barrier());
      },
      Growing());
}

// A rank dies, or aborts, while the other one waits in a call that uses it.
TEST(GrownScratch, Failures) {
  for (const bool dies : {true, false}) {
    RunRanks(
        harness::Processes(2),
        [dies](RankContext& context) {
          Clique clique;
          ASSERT_TRUE(clique.Init(context));
          Buffers buffers(context.nranks());
          int round = 0;
          ASSERT_NO_FATAL_FAILURE(MakeRoundsUntilGrown(context, clique.comm(), clique.stream(), &buffers, &round));
          if (context.rank() == 1) {
            if (dies) context.Die();
            Abort(&clique);
            return;
          }
          (void)CallTwice(&buffers, clique.comm(), clique.stream());  // may know already
          EXPECT_EQ(AwaitError(clique.comm(), 2000), ncclRemoteError);
          ASSERT_NO_FATAL_FAILURE(Abort(&clique));
          Await("scratch is left", [] { return SharedFiles() == 0; });
        },
        Growing());
  }
}

}  // namespace
}  // namespace axccl::tests
