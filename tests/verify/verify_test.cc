// The verifier on schedules written by hand: each has one fault, and the expected message names it.
#include "src/verify/verify.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include "src/algo/algo.h"
#include "src/plan/text.h"
#include "tests/algo/cases.h"
#include "tests/harness/random.h"
#include "tests/verify/by_hand.h"

namespace axccl::verify {
namespace {

using plan::Op;
using plan::Operand;
using plan::OpKind;
using plan::Schedule;

// Rank 0 sends by a put into the receiver's slot; the credit makes the slot reusable.
constexpr const char* kSend = "rank 0 lane 0\n#0 copy slot[1].0 <- in[0].0.0\n#1 signal 1 e0\n#2 wait 1 e0 v1\n";
constexpr const char* kReceive = "rank 1 lane 0\n#10 signal 0 e0\n#11 wait 0 e0 v1\n#12 copy out[1].0.0 <- slot[1].0\n";
const Head kSendRecv = {.kind = "send_recv"};

TEST(VerifyTest, AcceptsAPutWithCredit) {
  bool complete = false;
  EXPECT_EQ(Verdict(Make(kSendRecv, std::string(kSend) + kReceive), &complete), "ok");
  EXPECT_TRUE(complete);
}

TEST(VerifyTest, NamesBothSidesOfARaceInsideATurn) {
  const std::string early = "rank 1 lane 0\n#10 signal 0 e0\n#12 copy out[1].0.0 <- slot[1].0\n#11 wait 0 e0 v1\n";
  const std::string verdict = Verdict(Make(kSendRecv, kSend + early));
  // The verifier decides which of the two the run meets first.
  EXPECT_TRUE(
      verdict ==
          "race: rank 1 lane 0 op 12 reads scratch[1].slot 0 while rank 0 lane 0 op 0 may write it at the same time" ||
      verdict == "race: rank 0 lane 0 op 0 writes scratch[1].slot 0 while rank 1 lane 0 op 12 may still read it")
      << verdict;
}

TEST(VerifyTest, FindsASlotReusedTooEarly) {
  const std::string no_credit =
      "rank 0 lane 0\n#0 copy slot[1].0 <- in[0].0.0\n#1 signal 1 e0\n"
      "rank 1 lane 0\n#11 wait 0 e0 v1\n#12 copy out[1].0.0 <- slot[1].0\n";
  const std::string verdict = Verdict(Make(kSendRecv, no_credit));
  EXPECT_TRUE(verdict ==
                  "race: rank 0 lane 0 op 0 writes scratch[1].slot 0 while rank 1 lane 0 op 12 may still read it in an "
                  "earlier turn" ||
              verdict ==
                  "race: rank 1 lane 0 op 12 reads scratch[1].slot 0 while rank 0 lane 0 op 0 may write it at the same "
                  "time in a "
                  "later turn")
      << verdict;
}

// A credit sent before the read still comes one turn before the slot is used again.
TEST(VerifyTest, OneTurnBetweenCreditAndReuseIsEnough) {
  const std::string credit_of_read =
      "rank 0 lane 0\n#0 copy slot[1].0 <- in[0].0.0\n#1 signal 1 e0\n#2 wait 1 e0 v1\n"
      "rank 1 lane 0\n#11 wait 0 e0 v1\n#12 copy out[1].0.0 <- slot[1].0\n#10 signal 0 e0\n";
  EXPECT_EQ(Verdict(Make(kSendRecv, credit_of_read)), "ok");
}

TEST(VerifyTest, NamesTheCycleOfADeadlock) {
  const std::string circle =
      "rank 0 lane 0\n#2 wait 1 e0 v1\n#0 copy slot[1].0 <- in[0].0.0\n#1 signal 1 e0\n"
      "rank 1 lane 0\n#11 wait 0 e0 v1\n#10 signal 0 e0\n#12 copy out[1].0.0 <- slot[1].0\n";
  EXPECT_EQ(Verdict(Make(kSendRecv, circle)),
            "deadlock: rank 0 lane 0 op 2 waits for rank 1 lane 0 op 10, but before that rank 1 lane 0 op 11 waits for "
            "rank 0 "
            "lane 0 op 1, and so round");
}

TEST(VerifyTest, FindsAWaitThatNoSignalSatisfies) {
  std::string program = std::string(kSend) + kReceive;
  program.replace(program.find("#11 wait 0 e0 v1"), 16, "#11 wait 0 e0 v2");
  EXPECT_EQ(
      Verdict(Make(kSendRecv, program)),
      "deadlock: rank 1 lane 0 op 11 waits for value 2 of rank 0 lane 0 endpoint 0, which is signalled 1 times a turn");
}

TEST(VerifyTest, FindsLeaks) {
  const std::string leak =
      "rank 0 lane 0\n#0 copy slot[1].0 <- in[0].0.0\n#1 signal 1 e0\n#2 wait 1 e0 v1\n#3 signal 1 e0\n";
  EXPECT_EQ(Verdict(Make(kSendRecv, leak + kReceive)),
            "leak: rank 0 lane 0 op 3 signals endpoint 0 to 1 ranks, but only 0 wait for its value 2");
  // A rank that waits twice does not replace the rank that never waits.
  const Head barrier = {.kind = "barrier", .ranks = 3, .inlined = ""};
  EXPECT_EQ(Verdict(Make(barrier,
                         "rank 0 lane 0\n#0 signal all e0\n#1 wait 1 e0 v1\n#2 wait 2 e0 v1\n"
                         "rank 1 lane 0\n#3 signal all e0\n#4 wait 0 e0 v1\n#5 wait 0 e0 v1\n#6 wait 2 e0 v1\n"
                         "rank 2 lane 0\n#7 signal all e0\n#8 wait 1 e0 v1\n")),
            "leak: rank 0 lane 0 op 0 signals endpoint 0 to 2 ranks, but only 1 wait for its value 1");
}

TEST(VerifyTest, LaterSignalsAreNoCause) {
  // The wait is for the first signal, so the copy between the two is not ordered before the read.
  const std::string program =
      "rank 0 lane 0\n#0 signal 1 e0\n#1 copy slot[1].0 <- in[0].0.0\n#2 signal 1 e0\n#3 wait 1 e0 v1\n"
      "rank 1 lane 0\n#10 signal 0 e0\n#11 wait 0 e0 v1\n#12 copy out[1].0.0 <- slot[1].0\n#13 wait 0 e0 v2\n";
  EXPECT_EQ(Verdict(Make(kSendRecv, program)).substr(0, 5), "race:");
}

// ---- data ----------------------------------------------------------------------------------------------------------

// All-reduce of two ranks through their own scratch.
std::string OneShot(const std::string& reduce0, const std::string& reduce1) {
  return "rank 0 lane 0\n#0 copy slot[0].0 <- in[0].0.0\n#1 signal all e0\n#2 wait 1 e0 v1\n#3 " + reduce0 +
         "\nrank 1 lane 0\n#10 copy slot[1].0 <- in[1].0.0\n#11 signal all e0\n#12 wait 0 e0 v1\n#13 " + reduce1 + "\n";
}
constexpr const char* kReduce0 = "reduce finish out[0].0.0 <- slot[0].0 slot[1].0";
constexpr const char* kReduce1 = "reduce finish out[1].0.0 <- slot[0].0 slot[1].0";

TEST(VerifyTest, AcceptsAnAllReduceThatIsTheSameOnBothRanks) {
  EXPECT_EQ(Verdict(Make({}, OneShot(kReduce0, kReduce1))), "ok");
}

TEST(VerifyTest, RejectsWrongFolds) {
  EXPECT_EQ(Verdict(Make({}, OneShot(kReduce0, "reduce finish out[1].0.0 <- slot[0].0 slot[0].0"))),
            "dataflow: rank 1 lane 0 op 13 adds a rank twice: its sources hold the folds of ranks {0} {0}");
  EXPECT_EQ(Verdict(Make({}, OneShot(kReduce0, "reduce finish out[1].0.0 <- slot[1].0"))),
            "dataflow: rank 1 lane 0 op 13 finishes the fold of block 0.part 0 of ranks {1}; ranks are missing");
  EXPECT_EQ(Verdict(Make({}, OneShot(kReduce0, "reduce out[1].0.0 <- slot[0].0 slot[1].0"))),
            "dataflow: lane 0 leaves the fold of block 0.part 0 of ranks {0 1} in output[1].block 0.part 0, which must "
            "end as the "
            "finished fold of its block over all ranks");
  EXPECT_EQ(Verdict(Make({}, OneShot(kReduce0, std::string(kReduce1) + "\n#14 copy finish out[1].0.0 <- out[1].0.0"))),
            "dataflow: rank 1 lane 0 op 14 finishes the finished fold of block 0.part 0 of ranks {0 1} once more");
  EXPECT_EQ(Verdict(Make({}, OneShot(kReduce0, std::string(kReduce1) + "\n#14 reduce out[1].0.0 <- out[1].0.0"))),
            "dataflow: rank 1 lane 0 op 14 reduces the finished fold of block 0.part 0 of ranks {0 1} in "
            "output[1].block 0.part 0");
  EXPECT_EQ(Verdict(Make({}, OneShot(kReduce0, "nop"))),
            "dataflow: lane 0 leaves nothing in output[1].block 0.part 0, which must end as the finished fold of its "
            "block over "
            "all ranks");
}

TEST(VerifyTest, AllRanksSeeTheSameBits) {
  const char* different =
      "dataflow: lane 0 folds output block 0.part 0 of rank 0 and of rank 1 in different orders or with different "
      "roundings; "
      "all ranks must see the same bits";
  EXPECT_EQ(Verdict(Make({}, OneShot(kReduce0, "reduce finish out[1].0.0 <- slot[1].0 slot[0].0"))), different);
  // The same order, but rank 1 uses its own contribution before it was rounded to the data type.
  EXPECT_EQ(Verdict(Make({}, OneShot(kReduce0, "reduce finish out[1].0.0 <- slot[0].0 in[1].0.0"))), different);
  // If only one rank gets the result, no other rank's bits can differ.
  EXPECT_EQ(
      Verdict(Make({.kind = "reduce", .root = 1}, OneShot("nop", "reduce finish out[1].0.0 <- in[1].0.0 slot[0].0"))),
      "ok");
}

TEST(VerifyTest, RejectsReadsOfUndefinedData) {
  const Head two_slots = {.inlined = " - -"};
  EXPECT_EQ(Verdict(Make(two_slots, OneShot(kReduce0, "reduce finish out[1].0.0 <- slot[0].0 slot[1].1"))),
            "dataflow: rank 1 lane 0 op 13 reads scratch[1].slot 1, which nothing has written in this turn");
  EXPECT_EQ(Verdict(Make({}, OneShot(kReduce0, "reduce finish out[1].0.0 <- slot[0].0 out[1].0.0"))),
            "dataflow: rank 1 lane 0 op 13 reads output[1].block 0.part 0, which nothing has written in this turn");
}

const Head kAlone = {.kind = "all_reduce", .ranks = 1, .parts = 2, .endpoints = 0, .inlined = " - -"};

TEST(VerifyTest, PartsAreNotMixed) {
  const std::string begin = "rank 0 lane 0\n#0 copy slot[0].0:2 <- in[0].0.0:2\n";
  EXPECT_EQ(Verdict(Make(kAlone, begin + "#1 copy finish out[0].0.0:2 <- slot[0].0:2\n")), "ok");
  EXPECT_EQ(Verdict(Make(kAlone, begin + "#1 copy finish out[0].0.0 <- slot[0].1\n")),
            "dataflow: rank 0 lane 0 op 1 writes the finished fold of block 0.part 1 of ranks {0} to output[0].block "
            "0.part 0, "
            "another part");
  EXPECT_EQ(Verdict(Make(kAlone, begin + "#1 reduce slot[0].0 <- slot[0].0 slot[0].1\n")),
            "dataflow: rank 0 lane 0 op 1 reduces the fold of block 0.part 1 of ranks {0} in scratch[0].slot 1 with "
            "the fold of "
            "block 0.part 0 of ranks {0}");
}

TEST(VerifyTest, OverlapInsideAnOperation) {
  const Head three = {.kind = "broadcast", .ranks = 1, .parts = 2, .endpoints = 0, .inlined = " - - -"};
  const std::string begin = "rank 0 lane 0\n#0 copy slot[0].0:2 out[0].0.0:2 <- in[0].0.0:2\n";
  EXPECT_EQ(Verdict(Make(three, begin)), "ok");
  EXPECT_EQ(Verdict(Make(three, begin + "#1 copy slot[0].1:2 <- slot[0].0:2\n")),
            "dataflow: rank 0 lane 0 op 1 reads scratch[0].slot 1, which it also writes, but as another of its parts");
  EXPECT_EQ(Verdict(Make(three, begin + "#1 copy slot[0].1 slot[0].1 <- slot[0].0\n")),
            "dataflow: rank 0 lane 0 op 1 writes scratch[0].slot 1 twice");
  EXPECT_EQ(Verdict(Make(three, begin + "#1 copy slot[0].0 <- slot[0].0\n")), "ok");
}

TEST(VerifyTest, InPlaceRanks) {
  // Writing the result to the input's place and then reading the input again is wrong only in place.
  const Head gather = {.kind = "all_gather", .ranks = 1, .endpoints = 0, .inlined = " -"};
  const std::string own = "rank 0 lane 0\n#0 copy out[0].0.0 <- in[0].0.0\n#1 copy slot[0].0 <- in[0].0.0\n";
  EXPECT_EQ(Verdict(Make(gather, own)), "ok");
  const Head reduce = {.kind = "all_reduce", .ranks = 1, .endpoints = 0, .inlined = " -"};
  EXPECT_EQ(
      Verdict(Make(reduce, "rank 0 lane 0\n#0 copy out[0].0.0 <- in[0].0.0\n#1 copy finish out[0].0.0 <- in[0].0.0\n")),
      "dataflow: rank 0 lane 0 op 1 reads input[0].block 0.part 0 after it was overwritten with the fold of block "
      "0.part 0 of "
      "ranks {0} if rank 0 runs in place");
  EXPECT_EQ(Verdict(Make(reduce, "rank 0 lane 0\n#0 copy finish out[0].0.0 <- in[0].0.0\n")), "ok");
}

// ---- other ranks' buffers
// --------------------------------------------------------------------------------------------

const Head kDirect = {.kind = "broadcast", .direct = true, .inlined = ""};

TEST(VerifyTest, DirectSchedules) {
  const std::string open0 = "rank 0 lane 0\n#0 signal all e0\n#1 wait 1 e0 v1\n";
  const std::string open1 = "rank 1 lane 0\n#10 signal all e0\n#11 wait 0 e0 v1\n";
  const std::string copy0 = "#2 copy out[0].0.0 <- in[0].0.0\n";
  const std::string copy1 = "#12 copy out[1].0.0 <- in[0].0.0\n";
  bool complete = false;
  EXPECT_EQ(
      Verdict(Make(kDirect, open0 + copy0 + "#3 wait 1 e1 v1\n" + open1 + copy1 + "#13 signal 0 e1\n"), &complete),
      "ok");
  EXPECT_TRUE(complete);
  EXPECT_EQ(Verdict(Make(kDirect, open0 + copy0 + open1 + copy1)),
            "race: rank 1 lane 0 op 12 touches a buffer of rank 0 and may do so after that rank's operation has ended");
  EXPECT_EQ(Verdict(Make(kDirect, open0 + copy0 + "#3 wait 1 e1 v1\nrank 1 lane 0\n" + copy1 +
                                      "#10 signal all e0\n#11 wait 0 e0 v1\n#13 signal 0 e1\n"))
                .substr(0, 63),
            "structure: rank 1 lane 0 of a direct schedule must begin with a");
  Head not_direct = kDirect;
  not_direct.direct = false;
  EXPECT_EQ(
      Verdict(Make(not_direct, open0 + copy0 + "#3 wait 1 e1 v1\n" + open1 + copy1 + "#13 signal 0 e1\n")),
      "structure: rank 1 lane 0 op 12 touches input[0].block 0.part 0 of another rank, but the schedule is not direct");
}

TEST(VerifyTest, DirectInPlaceRaces) {
  // Rank 1 writes rank 0's output, which in place is the input that rank 0 still reads.
  const Head direct = {.kind = "all_reduce", .direct = true, .inlined = ""};
  const std::string program =
      "rank 0 lane 0\n#0 signal all e0\n#1 wait 1 e0 v1\n#2 reduce finish out[1].0.0 <- in[0].0.0 in[1].0.0\n"
      "#3 signal all e0\n#4 wait 1 e0 v2\n"
      "rank 1 lane 0\n#10 signal all e0\n#11 wait 0 e0 v1\n#12 reduce finish out[0].0.0 <- in[0].0.0 in[1].0.0\n"
      "#13 signal all e0\n#14 wait 0 e0 v2\n";
  const std::string verdict = Verdict(Make(direct, program));
  EXPECT_EQ(verdict.substr(0, 5), "race:");
  EXPECT_NE(verdict.find("runs in place"), std::string::npos) << verdict;
}

// Rank 0 overwrites its output, restores it from a slot and copies the input to it, while rank 1 reads the input. In
// place, all of these are the same memory, and the last copy does nothing.
TEST(VerifyTest, ACopyOntoItselfHidesNoWrite) {
  const Head direct = {.kind = "all_gather", .direct = true};
  const auto verdict = [&](const std::string& writes) {
    return Verdict(
        Make(direct, "rank 0 lane 0\n#0 signal all e0\n#1 wait 1 e0 v1\n#2 signal 1 e1\n" + writes +
                         "#6 copy out[0].0.0 <- in[0].0.0\n#7 copy out[0].1.0 <- in[1].0.0\n#8 signal 1 e1\n"
                         "#9 wait 1 e1 v1\n"
                         "rank 1 lane 0\n#10 signal all e0\n#11 wait 0 e0 v1\n#12 wait 0 e1 v1\n"
                         "#13 copy out[1].0.0 <- in[0].0.0\n#14 copy out[1].1.0 <- in[1].0.0\n#15 signal 0 e1\n"
                         "#16 wait 0 e1 v2\n"));
  };
  EXPECT_EQ(verdict(""), "ok");
  EXPECT_EQ(verdict("#3 copy slot[0].0 <- in[0].0.0\n#4 copy out[0].0.0 <- in[1].0.0\n"
                    "#5 copy out[0].0.0 <- slot[0].0\n"),
            "race: rank 1 lane 0 op 13 reads input[0].block 0.part 0 while rank 0 lane 0 op 5 may write it at the same "
            "time when rank 0 runs in place");
}

TEST(VerifyTest, LanesOfADirectScheduleNeedTheToken) {
  Head lanes = kDirect;
  lanes.lanes = 2;
  lanes.endpoints = 3;
  const std::string rank0 =
      "rank 0 lane 0\n#0 signal all e0\n#1 wait 1 e0 v1\n#6 signal 0 e2\n#2 copy out[0].0.0 <- in[0].0.0\n"
      "#3 wait 1 e1 v1\n"
      "rank 0 lane 1\n#7 wait 0 l0 e2 v1\n#4 copy out[0].0.0 <- in[0].0.0\n#5 wait 1 e1 v1\n";
  const std::string lane0 = "rank 1 lane 0\n#10 signal all e0\n#11 wait 0 e0 v1\n";
  const std::string copy = "#12 copy out[1].0.0 <- in[0].0.0\n#13 signal 0 e1\n";
  const std::string lane1 = "#14 copy out[1].0.0 <- in[0].0.0\n#15 signal 0 e1\n";
  EXPECT_EQ(
      Verdict(Make(lanes, rank0 + lane0 + "#16 signal 1 e2\n" + copy + "rank 1 lane 1\n#17 wait 1 l0 e2 v1\n" + lane1)),
      "ok");
  EXPECT_EQ(Verdict(Make(lanes, rank0 + lane0 + copy + "rank 1 lane 1\n" + lane1)),
            "structure: rank 1 lane 1 of a direct schedule must begin with a wait for a token of lane 0, "
            "which gives it after the exchange of addresses");
}

// ---- lanes ----

TEST(VerifyTest, EveryLaneIsChecked) {
  Schedule s = algo::Generate({plan::Kind::kAllGather, 3, 0}, "ring", 3).value();
  EXPECT_EQ(Verdict(s), "ok");
  s.program[1][2].ops[0].src[0].rank = 1;
  s.program[1][2].ops[0].src[0].buffer = plan::Buffer::kOutput;
  EXPECT_NE(Verdict(s).find("rank 1 lane 2"), std::string::npos) << Verdict(s);
}

TEST(VerifyTest, TokensMayDeadlockToo) {
  const Head lanes = {.kind = "barrier", .ranks = 1, .lanes = 2, .endpoints = 1, .inlined = ""};
  EXPECT_EQ(
      Verdict(Make(
          lanes,
          "rank 0 lane 0\n#0 wait 0 l1 e0 v1\n#1 signal 0 e0\nrank 0 lane 1\n#2 wait 0 l0 e0 v1\n#3 signal 0 e0\n")),
      "deadlock: rank 0 lane 0 op 0 waits for rank 0 lane 1 op 3, but before that rank 0 lane 1 op 2 waits for rank 0 "
      "lane 0 "
      "op 1, and so round");
  EXPECT_EQ(Verdict(Make(lanes, "rank 0 lane 0\n#0 signal 0 e0\nrank 0 lane 1\n#2 wait 0 l0 e0 v1\n")), "ok");
}

// ---- inline slots
// ----------------------------------------------------------------------------------------------------

TEST(VerifyTest, InlineSlotsArePublishedByTheirEndpoint) {
  EXPECT_EQ(Verdict(Make({.inlined = " 0"}, OneShot(kReduce0, kReduce1))), "ok");
  // Endpoint 1 signals the reader, but endpoint 0 carries the data and is signalled too early.
  const std::string wrong =
      "rank 0 lane 0\n#0 signal all e0\n#1 copy slot[0].0 <- in[0].0.0\n#2 signal all e1\n#3 wait 1 e1 v1\n#4 wait 1 "
      "e0 v1\n#5 " +
      std::string(kReduce0) +
      "\nrank 1 lane 0\n#10 signal all e0\n#11 copy slot[1].0 <- in[1].0.0\n#12 signal all e1\n#13 wait 0 e1 v1\n#14 "
      "wait 0 e0 v1\n#15 " +
      kReduce1 + "\n";
  EXPECT_EQ(Verdict(Make({.inlined = " 1"}, wrong)), "ok");
  const std::string verdict = Verdict(Make({.inlined = " 0"}, wrong));
  EXPECT_TRUE(verdict ==
                  "race: rank 0 lane 0 op 5 reads the inline slot scratch[1].slot 0 before the signal of endpoint 0 "
                  "that publishes it" ||
              verdict ==
                  "race: rank 1 lane 0 op 15 reads the inline slot scratch[0].slot 0 before the signal of endpoint 0 "
                  "that publishes it")
      << verdict;
  EXPECT_EQ(Verdict(Make({.inlined = " 0 0"}, OneShot(kReduce0, kReduce1))),
            "structure: two slots are inline in endpoint 0; there is room for one");
  EXPECT_EQ(
      Verdict(Make({.kind = "send_recv", .inlined = " 0"}, std::string(kSend) + kReceive)),
      "structure: rank 0 lane 0 op 0 writes scratch[1].slot 0, an inline slot of another rank; only the owner may");
}

// ---- structure
// -------------------------------------------------------------------------------------------------------

TEST(VerifyTest, StructureOfOperations) {
  const Schedule good = Make({}, OneShot(kReduce0, kReduce1));
  const auto with = [&good](auto change) {
    Schedule s = good;
    change(&s.program[1][0].ops[3], &s);
    return Verdict(s);
  };
  const auto is = [](const std::string& verdict, const std::string& what) {
    EXPECT_EQ(verdict, "structure: rank 1 lane 0 op 13 " + what);
  };
  is(with([](Op* op, Schedule*) { op->dst.clear(); }), "needs a destination and a source");
  is(with([](Op* op, Schedule*) { op->kind = OpKind::kCopy; }), "is a copy of more than one source");
  is(with([](Op* op, Schedule*) { op->kind = OpKind::kNop; }), "is a nop with fields set");
  is(with([](Op* op, Schedule*) { op->kind = static_cast<OpKind>(9); }), "has an unknown kind");
  is(with([](Op* op, Schedule*) { op->endpoint = 1; }), "moves data but has fields of a signal or wait");
  is(with([](Op* op, Schedule*) { op->src[0].rank = 2; }), "has an operand on rank 2, which does not exist");
  is(with([](Op* op, Schedule*) { op->src[0].part = 1; }), "names scratch[0].slot 1, which does not exist");
  is(with([](Op* op, Schedule*) { op->src[0].parts = 0; }), "has operands of different or no parts");
  is(with([](Op* op, Schedule*) { op->dst[0].part = 65535; }),
     "names output[1].block 0.part 65535, which does not exist");
  is(with([](Op* op, Schedule*) { op->dst[0].buffer = plan::Buffer::kInput; }),
     "writes input[1].block 0.part 0; inputs are read only");
  is(with([](Op* op, Schedule*) {
       op->src[1] = {static_cast<plan::Buffer>(7), 1, 0, 0, 1};
     }),
     "has an operand of an unknown buffer");
  is(with([](Op* op, Schedule*) { *op = Op{.kind = OpKind::kSignal, .endpoint = 2, .id = 13, .dst = {}, .src = {}}; }),
     "names endpoint 2, which does not exist");
  is(with([](Op* op, Schedule*) {
       *op = Op{.kind = OpKind::kWait, .peer = 1, .value = 1, .id = 13, .dst = {}, .src = {}};
     }),
     "waits for rank 1 lane 0; must be the own lane of another rank, or another lane of the own rank");
  EXPECT_EQ(with([](Op* op, Schedule*) { op->id = 0; }), "structure: operation id 0 is used twice");
}

TEST(VerifyTest, StructureOfTheWhole) {
  const Schedule good = Make({}, OneShot(kReduce0, kReduce1));
  const auto with = [&good](auto change) {
    Schedule s = good;
    change(&s);
    return Verdict(s);
  };
  EXPECT_NE(with([](Schedule* s) { s->algorithm = "Ring!"; }).find("name"), std::string::npos);
  EXPECT_NE(with([](Schedule* s) { s->contract.root = 1; }).find("root 1"), std::string::npos);
  EXPECT_NE(with([](Schedule* s) { s->contract.ranks = 0; }).find("0 ranks"), std::string::npos);
  EXPECT_NE(with([](Schedule* s) { s->contract.ranks = 3; }).find("programs for 2 ranks"), std::string::npos);
  EXPECT_NE(with([](Schedule* s) { s->contract.kind = static_cast<plan::Kind>(77); }).find("kind"), std::string::npos);
  EXPECT_NE(with([](Schedule* s) { s->lanes = 2; }).find("one program a lane"), std::string::npos);
  EXPECT_NE(with([](Schedule* s) { s->inline_endpoint.clear(); }).find("one entry a slot"), std::string::npos);
  EXPECT_NE(with([](Schedule* s) { s->inline_endpoint[0] = 2; }).find("does not exist"), std::string::npos);
  EXPECT_NE(with([](Schedule* s) { s->endpoints = 0; }).find("endpoint 0"), std::string::npos);
  EXPECT_NE(with([](Schedule* s) {
              s->program[1][0].ops[1].peer = 0;
              s->program[1][0].ops.push_back(s->program[1][0].ops[1]);
              s->program[1][0].ops.back().id = 99;
              s->program[1][0].ops.back().peer = plan::kAllPeers;
            }).find("earlier signals went to 0"),
            std::string::npos);
}

// Sizes that a text can claim at no cost are refused before memory is allocated for them.
TEST(VerifyTest, RefusesWhatIsTooLarge) {
  Schedule s;
  s.algorithm = "huge";
  s.contract = {plan::Kind::kAllToAll, 4000, 0};
  s.parts = 65535;
  s.lanes = 1;
  s.program.assign(4000, std::vector<plan::Lane>(1));
  EXPECT_NE(Verdict(s).find("too large"), std::string::npos);
  s.parts = 1;
  s.endpoints = 65535;
  EXPECT_NE(Verdict(s).find("too large"), std::string::npos);
  s.contract.ranks = 5000;
  EXPECT_NE(Verdict(s).find("5000 ranks"), std::string::npos);
}

// Schedules in memory with fields that no generator writes are rejected or, if the field has no effect, accepted; the
// sanitizers check memory accesses.
TEST(VerifyTest, ScrambledFieldsNeverCrash) {
  SCOPED_TRACE("AXCCL_TEST_SEED=" + std::to_string(harness::Seed()));
  harness::Random random(harness::Seed());
  std::vector<Schedule> originals;
  for (int n = 1; n <= 3; ++n) {
    const auto add = [&](const plan::Contract& contract, std::string_view algorithm) {
      originals.push_back(algo::Generate(contract, algorithm, n == 2 ? 2 : 1).value());
    };
    algo::ForEachAlgorithm(n, add);
    algo::ForEachMulticast(n, add);
  }
  const auto any = [&random] { return static_cast<uint16_t>(random.OneIn(2) ? random.Below(4) : random.Next()); };
  long rejected = 0;
  for (int i = 0; i < 20000; ++i) {
    Schedule s = random.Pick(originals);
    for (uint64_t changes = 1 + random.Below(3); changes > 0; --changes) {
      auto& ops = s.program[random.Below(s.program.size())][0].ops;
      if (ops.empty()) continue;
      Op& op = ops[random.Below(ops.size())];
      Operand o = {static_cast<plan::Buffer>(random.Below(plan::kNumBuffers + 2)), any(), any(), any(), any()};
      switch (random.Below(12)) {
        case 0:
          op.kind = static_cast<OpKind>(random.Below(7));
          break;
        case 1:
          op.peer = static_cast<int16_t>(any());
          break;
        case 2:
          op.from_lane = any();
          break;
        case 3:
          op.endpoint = any();
          break;
        case 4:
          op.value = any();
          break;
        case 5:
          op.src.push_back(o);
          break;
        case 6:
          op.dst.assign(1, o);
          break;
        case 7:
          s.parts = any();
          break;
        case 8:
          s.slots = any();
          break;
        case 9:
          s.endpoints = any();
          break;
        case 10:
          s.direct = !s.direct;
          break;
        case 11:
          s.contract.kind = static_cast<plan::Kind>(random.Below(12));
          break;
      }
    }
    Facts facts;
    rejected += !Verify(s, &facts).ok();
  }
  EXPECT_GT(rejected, 15000);
}

TEST(VerifyTest, CountsSignalsUpTo65535) {
  const Head barrier = {.kind = "barrier", .endpoints = 1, .inlined = ""};
  const auto program = [](int signals) {
    std::string text = "rank 0 lane 0\n";
    for (int i = 0; i < signals; ++i) text += "#" + std::to_string(i) + " signal all e0\n";
    text += "#100000 wait 1 e0 v1\nrank 1 lane 0\n#100001 signal all e0\n#100002 wait 0 e0 v65535\n";
    return text;
  };
  EXPECT_EQ(Verdict(Make(barrier, program(65535))), "ok");
  EXPECT_EQ(Verdict(Make(barrier, program(65536))),
            "structure: rank 0 lane 0 op 65535 is signal 65536 of its endpoint; 65535 fit in a turn");
}

TEST(VerifyTest, APlacementCoversAllRanks) {
  Schedule s = algo::Generate({plan::Kind::kAllReduce, 4, 0}, "ring", 1).value();
  s.placement = plan::Placement::Of(std::vector<int>{0, 0, 1, 1});
  EXPECT_EQ(Verdict(s), "ok");
  s.placement = plan::Placement::Of(std::vector<int>{0, 0, 1});
  EXPECT_EQ(Verdict(s), "structure: the placement is of 3 ranks, the contract of 4");
}

TEST(VerifyTest, ABarrierHolds) {
  const Head barrier = {.kind = "barrier", .inlined = ""};
  EXPECT_EQ(Verdict(Make(barrier, "rank 0 lane 0\n#0 signal 1 e0\nrank 1 lane 0\n#1 wait 0 e0 v1\n")),
            "order: a rank may end the barrier before another has begun it");
}

// ---- facts and plans
// -------------------------------------------------------------------------------------------------

TEST(VerifyTest, CompleteMeansEveryEndFollowsEveryBegin) {
  const auto complete = [](plan::Kind kind, const char* algorithm, int lanes) {
    bool value = false;
    EXPECT_EQ(Verdict(algo::Generate({kind, 5, 0}, algorithm, lanes).value(), &value), "ok");
    return value;
  };
  EXPECT_TRUE(complete(plan::Kind::kAllReduce, "oneshot", 2));
  EXPECT_TRUE(complete(plan::Kind::kAllReduce, "direct", 3));
  EXPECT_TRUE(complete(plan::Kind::kGather, "direct", 2));
  EXPECT_FALSE(complete(plan::Kind::kBroadcast, "tree", 1));
  EXPECT_FALSE(complete(plan::Kind::kGather, "tree", 2));
}

TEST(VerifyTest, FindsWhichFoldsAreInGroupOrder) {
  const auto in_order = [](const Schedule& s) {
    Facts facts;
    EXPECT_EQ(Verify(s, &facts).message(), "");
    return facts.group_order;
  };
  EXPECT_TRUE(in_order(Make({}, OneShot(kReduce0, kReduce1))));
  EXPECT_FALSE(in_order(Make({}, OneShot("reduce finish out[0].0.0 <- slot[1].0 slot[0].0",
                                         "reduce finish out[1].0.0 <- slot[1].0 slot[0].0"))));
  // The input as it is read and as it was stored are the same contribution.
  EXPECT_TRUE(
      in_order(Make({.kind = "reduce", .root = 1}, OneShot("nop", "reduce finish out[1].0.0 <- slot[0].0 in[1].0.0"))));
  EXPECT_FALSE(
      in_order(Make({.kind = "reduce", .root = 1}, OneShot("nop", "reduce finish out[1].0.0 <- in[1].0.0 slot[0].0"))));
}

TEST(MakePlanTest, CarriesHashAndFacts) {
  const Schedule s = algo::Generate({plan::Kind::kBroadcast, 4, 2}, "tree", 1).value();
  const auto made = MakePlan(s);
  ASSERT_TRUE(made.ok());
  EXPECT_EQ((*made.value()).schedule, s);
  EXPECT_EQ((*made.value()).hash, plan::HashOf(plan::Print(s)));
  EXPECT_FALSE((*made.value()).complete);
}

TEST(MakePlanTest, ARejectedScheduleIsAnInternalError) {
  Schedule s = algo::Generate({plan::Kind::kBroadcast, 4, 2}, "tree", 1).value();
  s.program[2][0].ops.pop_back();
  const auto made = MakePlan(s);
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.status().code(), Code::kInternalError);
  EXPECT_EQ(made.status().message().substr(0, 46), "plan tree broadcast of 4 ranks rejected: leak:");
}

// Every generator at sizes for which an operation's first use pays for the proof. The times are only printed.
TEST(VerifyTest, GeneratedSchedulesOfManyRanks) {
  for (const int n : {8, 17, 64}) {
    double worst = 0, total = 0;
    std::string slowest;
    const auto verify = [&](const plan::Contract& contract, std::string_view algorithm) {
      if (n == 64 && contract.root != 0) return;
      const Schedule s = algo::Generate(contract, algorithm, 1).value();
      Facts facts;
      double ms = 1e9;
      for (int repeat = 0; repeat < 3; ++repeat) {
        const auto start = std::chrono::steady_clock::now();
        const Status status = Verify(s, &facts);
        ms = std::min(ms, std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count());
        ASSERT_TRUE(status.ok()) << status.message();
      }
      total += ms;
      if (ms < worst) return;
      worst = ms;
      slowest = algo::Describe(contract, algorithm, 1);
    };
    algo::ForEachAlgorithm(n, verify);
    algo::ForEachMulticast(n, verify);
    std::printf("%d ranks: best of 3: all schedules %.2f ms, slowest %.3f ms (%s)\n", n, total, worst, slowest.c_str());
  }
}

}  // namespace
}  // namespace axccl::verify
