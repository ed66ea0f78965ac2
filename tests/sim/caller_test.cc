// Schedules with slices and what callers compute meanwhile, with times that can be calculated by hand.
#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "src/plan/text.h"
#include "src/sim/engine.h"

namespace axccl::sim {
namespace {

using plan::Placement;

constexpr double kOp = 1e-6, kSignal = 1e-5;
constexpr double kPart = 1000;                       // bytes
constexpr double kMemory = 1e-9, kLink = 1e-8;       // seconds per byte
constexpr double kCopy = kOp + 2 * kPart * kMemory;  // in local memory: 3 us
constexpr double kClose = 1e-15;

Fabric TestFabric() {
  Fabric f;
  f.op_seconds = kOp;
  f.memory_bytes_per_second = 1 / kMemory;
  f.link_bytes_per_second = 1 / kLink;
  f.signal_seconds = kSignal;
  return f;
}

// A plan of version 2 with two slices; `operations` follow the header.
plan::Schedule Make(const std::string& kind, int ranks, int lanes, bool produced, const std::string& operations) {
  const std::string text = "axccl-plan 2\nalgorithm by-hand\nkind " + kind + "\nranks " + std::to_string(ranks) +
                           "\nroot 0\nparts 2\nslices 2\nproduced " + (produced ? "yes" : "no") + "\nlanes " +
                           std::to_string(lanes) + "\nslots 0\nendpoints 1\ndirect yes\ninline\n" + operations;
  Result<plan::Schedule> parsed = plan::Parse(text);
  EXPECT_TRUE(parsed.ok()) << parsed.status().message();
  return parsed.value();
}

Result<Outcome> Follow(const plan::Schedule& s, const Caller& caller = {}, bool in_place = false) {
  AXCCL_ASSIGN_OR_RETURN(const Program program, CompileAll(s, Placement(), in_place));
  return Execute(program, TestFabric(), kPart, 1, caller);
}
double SecondsOf(const plan::Schedule& s, double produce, double consume, bool in_place = false) {
  return Follow(s, {produce, consume}, in_place).value().seconds;
}

// The first chunk comes after 4 us, the second after 8 us.
plan::Schedule OneRank() {
  return Make("all_gather", 1, 1, false,
              "rank 0 lane 0\n"
              "#0 copy out[0].0.0 <- in[0].0.0\n#1 notify 0\n"
              "#2 copy out[0].0.1 <- in[0].0.1\n#3 notify 1\n");
}

TEST(Caller, WaitsForOutputChunksIfThoseTakeLonger) {
  EXPECT_NEAR(SecondsOf(OneRank(), 0, 0), 2 * (kCopy + kOp), kClose);
  EXPECT_NEAR(SecondsOf(OneRank(), 0, 1e-6), 2 * (kCopy + kOp) + 1e-6, kClose);
  EXPECT_NEAR(SecondsOf(OneRank(), 0, kCopy + kOp), 3 * (kCopy + kOp), kClose);
}

TEST(Caller, WaitsForNoneButTheFirstIfItTakesLongerItself) {
  EXPECT_NEAR(SecondsOf(OneRank(), 0, 1e-4), kCopy + kOp + 2e-4, kClose);
}

constexpr char kOneAfterTheOther[] =
    "rank 0 lane 0\n"
    "#0 await 0\n#1 copy out[0].0.0 <- in[0].0.0\n#2 notify 0\n"
    "#3 await 1\n#4 copy out[0].0.1 <- in[0].0.1\n#5 notify 1\n";

TEST(Caller, LetsLanesWaitForInputChunks) {
  const plan::Schedule s = Make("all_gather", 1, 1, true, kOneAfterTheOther);
  EXPECT_NEAR(SecondsOf(s, 0, 0), 2 * (kOp + kCopy + kOp), kClose);
  EXPECT_NEAR(SecondsOf(s, 1e-4, 0), 2e-4 + kCopy + kOp, kClose);
  // The second chunk was ready before the lane awaits it.
  EXPECT_NEAR(SecondsOf(s, 3e-6, 0), 3e-6 + kCopy + kOp + kOp + kCopy + kOp, kClose);
}

TEST(Caller, ComputesInputChunksBeforeItTakesOutputChunks) {
  const plan::Schedule s = Make("all_gather", 1, 1, true, kOneAfterTheOther);
  // The first output chunk waits for the caller, and the second does, too.
  EXPECT_NEAR(SecondsOf(s, 1e-4, 5e-5), 2e-4 + 2 * 5e-5, kClose);
  // The second comes after the caller has computed with the first.
  EXPECT_NEAR(SecondsOf(s, 1e-4, 1e-6), 2e-4 + kCopy + kOp + 1e-6, kClose);
}

// A plan that notifies no chunk before all input is there gives its caller nothing to compute with meanwhile.
TEST(Caller, LosesTimeIfAPlanHoardsChunks) {
  const plan::Schedule hoards = Make("all_gather", 1, 1, true,
                                     "rank 0 lane 0\n"
                                     "#0 await 0\n#1 await 1\n#2 copy out[0].0.0:2 <- in[0].0.0:2\n"
                                     "#3 notify 0\n#4 notify 1\n");
  const double copied = kOp + 4 * kPart * kMemory;
  EXPECT_NEAR(SecondsOf(hoards, 1e-4, 1e-4), 2e-4 + copied + kOp + 2e-4, kClose);
  EXPECT_NEAR(SecondsOf(Make("all_gather", 1, 1, true, kOneAfterTheOther), 1e-4, 1e-4), 4e-4, kClose);
}

// Lane 0 awaits chunk 1 first, and lane 1 chunk 0: the caller computes chunk 1 first.
TEST(Caller, ComputesInTheOrderOfLanesWhatTheyAwaitFirst) {
  const plan::Schedule s = Make("all_gather", 1, 2, true,
                                "rank 0 lane 0\n#0 await 1\n#1 copy out[0].0.1 <- in[0].0.1\n#2 notify 1\n"
                                "#3 copy out[0].0.1 <- in[0].0.1\n"
                                "rank 0 lane 1\n#4 await 0\n#5 notify 0\n");
  EXPECT_NEAR(SecondsOf(s, 5e-6, 0), 5e-6 + kCopy + kOp + kCopy, kClose);
}

TEST(Caller, SeesWhatAnotherRankNotifiesLater) {
  const auto make = [](const char* at) {
    return Make("broadcast", 2, 1, false,
                std::string("rank 0 lane 0\n#0 notify 0\n#1 notify 1\n#2 copy out[1].0.0 <- in[0].0.0\n#3 notify 0") +
                    at + "\n#4 notify 1" + at + "\nrank 1 lane 0\n#5 nop\n");
  };
  const double put = kOp + kPart * kLink;
  EXPECT_NEAR(SecondsOf(make(" at 1"), 0, 0), 2 * kOp + put + 2 * kOp + kSignal, kClose);
  EXPECT_NEAR(SecondsOf(make(" at 1"), 0, 1e-3), 2 * kOp + put + kOp + kSignal + 2e-3, kClose);
}

TEST(Caller, InPlaceACopyOfABlockOntoItselfDoesNothing) {
  EXPECT_NEAR(SecondsOf(OneRank(), 0, 0, true), 4 * kOp, kClose);
  // In an all-to-all no block is in place, and what reduces is written.
  const char copies[] = "rank 0 lane 0\n#0 copy out[0].0.0:2 <- in[0].0.0:2\n#1 notify 0\n#2 notify 1\n";
  for (const char* kind : {"all_to_all", "all_reduce"}) {
    const plan::Schedule s = Make(kind, 1, 1, false, copies);
    EXPECT_NEAR(SecondsOf(s, 0, 0, true), SecondsOf(s, 0, 0), kClose) << kind;
  }
  // Two ranks: the own block is in place, that of the other rank is not.
  const plan::Schedule gather = Make("all_gather", 2, 1, false,
                                     "rank 0 lane 0\n#0 copy out[0].0.0:2 <- in[0].0.0:2\n#1 notify 0\n#2 notify 1\n"
                                     "#3 copy out[0].1.0:2 <- in[1].0.0:2\n#4 notify 2\n#5 notify 3\n"
                                     "rank 1 lane 0\n#6 notify 0\n#7 notify 1\n#8 notify 2\n#9 notify 3\n");
  EXPECT_NEAR(SecondsOf(gather, 0, 0, true), 3 * kOp + kOp + 2 * kPart * kLink + 2 * kOp, kClose);
}

void ExpectError(const Result<Outcome>& result, Code code, const std::string& what) {
  ASSERT_FALSE(result.ok()) << what;
  EXPECT_EQ(result.status().code(), code);
  EXPECT_NE(result.status().message().find(what), std::string_view::npos) << result.status().message();
}

TEST(Caller, ThatWaitsForeverIsAnErrorThatNamesTheChunk) {
  const plan::Schedule forgotten = Make("broadcast", 2, 1, false,
                                        "rank 0 lane 0\n#0 notify 0\n#1 notify 1\n#2 signal 1 e0\n"
                                        "rank 1 lane 0\n#3 notify 0\n#4 wait 0 e0 v1\n");
  ExpectError(Follow(forgotten), Code::kInvalidUsage,
              "the caller of rank 1 waits forever for output chunk 1: no operation notifies it; verify the plan");
  const plan::Schedule blocked = Make("broadcast", 2, 1, false,
                                      "rank 0 lane 0\n#0 notify 0\n#1 notify 1\n#2 signal 1 e0\n"
                                      "rank 1 lane 0\n#3 wait 0 e0 v2\n#4 notify 0\n#5 notify 1\n");
  ExpectError(Follow(blocked), Code::kInvalidUsage,
              "rank 1, lane 0 waits forever at operation 0 of turn 0: no such signal comes, and the caller of rank 1 "
              "waits forever for output chunk 0");
}

TEST(Caller, ChunksThatDoNotExistAreAnError) {
  plan::Schedule s = OneRank();
  s.program[0][0].ops[3].chunk = 2;
  ExpectError(Follow(s), Code::kInvalidUsage, "rank 0 notifies chunk 2 at rank 0, which its output does not have");
  s = OneRank();
  s.program[0][0].ops[3].peer = 1;
  ExpectError(Follow(s), Code::kInvalidUsage, "rank 0 notifies chunk 1 at rank 1, which its output does not have");
  s = Make("all_gather", 1, 1, true, kOneAfterTheOther);
  s.program[0][0].ops[3].chunk = 2;
  ExpectError(Follow(s), Code::kInvalidUsage, "rank 0 awaits chunk 2, which its input does not have");
}

TEST(Caller, TakesNoImpossibleTimes) {
  const double infinite = std::numeric_limits<double>::infinity();
  for (const Caller& bad : {Caller{-1e-9, 0}, Caller{0, -1e-9}, Caller{infinite, 0}, Caller{0, infinite}})
    ExpectError(Follow(OneRank(), bad), Code::kInvalidArgument, "must be finite and at least 0");
}

}  // namespace
}  // namespace axccl::sim
