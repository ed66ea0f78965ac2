// Schedules that grow with their number of operations: the verifier takes them in bounded memory, or refuses them.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <string>

#include "src/algo/algo.h"
#include "tests/harness/run_ranks.h"
#include "tests/verify/by_hand.h"

namespace axccl::verify {
namespace {

using plan::Schedule;

constexpr char kTooLarge[] =
    "structure: too large to be verified; use fewer ranks, lanes, parts, slots, endpoints or operations";

// Expects the verdict of a process of its own, whose memory grows by `most` bytes at most.
void ExpectVerdict(const Schedule& schedule, const std::string& verdict, uint64_t most) {
  if (harness::TimeScale() != 1) GTEST_SKIP() << "sanitizers add memory of their own, and time";
  rusage before;
  ASSERT_EQ(getrusage(RUSAGE_SELF, &before), 0);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const std::string found = Verdict(schedule);
    if (found != verdict) std::fprintf(stderr, "%s\n", found.c_str());
    _exit(found == verdict ? 0 : 1);
  }
  int status = -1;
  rusage used;
  ASSERT_EQ(wait4(child, &status, 0, &used), child);
  EXPECT_EQ(status, 0);
  EXPECT_LT(static_cast<uint64_t>(used.ru_maxrss) << 10, most + (static_cast<uint64_t>(before.ru_maxrss) << 10));
}

// One operation after another, with numbers as ids.
class Program {
 public:
  void Rank(int rank, int lane = 0) {
    text_ += "rank " + std::to_string(rank) + " lane " + std::to_string(lane) + "\n";
  }
  void Do(const std::string& operation) { text_ += "#" + std::to_string(id_++) + " " + operation + "\n"; }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
  int id_ = 0;
};

std::string Slots(int slots) {
  std::string text;
  for (int i = 0; i < slots; ++i) text += " -";
  return text;
}

// Each write of a slot ends the reads before it, so a lane may write and read it without end.
TEST(SizeTest, ReadsThatAWriteHasFollowedTakeNoMemory) {
  constexpr int kParts = 65535;
  Program p;
  p.Rank(0);
  for (int i = 0; i < 100; ++i) {
    p.Do("copy slot[0].0:65535 <- in[0].0.0:65535");
    p.Do("copy out[0].0.0:65535 <- slot[0].0:65535");
  }
  const Head head = {.kind = "broadcast", .ranks = 1, .parts = kParts, .endpoints = 0, .inlined = Slots(kParts)};
  ExpectVerdict(Make(head, p.text()), "ok", 64 << 20);
}

// Lanes that have the same program and wait for no other lane are proved once, so they do not count. The lanes of a
// direct schedule do, because they are proved together.
TEST(SizeTest, LanesWithTheSameProgramCountOnce) {
  const plan::Contract contract = {plan::Kind::kAllReduce, 256, 0};
  EXPECT_EQ(Verdict(algo::Generate(contract, "direct", 64).value()), kTooLarge);
  Schedule s = algo::Generate(contract, "tree", 64).value();
  EXPECT_EQ(Verdict(s), "ok");
  for (int lane = 1; lane < s.lanes; lane += 2) {
    plan::Op nop;
    nop.kind = plan::OpKind::kNop, nop.id = (1 << 30) + static_cast<uint32_t>(lane);
    s.program[0][lane].ops.push_back(nop);
  }
  EXPECT_EQ(Verdict(s), kTooLarge);
}

// Rank 0 passes signals on to rank 2, which waits for none of them before all are made. Each carries another clock.
TEST(SizeTest, RefusesClocksWithoutEnd) {
  constexpr int kSignals = 40000;
  Program p;
  for (int r = 0; r < 4096; ++r) {
    p.Rank(r, 0);
    for (int i = 1; i <= kSignals && r < 3; ++i) {
      if (r == 2 && i == 1) p.Do("wait 0 e1 v1");
      if (r != 1) p.Do("wait " + std::to_string(r == 0 ? 1 : 0) + " e0 v" + std::to_string(i));
      if (r != 2) p.Do("signal " + std::to_string(r == 0 ? 2 : 0) + " e0");
      if (r == 0 && i == kSignals) p.Do("signal 2 e1");
    }
    p.Rank(r, 1);
  }
  const Head head = {.kind = "barrier", .ranks = 4096, .lanes = 2, .inlined = ""};
  ExpectVerdict(Make(head, p.text()), kTooLarge, uint64_t{3} << 30);
}

// Rank 0 adds another rank to part i than to the other parts, and then the other ranks one by one: each sum of each
// part is of other ranks, or in another order.
TEST(SizeTest, RefusesFoldsWithoutEnd) {
  constexpr int kRanks = 4096, kParts = 500;
  const std::string all = ":" + std::to_string(kParts), second = "slot[0]." + std::to_string(kParts) + all,
                    third = "slot[0]." + std::to_string(2 * kParts) + all, first = "slot[0].0" + all;
  Program p;
  p.Rank(0);
  for (int r = 1; r < kRanks; ++r) p.Do("wait " + std::to_string(r) + " e0 v1");
  for (int i = 0; i < kParts; ++i) {
    const std::string part = std::to_string(i);
    p.Do("reduce slot[0]." + part + " <- in[0].0." + part + " slot[" + std::to_string(i + 1) + "]." + part);
  }
  for (int r = kParts + 1; r < kRanks; ++r) {
    const std::string other = " slot[" + std::to_string(r) + "].0" + all, sum = (r - kParts) % 2 != 0 ? first : second;
    p.Do("reduce " + third + " <-" + other + " " + sum);
    p.Do("reduce " + (sum == first ? second : first) + " <- " + sum + other);
  }
  for (int r = 1; r < kRanks; ++r) {
    p.Rank(r);
    p.Do("copy slot[" + std::to_string(r) + "].0" + all + " <- in[" + std::to_string(r) + "].0.0" + all);
    p.Do("signal 0 e0");
    p.Do("wait 0 e0 v1");
  }
  Schedule s = Make({.ranks = kRanks, .parts = kParts, .endpoints = 1, .inlined = Slots(3 * kParts)}, p.text());
  plan::Op done;
  done.kind = plan::OpKind::kSignal, done.peer = plan::kAllPeers, done.id = 1 << 30;
  s.program[0][0].ops.push_back(done);
  ExpectVerdict(s, kTooLarge, uint64_t{3} << 30);
}

}  // namespace
}  // namespace axccl::verify
