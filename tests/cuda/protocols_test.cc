// Protocols of GPU ranks: which calls use LL and LL128, that they are right there, and what forbids them.
#include <gtest/gtest.h>

#include <bit>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "tests/cuda/graph.h"
#include "tests/cuda/words.h"
#include "tests/harness/rank_logs.h"

namespace axccl::tests {
namespace {

using harness::Clique;
using harness::Cuda;
using harness::EnterGpu;
using harness::Layout;
using harness::RankContext;
using harness::RunOptions;
using harness::RunRanks;

struct Counts {
  uint64_t ll, ll128;
  bool operator==(const Counts&) const = default;
};
void PrintTo(const Counts& counts, std::ostream* out) { *out << counts.ll << " LL, " << counts.ll128 << " LL128"; }

Counts CountsOf(const Clique& clique) {
  const axcclCommInfo_t info = harness::InfoOf(clique.comm());
  return {info.ll, info.ll128};
}

// Uses oneshot, whose slots are packed.
RunOptions Small(std::vector<std::pair<std::string, std::string>> more = {}, int devices = 2) {
  RunOptions options = SmallGpu(devices);
  options.environment.emplace_back("NCCL_ALGO", "oneshot");
  for (auto& variable : more) options.environment.push_back(std::move(variable));
  return options;
}

constexpr size_t kMost = 2100;
constexpr size_t kSizes[] = {1, 128, 129, 1001, 2048, 2049};

Counts Expected(size_t words, uint64_t calls) {
  if (words * 4 <= 512) return {calls, 0};
  return {0, words * 4 <= 8192 ? calls : 0};
}

struct Buffers {
  explicit Buffers(int ranks) : all(kMost * static_cast<size_t>(ranks)) {}
  Words in{kMost}, mean{kMost}, sum{kMost}, first{kMost}, total{kMost}, received{kMost}, all;
};

// Makes every call that packs its slots, at places of any alignment. Returns how many used which protocol.
Counts CallAll(RankContext& context, const Clique& clique, size_t size, size_t shift, Buffers* buffers) {
  auto& [in, mean, sum, first, total, received, all] = *buffers;
  const int n = context.nranks(), rank = context.rank(), next = (rank + 1) % n, previous = (rank + n - 1) % n;
  const Counts before = CountsOf(clique);
  const cudaStream_t stream = Cuda(clique.stream());
  const ncclComm_t comm = clique.comm();
  for (Words* words : {&sum, &first, &total, &received, &all}) words->Fill(-1);
  for (size_t i = 0; i < size; ++i) in.get()[shift + i] = static_cast<int32_t>(i) + 1000 * rank;
  std::fill_n(mean.get() + shift, size, std::bit_cast<int32_t>(static_cast<float>(n)));
  EXPECT_OK(ncclAllReduce(in.get() + shift, sum.get() + shift, size, ncclInt32, ncclSum, comm, stream));
  EXPECT_OK(ncclAllReduce(mean.get() + shift, mean.get() + shift, size, ncclFloat32, ncclAvg, comm, stream));
  EXPECT_OK(ncclBroadcast(in.get() + shift, first.get() + shift, size, ncclInt32, 0, comm, stream));
  EXPECT_OK(ncclReduce(in.get() + shift, total.get() + shift, size, ncclInt32, ncclMax, n - 1, comm, stream));
  EXPECT_OK(ncclAllGather(in.get() + shift, all.get() + shift, size, ncclInt32, comm, stream));
  EXPECT_OK(ncclGroupStart());
  EXPECT_OK(ncclSend(in.get() + shift, size, ncclInt32, next, comm, stream));
  EXPECT_OK(ncclRecv(received.get() + shift, size, ncclInt32, previous, comm, stream));
  EXPECT_OK(ncclGroupEnd());
  EXPECT_OK(harness::SynchronizeStream(clique.stream()));
  size_t wrong = 0;
  for (size_t i = 0; i < size; ++i) {
    const size_t at = shift + i;
    const auto value = static_cast<int32_t>(i);
    wrong += sum.get()[at] != n * value + 500 * n * (n - 1);
    wrong += std::bit_cast<float>(mean.get()[at]) != static_cast<float>(n);
    wrong += first.get()[at] != value;
    wrong += rank == n - 1 && total.get()[at] != value + 1000 * (n - 1);
    wrong += received.get()[at] != value + 1000 * previous;
    for (int r = 0; r < n; ++r) wrong += all.get()[shift + static_cast<size_t>(r) * size + i] != value + 1000 * r;
  }
  for (Words* words : {&sum, &first, &total, &received})
    wrong += words->get()[shift + size] != -1 || (shift != 0 && words->get()[shift - 1] != -1);
  EXPECT_EQ(wrong, 0u) << size << " words, shift " << shift;
  EXPECT_TRUE(context.Barrier());
  const Counts after = CountsOf(clique);
  return {after.ll - before.ll, after.ll128 - before.ll128};
}

constexpr uint64_t kCalls = 7;  // calls that CallAll makes

class ProtocolsTest : public testing::TestWithParam<Layout> {};  // one rank a thread
class ProtocolsOfFewTest : public ProtocolsTest {};

TEST_P(ProtocolsTest, GoBySize) {
  RunRanks(
      GetParam(),
      [](RankContext& context) {
        ASSERT_NE(EnterGpu(context.rank() % 2), nullptr);
        Clique clique;
        ASSERT_TRUE(clique.Init(context));
        Buffers buffers(context.nranks());
        for (const size_t size : kSizes)
          EXPECT_EQ(CallAll(context, clique, size, size % 4, &buffers), Expected(size, kCalls)) << size;
        ASSERT_TRUE(context.Barrier());
      },
      Small());
}

// Makes the calls whose blocks are for one rank each, and returns how many words are wrong.
size_t CallWithBlocks(RankContext& context, const Clique& clique, size_t size, Words* in, Words* out) {
  const int n = context.nranks(), rank = context.rank(), root = n - 1;
  const auto block = [&](int number) { return static_cast<size_t>(number) * size; };
  for (int to = 0; to < n; ++to) std::fill_n(in->get() + block(to), size, 100 * rank + to);
  out->Fill(-1);
  int32_t *const sums = out->get(), *const all = sums + size + 1, *const scattered = all + block(n) + 1;
  const cudaStream_t stream = Cuda(clique.stream());
  EXPECT_OK(ncclReduceScatter(in->get(), sums, size, ncclInt32, ncclSum, clique.comm(), stream));
  EXPECT_OK(ncclAlltoAll(in->get(), all, size, ncclInt32, clique.comm(), stream));
  EXPECT_OK(ncclScatter(in->get(), scattered, size, ncclInt32, root, clique.comm(), stream));
  EXPECT_OK(harness::SynchronizeStream(clique.stream()));
  const auto are = [](const int32_t* words, size_t count, int32_t value) {
    return count - static_cast<size_t>(std::count(words, words + count, value));
  };
  size_t wrong = are(sums, size, 50 * n * (n - 1) + n * rank) + are(scattered, size, 100 * root + rank);
  for (int from = 0; from < n; ++from) wrong += are(all + block(from), size, 100 * from + rank);
  for (const int32_t* gap : {sums + size, all + block(n), scattered + size}) wrong += *gap != -1;
  return wrong;
}

// Where a rank has a block for each other one, each of these is in a slot of its own.
TEST_P(ProtocolsTest, BlocksForEachRankGoBySize) {
  RunRanks(
      GetParam(),
      [](RankContext& context) {
        ASSERT_NE(EnterGpu(context.rank() % 2), nullptr);
        Clique clique;
        ASSERT_TRUE(clique.Init(context));
        const auto n = static_cast<size_t>(context.nranks());
        Words in(n * kMost), out((n + 2) * kMost + 3);
        for (const size_t size : {1u, 3u, 127u, 128u, 129u, 256u, 1001u, 2048u, 2049u}) {
          const Counts before = CountsOf(clique);
          for (int round = 0; round < 3; ++round)
            EXPECT_EQ(CallWithBlocks(context, clique, size, &in, &out), 0u) << size;
          const Counts after = CountsOf(clique);
          EXPECT_EQ((Counts{after.ll - before.ll, after.ll128 - before.ll128}), Expected(size, 9)) << size;
          ASSERT_TRUE(context.Barrier());
        }
      },
      Small());
}

// LL128 for all sizes, from the smallest on.
TEST_P(ProtocolsOfFewTest, RowsAlone) {
  RunRanks(
      GetParam(),
      [](RankContext& context) {
        Clique clique;
        ASSERT_TRUE(clique.Init(context));
        Buffers buffers(context.nranks());
        for (const size_t size : {1u, 28u, 29u, 128u})
          EXPECT_EQ(CallAll(context, clique, size, size % 2, &buffers), (Counts{0, kCalls})) << size;
        ASSERT_TRUE(context.Barrier());
      },
      Small({{"NCCL_PROTO", "LL128"}}));
}

// Each launch is a separate operation, between others of any protocol.
TEST_P(ProtocolsOfFewTest, InGraphs) {
  RunRanks(
      GetParam(),
      [](RankContext& context) {
        ASSERT_NE(EnterGpu(context.rank() % 2), nullptr);
        Clique clique;
        ASSERT_TRUE(clique.Init(context));
        Words in(kMost), out(kMost), other(1000);
        Graph graph;
        for (const size_t size : {size_t{100}, size_t{129}, size_t{2049}}) {
          graph.Destroy();
          ASSERT_NO_FATAL_FAILURE(graph.Capture(clique.stream(), [&] {
            ASSERT_OK(
                ncclAllReduce(in.get(), out.get(), size, ncclInt32, ncclSum, clique.comm(), Cuda(clique.stream())));
          }));
          const Counts before = CountsOf(clique);
          for (int round = 1; round <= 8; ++round) {
            in.Fill(round);
            other.Fill(round);
            ASSERT_NO_FATAL_FAILURE(graph.Launch(clique.stream()));
            if (round % 2 == 0) {
              ASSERT_OK(Sum(&other, &other, clique.comm(), clique.stream()));
            }
            ASSERT_TRUE(clique.Synchronize());
            int32_t* const end = out.get() + size;
            ASSERT_EQ(std::count(out.get(), end, round * context.nranks()), static_cast<ptrdiff_t>(size)) << round;
            ASSERT_TRUE(other.AreAll(round * (round % 2 == 0 ? context.nranks() : 1))) << size;
            ASSERT_TRUE(context.Barrier());
          }
          Counts wanted = Expected(size, 8);
          wanted.ll128 += 4;
          const Counts after = CountsOf(clique);
          EXPECT_EQ((Counts{after.ll - before.ll, after.ll128 - before.ll128}), wanted) << size;
        }
        ASSERT_TRUE(context.Barrier());
      },
      Small());
}

INSTANTIATE_TEST_SUITE_P(Layouts, ProtocolsTest,
                         testing::Values(harness::Processes(2), harness::Processes(4), harness::Threads(3)),
                         [](const auto& info) { return info.param.Text(); });
INSTANTIATE_TEST_SUITE_P(Layouts, ProtocolsOfFewTest, testing::Values(harness::Processes(2), harness::Threads(3)),
                         [](const auto& info) { return info.param.Text(); });

// Likewise where each rank has several blocks, which other plans would send in several steps.
TEST(Protocols, AreWhatMediumCallsOfBlocksTake) {
  constexpr int kRanks = 4;
  const auto counts = [](const char* protocols, const Counts& wanted) {
    const auto body = [wanted](RankContext& context) {
      ASSERT_NE(EnterGpu(context.rank() % 2), nullptr);
      Clique clique;
      ASSERT_TRUE(clique.Init(context));
      Words in(kRanks * kMost), out((kRanks + 2) * kMost + 3);
      for (const size_t size : {256u, 2048u}) EXPECT_EQ(CallWithBlocks(context, clique, size, &in, &out), 0u) << size;
      EXPECT_OK(ncclAllGather(in.get(), out.get(), 256, ncclInt32, clique.comm(), Cuda(clique.stream())));
      ASSERT_TRUE(clique.Synchronize());
      EXPECT_EQ(CountsOf(clique), wanted);
      ASSERT_TRUE(context.Barrier());
    };
    RunOptions options = SmallGpu(2);
    options.environment.emplace_back("NCCL_PROTO", protocols);
    RunRanks(harness::Threads(kRanks), body, options);
  };
  counts("LL,LL128", {0, 7});
  counts("LL", {0, 0});
}

// The cost model's choice for calls of a few KiB when all ranks can reach all buffers.
TEST(Protocols, AreWhatMediumCallsTake) {
  RunRanks(
      harness::Threads(2),
      [](RankContext& context) {
        ASSERT_NE(EnterGpu(context.rank() % 2), nullptr);
        Clique clique;
        ASSERT_TRUE(clique.Init(context));
        Words data(1500, 1);
        ASSERT_OK(Sum(&data, &data, clique.comm(), clique.stream()));
        ASSERT_TRUE(clique.Synchronize());
        EXPECT_TRUE(data.AreAll(2));
        EXPECT_EQ(CountsOf(clique), (Counts{0, 1}));
        ASSERT_TRUE(context.Barrier());
      },
      SmallGpu(2));
}

TEST(Protocols, EstimatesKnowThem) {
  RunRanks(
      harness::Threads(4),
      [](RankContext& context) {
        ASSERT_NE(EnterGpu(context.rank() % 2), nullptr);
        Clique clique;
        ASSERT_TRUE(clique.Init(context));
        const auto micros = [&](size_t count) { return EstimateOf(clique, count, ncclSum); };
        EXPECT_EQ(micros(128), micros(1)) << "words";
        EXPECT_GT(micros(132), micros(128)) << "rows";
        EXPECT_GT(micros(2052), 1.1f * micros(2048)) << "no flags";
        EXPECT_LT(micros(2048), 1.1f * micros(2000));
        EXPECT_EQ(CountsOf(clique), Counts{}) << "nothing has run";
        ASSERT_TRUE(context.Barrier());
      },
      SmallGpu(2));
}

// ---- what forbids them ----

// Expects these counts for one call of 100 words and one of 1000.
void ExpectCounts(const Layout& layout, const RunOptions& options, const Counts& counts,
                  const char* of_rank_1 = nullptr) {
  const auto body = [counts, of_rank_1](RankContext& context) {
    if (of_rank_1 != nullptr && context.rank() == 1) {
      ASSERT_EQ(setenv("NCCL_PROTO", of_rank_1, 1), 0);
    }
    ASSERT_NE(EnterGpu(context.rank() % 2), nullptr);
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    Words small(100, 1), medium(1000, 1);
    for (Words* data : {&small, &medium}) {
      ASSERT_OK(Sum(data, data, clique.comm(), clique.stream()));
      ASSERT_TRUE(clique.Synchronize());
      EXPECT_TRUE(data->AreAll(context.nranks()));
    }
    EXPECT_EQ(CountsOf(clique), counts);
    ASSERT_TRUE(context.Barrier());
  };
  RunRanks(layout, body, options);
}

TEST(Protocols, NeedTheHardware) {
  ExpectCounts(harness::Processes(2), Small({{"SOFTGPU_NATIVE_ATOMICS", "0"}}), {1, 0});
  ExpectCounts(harness::Threads(2), Small({{"SOFTGPU_ARCH", "75"}}), {1, 0});
  ExpectCounts(harness::Threads(2), Small({{"SOFTGPU_ARCH", "80"}}), {1, 1});
  ExpectCounts(harness::Processes(2), Small({{"NCCL_P2P_DISABLE", "1"}}), {1, 0});
}

// Processes that see a device each cannot ask how these are linked. Multicast shows that they are by NVLink.
TEST(Protocols, WhereProcessesDoNotSeeEachOthersDevices) {
  const auto options = [](const char* nvls) { return Small({{"SOFTGPU_HIDES", "1"}, {"NCCL_NVLS_ENABLE", nvls}}); };
  ExpectCounts(harness::Processes(2), options("1"), {1, 1});
  ExpectCounts(harness::Processes(2), options("0"), {1, 0});
}

// Ranks on one device need no link.
TEST(Protocols, OnOneDevice) {
  const auto body = [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    Words data(1000, 1);
    ASSERT_OK(Sum(&data, &data, clique.comm(), clique.stream()));
    ASSERT_TRUE(clique.Synchronize());
    EXPECT_EQ(CountsOf(clique), (Counts{0, 1}));
    ASSERT_TRUE(context.Barrier());
  };
  RunRanks(harness::Processes(2), body, Small({{"SOFTGPU_NATIVE_ATOMICS", "0"}}, 1));
}

TEST(Protocols, AreTheUsersChoice) {
  const Layout two = harness::Processes(2);
  ExpectCounts(two, Small({{"NCCL_PROTO", "LL"}}), {1, 0});
  ExpectCounts(two, Small({{"NCCL_PROTO", "^LL"}}), {0, 2});
  ExpectCounts(two, Small({{"NCCL_PROTO", "Simple"}}), {0, 0});
  ExpectCounts(two, Small({{"NCCL_PROTO", "Simple;broadcast:LL"}}), {0, 0});
  // All ranks use only what every rank allows.
  ExpectCounts(harness::Processes(3), Small(), {1, 0}, "LL,Simple");
  ExpectCounts(harness::Processes(3), Small({{"NCCL_PROTO", "LL128"}}), {0, 0}, "LL");
}

TEST(Protocols, UnknownOnesAreErrorsOnAllRanks) {
  for (const bool everywhere : {true, false}) {
    const auto body = [everywhere](RankContext& context) {
      const bool wrong = everywhere || context.rank() == 1;
      if (wrong) {
        ASSERT_EQ(setenv("NCCL_PROTO", "LL,LL256", 1), 0);
      }
      ncclUniqueId id;
      ASSERT_TRUE(harness::ShareUniqueId(context, &id));
      ncclComm_t comm = nullptr;
      const ncclResult_t result = ncclCommInitRank(&comm, context.nranks(), id, context.rank());
      if (wrong) {
        EXPECT_EQ(result, ncclInvalidArgument);
      }
      EXPECT_NE(result, ncclSuccess);
      EXPECT_TRUE(
          harness::LastErrorHas("NCCL_PROTO='LL,LL256': unknown protocol 'LL256'; known are ll, ll128, simple"));
    };
    RunRanks(harness::Processes(2), body, SmallGpu(2));
  }
}

TEST(Protocols, TheReasonIsInTheLog) {
  const harness::RankLogs logs;
  RunOptions options = Small({{"SOFTGPU_NATIVE_ATOMICS", "0"}});
  for (const auto& variable : logs.environment()) options.environment.push_back(variable);
  const auto body = [&logs](RankContext& context) {
    ASSERT_NE(EnterGpu(context.rank() % 2), nullptr);
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    const std::string wanted =
        "rank " + std::to_string(context.rank()) +
        ": blocks of up to 512 bytes go by LL (yes), of up to 8192 bytes by LL128 (no: CUDA devices ";
    EXPECT_EQ(logs.Count(wanted), 1u) << logs.Own();
    ASSERT_TRUE(context.Barrier());
  };
  RunRanks(harness::Processes(2), body, options);
}

}  // namespace
}  // namespace axccl::tests
