// Processes killed at random moments, and random calls that differ: no survivor hangs, crashes, or accepts wrong data;
// every rank gets its error in time; and the survivors continue.
//
// Every trial has its own seed, printed with a failure; AXCCL_TEST_SEED=<printed> replays all of them.
// AXCCL_TEST_FULL=1 makes 1,500 kills and 300 mismatches instead of a few.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/harness/case_runner.h"
#include "tests/harness/element.h"
#include "tests/harness/oracle.h"
#include "tests/harness/random.h"
#include "tests/harness/timing.h"

namespace axccl::tests {
namespace {

using harness::AllowedNs;
using harness::Call;
using harness::Case;
using harness::Clique;
using harness::Cuda;
using harness::Fold;
using harness::FullTests;
using harness::LastErrorHas;
using harness::Layout;
using harness::NowNs;
using harness::Random;
using harness::RankContext;
using harness::RunOptions;
using harness::Scramble;
using harness::Seed;

constexpr int kDeathCell = 60;
constexpr int kInitCell = 0;  // + rank: 1 + the result of its initialisation

constexpr std::array kCalls = {Call::kAllReduce, Call::kReduce,   Call::kReduceScatter, Call::kBroadcast,
                               Call::kAllGather, Call::kAllToAll, Call::kGather,        Call::kScatter};

// Memory for a rank's operands, from ncclMemAlloc or malloc.
class Memory {
 public:
  Memory(size_t bytes, bool mapped) : mapped_(mapped) {
    bytes = std::max<size_t>(bytes, 1);
    if (mapped_) {
      EXPECT_OK(ncclMemAlloc(&data_, bytes));
    } else {
      data_ = std::malloc(bytes);
    }
  }
  ~Memory() {
    if (mapped_) {
      EXPECT_OK(ncclMemFree(data_));
    } else {
      std::free(data_);
    }
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  void* get() const { return data_; }

 private:
  const bool mapped_;
  void* data_ = nullptr;
};

// Makes one call and waits for it. If it succeeds, the result must be right.
ncclResult_t RunCase(const Case& c, int n, int rank, bool mapped, ncclComm_t comm, axcclStream_t stream) {
  const Memory send(harness::SendElements(c, n, rank) * harness::TypeBytes(c.type), mapped);
  const Memory recv(harness::RecvElements(c, n, rank) * harness::TypeBytes(c.type), mapped);
  harness::FillSend(c, n, rank, send.get());
  const ncclResult_t result = harness::AwaitCall(
      harness::Launch(c, send.get(), recv.get(), harness::BuiltinOp(c.fold), comm, Cuda(stream)), stream);
  if (result != ncclSuccess) return result;
  EXPECT_EQ(harness::CheckRecv(c, n, rank, recv.get()), "") << c.Text();
  return ncclSuccess;
}

// ---- kills ----

enum class Phase { kInit, kOperations, kDestroy };

struct Kill {
  Phase phase = Phase::kOperations;
  Layout layout;
  std::vector<int> victims;  // processes, ascending
  uint64_t delay_ns = 0;
  Case what;
  bool mapped = false, abort_in_shrink = false, aborts = false;
  RunOptions options;
  std::string text;

