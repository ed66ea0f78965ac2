// NVLink SHARP: plans with slots of all ranks on GPUs that have multicast, each rank on a device of its own.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/collectives/cases.h"
#include "tests/cuda/graph.h"
#include "tests/cuda/matrix_calls.h"
#include "tests/cuda/words.h"
#include "tests/harness/case_runner.h"
#include "tests/harness/gpus_here.h"
#include "tests/harness/rank_logs.h"
#include "tests/harness/residue.h"
#include "tests/harness/timing.h"

namespace axccl::tests {
namespace {

using harness::Call;
using harness::Case;
using harness::CaseRunner;
using harness::Clique;
using harness::EnterGpu;
using harness::Fold;
using harness::Layout;
using harness::RankContext;
using harness::RunOptions;
using harness::RunRanks;

using Variables = std::vector<std::pair<std::string, std::string>>;

// Asked for also between two ranks; `algorithm` is the only one allowed where it exists.
RunOptions OnDevices(int devices, const std::string& algorithm, const Variables& more = {}) {
  RunOptions options = SmallGpu(devices);
  options.deadline = std::chrono::seconds(60);
  options.environment.insert(
      options.environment.end(),
      {{"NCCL_NVLS_ENABLE", "1"}, {"NCCL_ALGO", algorithm}, {harness::kNeedsGpus, std::to_string(devices)}});
  options.environment.insert(options.environment.end(), more.begin(), more.end());
  return options;
}

std::string LastAlgorithm(const Clique& clique) {
  const char* algorithm = nullptr;
  EXPECT_OK(axcclCommGetLastAlgorithm(clique.comm(), &algorithm));
  return algorithm;
}

// The switch adds floats, and multiplies none.
TEST(Nvls, EstimatesKnowIt) {
  const auto body = [](RankContext& context) {
    ASSERT_NE(EnterGpu(context.rank()), nullptr);
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    constexpr size_t kLarge = size_t{256} << 20;
    EXPECT_NE(EstimateOf(clique, kLarge, ncclSum), EstimateOf(clique, kLarge, ncclProd));
    EXPECT_EQ(EstimateOf(clique, kLarge, ncclMax), EstimateOf(clique, kLarge, ncclProd));
    ASSERT_TRUE(context.Barrier());
  };
  RunRanks(harness::Threads(3), body, OnDevices(3, "nvls"));
}

// ---- calls ----

bool IsFloatOf32Or64(ncclDataType_t type) { return type == ncclFloat32 || type == ncclFloat64; }
bool IsIntegerOf32Or64(ncclDataType_t type) {
  return type == ncclInt32 || type == ncclUint32 || type == ncclInt64 || type == ncclUint64;
}

// Whether the switch folds what the call folds.
bool Folds(const Case& c) {
  const bool adds = c.fold == Fold::kSum || c.fold == Fold::kPreMulSum;
  if (IsFloatOf32Or64(c.type) || c.type == ncclFloat16 || c.type == ncclBfloat16) return adds || c.fold == Fold::kAvg;
  if (c.fold == Fold::kAnd || c.fold == Fold::kOr || c.fold == Fold::kXor) return true;
  return IsIntegerOf32Or64(c.type) && (adds || c.fold == Fold::kMin || c.fold == Fold::kMax);
}

bool Has(std::string_view algorithm, const Case& c) {
  if (c.count == 0) return false;
  if (algorithm == "nvls_oneshot") return c.call == Call::kAllReduce;
  return c.call == Call::kAllGather || ((c.call == Call::kAllReduce || c.call == Call::kReduceScatter) && Folds(c));
}

// An eighth of them, another one with each seed, unless all are asked for.
std::vector<Case> CasesOf(int ranks, const std::vector<size_t>& counts) {
  const uint64_t every = harness::AllTests() ? 1 : 8;
  uint64_t number = harness::Seed() % every;
  std::vector<Case> cases;
  for (const Case& c : AllCases(ranks, counts, harness::Seed())) {
    const bool some = c.call == Call::kAllReduce || c.call == Call::kReduceScatter || c.call == Call::kAllGather ||
                      (c.call == Call::kBroadcast && c.type == ncclInt32);
    if (some && number++ % every == 0) cases.push_back(c);
  }
  return cases;
}

void RunCalls(RankContext& context, const std::string& algorithm, const std::vector<Case>& cases) {
  ASSERT_NE(EnterGpu(context.rank()), nullptr);
  Clique clique;
  ASSERT_TRUE(clique.Init(context));
  CaseRunner runner(context, clique, size_t{24} << 20);
  harness::Random random(harness::Seed());
  for (const Case& c : cases) {
    ASSERT_TRUE(runner.Enqueue(c, {}));
    if (c.count == 0 || random.OneIn(2)) continue;
    ASSERT_TRUE(runner.Finish());
    ASSERT_EQ(LastAlgorithm(clique) == algorithm, Has(algorithm, c)) << c.Text() << ": " << LastAlgorithm(clique);
  }
  ASSERT_TRUE(runner.Finish());
  ASSERT_TRUE(context.Barrier());
}

void ExpectCalls(const Layout& layout, const std::string& algorithm, const std::vector<Case>& cases,
                 const Variables& more = {}) {
  RunRanks(
      layout, [&](RankContext& context) { RunCalls(context, algorithm, cases); },
      OnDevices(layout.nranks(), algorithm, more));
}

TEST(Nvls, CallsOfThreads) {
  for (const int ranks : {2, 3}) ExpectCalls(harness::Threads(ranks), "nvls", CasesOf(ranks, {0, 1, 7, 64, 1009}));
}

TEST(Nvls, CallsOfProcesses) { ExpectCalls(harness::Processes(4), "nvls", CasesOf(4, {0, 3, 31, 1009})); }

TEST(Nvls, CallsOfEight) { ExpectCalls(harness::Threads(8), "nvls", CasesOf(8, {5, 1000})); }

TEST(Nvls, OneshotCalls) {
  ExpectCalls(harness::Threads(3), "nvls_oneshot", CasesOf(3, {0, 1, 31, 1009}));
  ExpectCalls(harness::Processes(2), "nvls_oneshot", CasesOf(2, {2, 1000}));
}

// Of one view, whatever its strides.
TEST(Nvls, MakesSmallCallsOnViews) {
  for (const std::string algorithm : {"nvls", "nvls_oneshot"}) {
    const auto body = [algorithm](RankContext& context) {
      ASSERT_NE(EnterGpu(context.rank()), nullptr);
      Clique clique;
      ASSERT_TRUE(clique.Init(context));
      DeviceRoom room;
      const int rank = context.rank();
      const MatrixGroup group{axcclDefaultChannel(clique.comm()), 3, rank, 8, 20, clique.stream()};
      ASSERT_TRUE(context.Barrier());
      for (int round = 0; round < 4; ++round) {
        room.Reset();
        const MatrixCall sum = group.Calls(round)[MatrixGroup::kAllReduce];
        const Form form = Form::Of(rank, round);
        Matrix in(&room, sum.in_rows, sum.in_columns, form.in_turned, form.in_gap),
            out(&room, sum.out_rows, sum.out_columns, form.out_turned, form.out_gap);
        in.Fill(rank, round);
        ASSERT_OK(sum.call(in.view(), out.view()));
        ASSERT_TRUE(clique.Synchronize());
        EXPECT_EQ(out.CountWrong(sum.expected), 0) << round;
        EXPECT_EQ(LastAlgorithm(clique), algorithm);
        ASSERT_TRUE(context.Barrier());
      }
    };
    RunRanks(harness::Threads(3), body, OnDevices(3, algorithm));
  }
}

// Several lanes and turns, through little memory. Each type with one of the calls, unless all are asked for.
TEST(Nvls, LargeCalls) {
  const std::pair<ncclDataType_t, Fold> folds[] = {
      {ncclFloat64, Fold::kSum}, {ncclBfloat16, Fold::kPreMulSum}, {ncclFloat32, Fold::kAvg}, {ncclInt64, Fold::kMin}};
  std::vector<Case> cases;
  uint64_t number = harness::Seed() % 3;
  for (const auto& [type, fold] : folds) {
    for (const Call call : {Call::kAllReduce, Call::kReduceScatter, Call::kAllGather})
      if (number++ % 3 == 0 || harness::AllTests())
        cases.push_back({call, type, fold, 200003, 0, harness::Seed() + cases.size()});
    ++number;
  }
  const Variables few = {{"AXCCL_NVLS_BYTES", "2M"}, {"SOFTGPU_MULTIPROCESSORS", "3"}};
  for (const char* algorithm : {"nvls", "nvls_oneshot"}) {
    ExpectCalls(harness::Threads(3), algorithm, cases, few);
    ExpectCalls(harness::Processes(3), algorithm, cases, few);
  }
}

// Plans of all kinds follow each other on a channel.
TEST(Nvls, BetweenOtherCalls) {
  std::vector<Case> cases;
  harness::Random random(harness::Seed());
  for (int i = 0; i < 150; ++i) cases.push_back(RandomCase(&random, 3, 40000));
  RunRanks(
      harness::Threads(3),
      [&](RankContext& context) {
        ASSERT_NE(EnterGpu(context.rank()), nullptr);
        Clique clique;
        ASSERT_TRUE(clique.Init(context));
        CaseRunner runner(context, clique, size_t{24} << 20);
        for (const Case& c : cases) ASSERT_TRUE(runner.Enqueue(c, {}));
        ASSERT_TRUE(runner.Finish());
        ASSERT_TRUE(context.Barrier());
      },
      OnDevices(3, "^direct,oneshot"));
}

// Launches of a captured call, each with new data.
TEST(Nvls, Captured) {
  RunRanks(
      harness::Processes(3),
      [](RankContext& context) {
        ASSERT_NE(EnterGpu(context.rank()), nullptr);
        Clique clique;
        ASSERT_TRUE(clique.Init(context));
        Words data(5000);
        Graph graph;
        graph.Capture(clique.stream(), [&] { ASSERT_OK(Sum(&data, &data, clique.comm(), clique.stream())); });
        for (int i = 1; i < 10; ++i) {
          data.Fill(i);
          ASSERT_NO_FATAL_FAILURE(graph.Launch(clique.stream()));
          ASSERT_TRUE(clique.Synchronize());
          ASSERT_TRUE(data.AreAll(3 * i)) << data.get()[0];
        }
        EXPECT_EQ(LastAlgorithm(clique), "nvls");
        graph.Destroy();
        ASSERT_TRUE(context.Barrier());
      },
      OnDevices(3, "nvls"));
}

// ---- whether it is used ----

// Makes a call that NVLink SHARP could serve, and expects that it does, or not.
void ExpectUse(RankContext& context, int device, bool used) {
  ASSERT_NE(EnterGpu(device), nullptr);
  Clique clique;
  ASSERT_TRUE(clique.Init(context));
  const int n = context.nranks();
  Words data(3000, context.rank() + 1), all(3000 * static_cast<size_t>(n));
  ASSERT_OK(
      ncclAllGather(data.get(), all.get(), data.size(), ncclInt32, clique.comm(), harness::Cuda(clique.stream())));
  ASSERT_OK(Sum(&data, &data, clique.comm(), clique.stream()));
  ASSERT_TRUE(clique.Synchronize());
  EXPECT_TRUE(data.AreAll(n * (n + 1) / 2)) << data.get()[0];
  EXPECT_EQ(all.get()[all.size() - 1], n);
  EXPECT_EQ(LastAlgorithm(clique) == "nvls", used) << LastAlgorithm(clique);
  ASSERT_TRUE(context.Barrier());
}

void ExpectUse(const Layout& layout, bool used, const Variables& more, int devices = 4) {
  RunRanks(
      layout, [&](RankContext& context) { ExpectUse(context, context.rank() % devices, used); },
      OnDevices(devices, "nvls", more));
}

TEST(Nvls, IsUsedWhereItIsAskedForOrPays) {
  for (const Layout& layout : {harness::Threads(2), harness::Processes(2)}) {
    ExpectUse(layout, true, {});
    ExpectUse(layout, false, {{"NCCL_NVLS_ENABLE", "0"}});
    ExpectUse(layout, false, {{"NCCL_NVLS_ENABLE", ""}});  // two ranks gain nothing
  }
  ExpectUse(harness::Processes(3), true, {{"NCCL_NVLS_ENABLE", ""}});
  ExpectUse(harness::Processes(3), true, {{"NCCL_NVLS_ENABLE", "2"}});
  ExpectUse(harness::Processes(3), false, {{"NCCL_NVLS_ENABLE", "0"}});
}

TEST(Nvls, IsNotUsedWhereItIsMissing) {
  for (const Layout& layout : {harness::Threads(3), harness::Processes(3)}) {
    for (const char* missing : {"SOFTGPU_MULTICAST", "SOFTGPU_VMM", "SOFTGPU_BIND"})
      ExpectUse(layout, false, {{missing, "0"}});
    ExpectUse(layout, false, {{"SOFTGPU_CORRUPT_MULTICAST", "1"}});
    ExpectUse(layout, false, {{"SOFTGPU_ARCH", "80"}});
    ExpectUse(layout, false, {}, 2);  // ranks share a device
    ExpectUse(layout, false, {{"NCCL_P2P_DISABLE", "1"}});
  }
}

// The others do without it, too, whatever the step at which that rank fails, and print why.
TEST(Nvls, IsNotUsedIfItIsMissingOnOneRank) {
  struct Obstacle {
    const char *name, *value, *reason;
  };
  for (const auto& [name, value, reason] : {Obstacle{"NCCL_NVLS_ENABLE", "0", "NCCL_NVLS_ENABLE=0 on rank"},
                                            {"SOFTGPU_MULTICAST", "0", "has no multicast"},
                                            {"SOFTGPU_BIND", "0", "cuMulticastBindMem failed"},
                                            {"SOFTGPU_CORRUPT_MULTICAST", "1", "on CUDA device 0 of rank 0"}}) {
    for (const int obstructed : {0, 2}) {
      const harness::RankLogs logs;
      const auto body = [&logs, name = name, value = value, reason = reason, obstructed](RankContext& context) {
        if (context.rank() == obstructed) {
          ASSERT_EQ(setenv(name, value, 1), 0);
        }
        ASSERT_NO_FATAL_FAILURE(ExpectUse(context, context.rank(), false));
        EXPECT_EQ(logs.Count(reason), 1u) << logs.Own();
      };
      RunRanks(harness::Processes(3), body, OnDevices(3, "nvls", logs.environment()));
    }
  }
}

// The order in which the switch folds is not defined, which matters to floats.
TEST(Nvls, GroupOrderExcludesTheSwitch) {
  for (const std::string algorithm : {"nvls", "nvls_oneshot"}) {
    const auto body = [&algorithm](RankContext& context) {
      ASSERT_NE(EnterGpu(context.rank()), nullptr);
      Clique clique;
      ASSERT_TRUE(clique.Init(context));
      Words data(3000, 1);
      ASSERT_OK(Sum(&data, &data, clique.comm(), clique.stream()));
      ASSERT_TRUE(clique.Synchronize());
      EXPECT_EQ(LastAlgorithm(clique), algorithm);
      ASSERT_OK(ncclAllReduce(data.get(), data.get(), data.size(), ncclFloat32, ncclSum, clique.comm(),
                              harness::Cuda(clique.stream())));
      ASSERT_TRUE(clique.Synchronize());
      EXPECT_EQ(LastAlgorithm(clique) == algorithm, algorithm == "nvls_oneshot") << LastAlgorithm(clique);
      ASSERT_TRUE(context.Barrier());
    };
    RunRanks(harness::Processes(3), body, OnDevices(3, algorithm, {{"AXCCL_ORDER", "group"}}));
  }
}

// A new communicator of some of the ranks has its own.
TEST(Nvls, OfEveryCommunicatorItsOwn) {
  const auto body = [](RankContext& context) {
    ASSERT_NE(EnterGpu(context.rank()), nullptr);
    Clique clique, half;
    ASSERT_TRUE(clique.Init(context));
    ncclComm_t comm = nullptr;
    ASSERT_OK(ncclCommSplit(clique.comm(), context.rank() % 2, context.rank(), &comm, nullptr));
    ASSERT_TRUE(half.Adopt(comm));
    ASSERT_TRUE(context.Barrier());  // a communicator is made while no operation of its parent is under way
    Words data(3000, 1);
    ASSERT_OK(Sum(&data, &data, half.comm(), half.stream()));
    ASSERT_TRUE(half.Synchronize());
    ASSERT_OK(Sum(&data, &data, clique.comm(), clique.stream()));
    ASSERT_TRUE(clique.Synchronize());
    EXPECT_TRUE(data.AreAll(8)) << data.get()[0];
    EXPECT_EQ(LastAlgorithm(half), "nvls");
    EXPECT_EQ(LastAlgorithm(clique), "nvls");
    ASSERT_TRUE(context.Barrier());
  };
  RunRanks(harness::Processes(4), body, OnDevices(4, "nvls"));
  RunRanks(harness::Threads(4), body, OnDevices(4, "nvls"));
}

// ---- what it leaves ----

struct Held {
  size_t memory = 0;  // of the device, free
  int descriptors = 0, mappings = 0;
};

Held Look() {
  Held held;
  size_t total = 0;
  EXPECT_EQ(EnterGpu()->memory_info(&held.memory, &total), 0);
  held.descriptors = harness::Entries("/proc/self/fd");
  held.mappings = harness::SharedMappings();
  return held;
}

// What peers had mapped is freed soon after they have released it, which a thread that ends soon may do.
Held Await(const Held& least) {
  Held held = Look();
  for (const uint64_t start = harness::NowNs();
       (held.memory < least.memory || held.descriptors > least.descriptors || held.mappings > least.mappings) &&
       harness::NowNs() - start < harness::AllowedNs(1000);
       held = Look())
    harness::LookLater();
  return held;
}

// Ranks leave while others still read what they have published.
void MakeUseAndLeave(RankContext& context, Words* data, Words* part) {
  Clique clique;
  ASSERT_TRUE(clique.Init(context));
  data->Fill(1);
  for (int i = 0; i < 3; ++i)
    ASSERT_OK(ncclReduceScatter(data->get(), part->get(), part->size(), ncclInt32, ncclSum, clique.comm(),
                                harness::Cuda(clique.stream())));
  ASSERT_TRUE(clique.Synchronize());
  EXPECT_EQ(LastAlgorithm(clique), "nvls");
  EXPECT_TRUE(part->AreAll(context.nranks()));
  ASSERT_TRUE(clique.Destroy());
}

TEST(Nvls, NothingIsLeft) {
  const auto body = [](RankContext& context) {
    ASSERT_NE(EnterGpu(context.rank()), nullptr);
    Words data(6000), part(2000);
    for (int i = 0; i < 4; ++i) ASSERT_NO_FATAL_FAILURE(MakeUseAndLeave(context, &data, &part));
    ASSERT_TRUE(context.Barrier());
    Held before = Look();
    for (int i = 0; i < 20; ++i) {
      ASSERT_TRUE(context.Step("cycle %d", i));
      ASSERT_NO_FATAL_FAILURE(MakeUseAndLeave(context, &data, &part));
    }
    ASSERT_TRUE(context.Barrier());
    // What is kept for ranks to come, if one was made before the one of the cycle before had given back all.
    before.memory -= size_t{2} << 20;
    before.mappings += 2;
    const Held after = Await(before);
    EXPECT_GE(after.memory, before.memory);
    EXPECT_LE(after.descriptors, before.descriptors);
    EXPECT_LE(after.mappings, before.mappings);
    ASSERT_TRUE(context.Barrier());
  };
  RunRanks(harness::Processes(3), body, OnDevices(3, "nvls"));
}

}  // namespace
}  // namespace axccl::tests