  bool Dies(int rank) const {
    return std::find(victims.begin(), victims.end(), rank / layout.threads) != victims.end();
  }
};

Kill MakeKill(uint64_t seed) {
  Random random(seed);
  Kill kill;
  kill.layout = {static_cast<int>(2 + random.Below(4)), random.OneIn(4) ? 2 : 1, 1};
  const int n = kill.layout.nranks();
  const uint64_t phase = random.Below(20);
  kill.phase = phase < 5 ? Phase::kInit : phase < 18 ? Phase::kOperations : Phase::kDestroy;
  kill.victims = {static_cast<int>(random.Below(static_cast<uint64_t>(kill.layout.processes)))};
  if (kill.layout.processes > 3 && random.OneIn(5)) {
    const int second = static_cast<int>(random.Below(static_cast<uint64_t>(kill.layout.processes)));
    if (second != kill.victims[0]) kill.victims.push_back(second);
  }
  kill.delay_ns = random.Below(kill.phase == Phase::kInit ? 30'000'000 : 100'000'000);
  kill.what.call = random.Pick(kCalls);
  kill.what.type = ncclUint32;
  kill.what.count = random.Below(uint64_t{1} << random.Below(19)) / static_cast<uint64_t>(n) + 1;
  kill.what.root = static_cast<int>(random.Below(static_cast<uint64_t>(n)));
  kill.mapped = random.OneIn(2);
  kill.abort_in_shrink = random.OneIn(2);
  kill.aborts = random.OneIn(2);
  // No rank knows of a rank that died before it joined: only the timeout ends the wait.
  kill.options.environment = {{"AXCCL_INIT_TIMEOUT", kill.phase == Phase::kInit ? "2" : "20"}};
  if (random.OneIn(6)) kill.options.environment.emplace_back("AXCCL_CMA", "0");
  kill.text = "seed " + std::to_string(seed) + ", phase " + std::to_string(static_cast<int>(kill.phase)) + ", " +
              kill.layout.Text() + ", " + kill.what.Text() + ", process " + std::to_string(kill.victims[0]) + " of " +
              std::to_string(kill.victims.size()) + " after " + std::to_string(kill.delay_ns / 1000) + " us";
  return kill;
}

// The survivors make a communicator from the old one, and check that it works.
void ShrinkAndGoOn(RankContext& context, const Kill& kill, ncclComm_t comm, axcclStream_t stream) {
  std::vector<int> dead;
  for (int r = 0; r < context.nranks(); ++r) {
    if (kill.Dies(r)) dead.push_back(r);
  }
  const int n = context.nranks() - static_cast<int>(dead.size());
  const auto below = std::lower_bound(dead.begin(), dead.end(), context.rank()) - dead.begin();
  ncclComm_t rest = nullptr;
  ASSERT_TRUE(context.Step("shrink"));
  ASSERT_OK(ncclCommShrink(comm, dead.data(), static_cast<int>(dead.size()), &rest, nullptr,
                           kill.abort_in_shrink ? NCCL_SHRINK_ABORT : NCCL_SHRINK_DEFAULT));
  Case after = kill.what;
  for (int i = 0; i < 3; ++i) {
    after.call = kCalls[static_cast<size_t>(i)];
    after.root = i % n;
    after.seed = static_cast<uint64_t>(i);
    ASSERT_TRUE(context.Step("after the shrink: %s", after.Text().c_str()));
    ASSERT_OK(RunCase(after, n, context.rank() - static_cast<int>(below), kill.mapped, rest, stream));
  }
  EXPECT_OK(ncclCommDestroy(rest));
}

void Survive(RankContext& context, const Kill& kill, const ncclUniqueId& id) {
  const int n = context.nranks(), rank = context.rank();
  ncclComm_t comm = nullptr;
  ASSERT_TRUE(context.Step("init"));
  const ncclResult_t init = ncclCommInitRank(&comm, n, id, rank);
  context.Set(kInitCell + rank, 1 + static_cast<uint64_t>(init));
  if (init != ncclSuccess) {
    EXPECT_TRUE(init == ncclRemoteError || (init == ncclTimeout && kill.phase == Phase::kInit))
        << ncclGetLastError(nullptr);
    EXPECT_LT(NowNs(), context.Await(kDeathCell) + AllowedNs(3000));
    EXPECT_OK(ncclCommAbort(comm));
    return;
  }
  Clique clique;
  ASSERT_TRUE(clique.Adopt(comm));
  ASSERT_TRUE(context.Step("operations"));
  ncclResult_t result = ncclSuccess;
  Case next = kill.what;
  for (int i = 0; result == ncclSuccess && (kill.phase != Phase::kDestroy || i < 10); ++i) {
    next.seed = static_cast<uint64_t>(i);
    result = RunCase(next, n, rank, kill.mapped, comm, clique.stream());
  }
  clique.ForgetComms();
  if (result != ncclSuccess) {
    EXPECT_EQ(result, ncclRemoteError) << ncclGetLastError(nullptr);
    // The error names a victim, because no survivor leaves before all have seen the death. But if each rank leaves
    // after a fixed number of calls, one that has finished may abort while others still wait for the victim.
    const std::string text = ncclGetLastError(nullptr);
    bool named = kill.phase == Phase::kInit;  // a rank may have failed before it knew the victims
    if (kill.phase == Phase::kDestroy && kill.aborts) named = LastErrorHas("aborted its communicator");
    for (int r = 0; r < n; ++r) named |= kill.Dies(r) && text.find("rank " + std::to_string(r)) != std::string::npos;
    EXPECT_TRUE(named) << text;
    EXPECT_LT(NowNs(), context.Await(kDeathCell) + AllowedNs(300));
    bool all_came = true;
    for (int r = 0; r < n; ++r) all_came &= kill.Dies(r) || context.Await(kInitCell + r) == 1;
    if (all_came && kill.phase != Phase::kDestroy) {
      ASSERT_NO_FATAL_FAILURE(ShrinkAndGoOn(context, kill, comm, clique.stream()));
    }
  }
  ASSERT_TRUE(context.Step("the end"));
  const uint64_t start = NowNs();
  const ncclResult_t ended = kill.aborts ? ncclCommAbort(comm) : ncclCommDestroy(comm);
  EXPECT_TRUE(ended == ncclSuccess || ended == ncclRemoteError) << ended;
  EXPECT_LT(NowNs() - start, AllowedNs(1000));
}

void RunKill(RankContext& context, const Kill& kill) {
  ncclUniqueId id;
  ASSERT_TRUE(harness::ShareUniqueId(context, &id));
  if (!kill.Dies(context.rank())) return Survive(context, kill, id);
  const auto die_later = [&] {
    if (context.rank() % kill.layout.threads != 0) return;
    std::thread([&context, &kill] {
      const uint64_t until = NowNs() + kill.delay_ns;
      while (NowNs() < until) std::this_thread::yield();
      context.Set(kDeathCell, NowNs());
      context.Die();
    }).detach();
  };
  // Runs the same calls as the others, until it dies.
  if (kill.phase == Phase::kInit) die_later();
  ncclComm_t comm = nullptr;
  const ncclResult_t init = ncclCommInitRank(&comm, context.nranks(), id, context.rank());
  if (kill.phase != Phase::kInit) die_later();
  if (init == ncclSuccess) {
    Clique clique;
    if (clique.Adopt(comm)) {
      Case next = kill.what;
      for (next.seed = 0;
           RunCase(next, context.nranks(), context.rank(), kill.mapped, comm, clique.stream()) == ncclSuccess;)
        ++next.seed;
    }
    clique.ForgetComms();
  }
  for (;;) std::this_thread::sleep_for(std::chrono::seconds(1));
}

TEST(Chaos, ProcessesAreKilledAtAnyMoment) {
  const int trials = FullTests() ? 1500 : 40;
  for (int i = 0; i < trials && !HasFailure(); ++i) {
    const Kill kill = MakeKill(Scramble(Seed(), 31, static_cast<uint64_t>(i)));
    SCOPED_TRACE("trial " + std::to_string(i) + ": " + kill.text);
    harness::RunRanks(
        kill.layout, [&](RankContext& context) { RunKill(context, kill); }, kill.options);
  }
}

// ---- calls that differ ----

const char* OfType(ncclDataType_t type) {
  return type == ncclUint32 ? "uint32" : type == ncclFloat32 ? "float" : type == ncclInt64 ? "int64" : "";
}

Case RandomCall(Random* random, int n) {
  Case c;
  c.call = random->Pick(kCalls);
  c.type = ncclUint32;
  c.count = 1 + random->Below(uint64_t{1} << random->Below(16));
  if (harness::HasRoot(c.call)) c.root = static_cast<int>(random->Below(static_cast<uint64_t>(n)));
  c.seed = random->Next();
  return c;
}

// The call that the odd rank makes instead of `c`.
Case Alter(const Case& c, int n, Random* random) {
  Case odd = c;
  switch (random->Below(5)) {
    case 0:
      while (odd.call == c.call) odd = RandomCall(random, n);
      return odd;
    case 1:
      odd.count = random->OneIn(2) ? c.count + 1 : c.count * 2;
      return odd;
    case 2:
      odd.type = random->OneIn(2) ? ncclFloat32 : ncclInt64;
      return odd;
    case 3:
      if (!harness::Folds(c.call)) break;
      odd.fold = Fold::kMax;
      return odd;
    default:
      if (!harness::HasRoot(c.call)) break;
      odd.root = (c.root + 1) % n;
      return odd;
  }
  odd.count += 1000;
  return odd;
}

TEST(Chaos, RanksMakeRandomCallsThatDiffer) {
  const int trials = FullTests() ? 300 : 30;
  RunOptions options;
  options.deadline = std::chrono::seconds(FullTests() ? 600 : 60);
  harness::RunRanks(
      harness::Processes(4),
      [trials](RankContext& context) {
        const int n = context.nranks(), rank = context.rank();
        for (int i = 0; i < trials; ++i) {
          Random random(Scramble(Seed(), 32, static_cast<uint64_t>(i)));
          Clique clique;
          ASSERT_TRUE(clique.Init(context));
          for (uint64_t before = random.Below(4); before > 0; --before)
            ASSERT_OK(RunCase(RandomCall(&random, n), n, rank, random.OneIn(2), clique.comm(), clique.stream()));
          const Case common = RandomCall(&random, n), odd = Alter(common, n, &random), second = RandomCall(&random, n);
          const int odd_rank = static_cast<int>(random.Below(static_cast<uint64_t>(n)));
          ASSERT_TRUE(context.Step("trial %d: rank %d calls %s, the others %s", i, odd_rank, odd.Text().c_str(),
                                   common.Text().c_str()));
          ASSERT_TRUE(context.Barrier());  // otherwise the mismatch could end earlier calls of a slow rank
          const uint64_t start = NowNs();
          (void)RunCase(rank == odd_rank ? odd : common, n, rank, i % 2 == 0, clique.comm(), clique.stream());
          (void)RunCase(second, n, rank, i % 2 == 0, clique.comm(), clique.stream());
          ncclResult_t state = ncclSuccess;
          while (state == ncclSuccess && NowNs() - start < AllowedNs(1000))
            ASSERT_OK(ncclCommGetAsyncError(clique.comm(), &state));
          EXPECT_EQ(state, ncclInvalidUsage);
          const std::string text = ncclGetLastError(nullptr);
          EXPECT_TRUE(LastErrorHas("mismatch")) << text;
          EXPECT_TRUE(LastErrorHas(OfType(common.type)) && LastErrorHas(OfType(odd.type))) << text;
          ASSERT_TRUE(context.Barrier(1));
          EXPECT_OK(ncclCommAbort(clique.comm()));
          clique.ForgetComms();
          ASSERT_FALSE(testing::Test::HasFailure()) << "seed " << Seed();
        }
      },
      options);
}

}  // namespace
}  // namespace axccl::tests
