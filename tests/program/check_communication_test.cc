// Communication of several ranks: what matches, what does not, and the words for it.
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

#include "src/program/check.h"
#include "src/program/text.h"
#include "tests/harness/folder.h"

namespace axccl::program {
namespace {

std::string ErrorOf(const std::string& parts) {
  const Result<Program> program = Parse("axccl-program 1\nranks 5\n" + parts);
  if (!program.ok()) return "does not parse: " + std::string(program.status().message()) + "\n" + parts;
  return std::string(Check(program.value()).message());
}

// A part with an argument %0 of two floats and these operations.
std::string PartOf(const std::string& name, const std::string& ranks, const std::string& operations) {
  return "part " + name + " on " + ranks + "\n  argument %0 f32[2]\n" + operations + "  return\n";
}

struct Case {
  std::string parts;
  const char* error;  // "": accepted
};

void Expect(const std::vector<Case>& cases) {
  for (const Case& test : cases) EXPECT_EQ(ErrorOf(test.parts), test.error) << test.parts;
}

TEST(CheckCommunicationTest, TheDocumentedExampleIsRight) {
  const std::string page = harness::Contents(AXCCL_TEST_SOURCE_DIR "/docs/program-format.md"), fence = "```\n";
  const size_t begin = page.find(fence) + fence.size();
  const Status checked = Check(Parse(page.substr(begin, page.find(fence, begin) - begin)).value());
  EXPECT_TRUE(checked.ok()) << checked.message();
}

TEST(CheckCommunicationTest, RegionsOfTheCorpusAreRight) {
  const std::string folder = AXCCL_TEST_SOURCE_DIR "/tests/fuzz/corpus/program/";
  for (const char* name : {"pipeline", "regions"}) {
    const Status checked = Check(Parse(harness::Contents(folder + name)).value());
    EXPECT_TRUE(checked.ok()) << name << ": " << checked.message();
  }
}

TEST(CheckCommunicationTest, CollectivesOfSeveralParts) {
  const std::string reduce = "  %1 f32[2] = all_reduce %0 fold=add groups=[[0,2],[1,3]] channel=1\n";
  const std::string gather = "  %2 f32[4] = all_gather %0 dim=0 groups=[[0,2],[1,3]] channel=1\n";
  const auto both = [&](const std::string& a, const std::string& b) {
    return PartOf("a", "[0,1]", a) + PartOf("b", "[2,3]", b);
  };
  const std::string mean = "  %1 f32[2] = all_reduce %0 fold=max groups=[[0,2],[1,3]] channel=1\n";
  const std::string other = "  %3 f32[2] = all_reduce %0 fold=add groups=[[0,2],[1,3]] channel=2\n";
  const std::string turned = "  %1 f32[2] = all_reduce %0 fold=add groups=[[2,0],[1,3]] channel=1\n";
  const std::string two = "  %1 f32[2], %4 f32[2] = all_reduce %0 %0 fold=add groups=[[0,2],[1,3]] channel=1\n";
  Expect({
      {both(reduce + gather, reduce + gather), ""},
      {both(reduce, reduce), ""},
      {both(reduce + gather, gather + reduce),
       "rank 2 waits in %2 all_gather on {0,2}, rank 0 goes to %1 all_reduce on {0,2} first"},
      {both(reduce, reduce + gather),
       "rank 2 waits in %2 all_gather on {0,2} (dim=0 channel=1 f32[4]), rank 0 ends without it"},
      {both(reduce, mean),
       "rank 2 waits in %1 all_reduce on {0,2} (fold=max channel=1 f32[2]), rank 0 goes to %1 all_reduce on {0,2} "
       "(fold=add channel=1 f32[2]) first"},
      {both(reduce + other, other + reduce),
       "rank 2 waits in %3 all_reduce on {0,2} (fold=add channel=2 f32[2]), rank 0 goes to %1 all_reduce on {0,2} "
       "(fold=add channel=1 f32[2]) first"},
      {both(reduce, turned), "rank 2 waits in %1 all_reduce on {2,0}, rank 0 goes to %1 all_reduce on {0,2} first"},
      {both(reduce, two),
       "rank 2 waits in %1 all_reduce on {0,2} (fold=add channel=1 f32[2] f32[2]), rank 0 goes to %1 all_reduce on "
       "{0,2} (fold=add channel=1 f32[2]) first"},
      {both("", reduce), "rank 2 waits in %1 all_reduce on {0,2} (fold=add channel=1 f32[2]), rank 0 ends without it"},
  });
}

// Three ranks, each of which has begun with another of three pairs.
TEST(CheckCommunicationTest, CircleOfThree) {
  const auto on = [](int id, int a, int b) {
    return "  %" + std::to_string(id) + " f32[2] = all_reduce %0 fold=add groups=[[" + std::to_string(a) + "," +
           std::to_string(b) + "]] channel=1\n";
  };
  Expect({{PartOf("a", "[0]", on(1, 0, 1) + on(2, 0, 2)) + PartOf("b", "[1]", on(3, 1, 2) + on(4, 0, 1)) +
               PartOf("c", "[2]", on(5, 0, 2) + on(6, 1, 2)),
           "rank 2 waits in %5 all_reduce on {0,2}, rank 0 goes to %1 all_reduce on {0,1} first"},
          {PartOf("a", "[0]", on(1, 0, 1) + on(2, 0, 2)) + PartOf("b", "[1]", on(4, 0, 1) + on(3, 1, 2)) +
               PartOf("c", "[2]", on(5, 0, 2) + on(6, 1, 2)),
           ""}});
}

TEST(CheckCommunicationTest, Messages) {
  const std::string send = "  %1 = send %0 pairs=[[0,1]] channel=1\n",
                    recv = "  %1 f32[2] = recv pairs=[[0,1]] channel=1\n";
  const std::string back = "  %2 = send %0 pairs=[[1,0]] channel=1\n",
                    from_1 = "  %2 f32[2] = recv pairs=[[1,0]] channel=1\n";
  const auto both = [&](const std::string& a, const std::string& b) {
    return PartOf("a", "[0]", a) + PartOf("b", "[1]", b);
  };
  const std::string ring = "pairs=[[0,1],[1,2],[2,0]] channel=3\n";
  Expect({
      {both(send, recv), ""},
      {both(send + from_1, back + recv), ""},  // a send does not wait
      {both(send + from_1, recv + back), ""},
      {both(from_1 + send, recv + back),
       "rank 1 waits in %1 recv from rank 0 on channel 1, rank 0 goes to %2 recv from rank 1 on channel 1 first"},
      {both(send, ""), "rank 0 sends in %1 send to rank 1 on channel 1, rank 1 ends without receiving it"},
      {both("", recv), "rank 1 waits in %1 recv from rank 0 on channel 1, rank 0 ends without it"},
      {both(send, "  %1 f32[2] = recv pairs=[[0,1]] channel=2\n"),
       "rank 1 waits in %1 recv from rank 0 on channel 2, rank 0 ends without it"},
      {both(send, "  %1 f32[3] = recv pairs=[[0,1]] channel=1\n"),
       "rank 1 expects f32[3] in %1 recv from rank 0 on channel 1, rank 0 sends f32[2] in %1 send to rank 1 on "
       "channel 1"},
      {PartOf("a", "[0,1,2]", "  %1 = send %0 " + ring + "  %2 f32[2] = recv " + ring), ""},
      {PartOf("a", "[0,1,2]", "  %2 f32[2] = recv " + ring + "  %1 = send %0 " + ring),
       "rank 1 waits in %2 recv from rank 0 on channel 3, rank 0 goes to %2 recv from rank 2 on channel 3 first"},
      // The third message meets the third recv, whatever is between them.
      {both("  %5 i8[1] = constant value=1\n  %1 = send %0 pairs=[[0,1]] channel=1\n"
            "  %2 = send %5 pairs=[[0,1]] channel=1\n  %3 = send %5 pairs=[[0,1]] channel=2\n",
            "  %3 i8[1] = recv pairs=[[0,1]] channel=2\n  %1 f32[2] = recv pairs=[[0,1]] channel=1\n"
            "  %2 i8[1] = recv pairs=[[0,1]] channel=1\n"),
       ""},
  });
}

// ---- regions ----

// A loop of ranks 0 to 3 with this condition (%9 of a loop whose state is %0 and %1) and these operations.
std::string Loop(const std::string& before, const std::string& condition, const std::string& body) {
  return "part main on [0,1,2,3]\n  argument %0 f32[2]\n  argument %1 i32[]\n" + before +
         "  %2 f32[2], %3 i32[] = while %0 %1\n  cond\n    argument %4 f32[2]\n    argument %5 i32[]\n" + condition +
         "    return %9\n  body\n    argument %6 f32[2]\n    argument %7 i32[]\n" + body + "  return\n";
}

const std::string kCounter = "    %8 i32[] = constant value=8\n    %9 i1[] = compare %5 %8 direction=LT\n";

TEST(CheckCommunicationTest, ConditionsAreShared) {
  const std::string reduce =
      "    %10 f32[2] = all_reduce %6 fold=add groups=[[0,1],[2,3]] channel=1\n    return %10 %7\n";
  const std::string norm =
      "    %8 f32[] = constant value=0\n    %11 f32[] = reduce %4 %8 fold=add dims=[0]\n"
      "    %9 i1[] = compare %8 %11 direction=LT\n";
  const std::string own = "%10 all_reduce: is within %2 while, whose condition may differ between ranks ";
  const std::string id =
      "  %30 u32[] = partition_id\n  %31 u32[] = constant value=0\n"
      "  %32 i1[] = compare %30 %31 direction=EQ\n";
  const auto sum = [](const char* groups) {
    return std::string("  %30 f32[2] = all_reduce %0 fold=add groups=") + groups +
           " channel=9\n  %31 f32[2] = constant value=0\n  %33 i1[2] = compare %30 %31 direction=LT\n"
           "  %34 i1[] = constant value=true\n  %32 i1[] = reduce %33 %34 fold=and dims=[0]\n";
  };
  const std::string outer = "    %9 i1[] = copy %32\n";
  const auto error_of = [&](const std::string& text) { return ErrorOf(text); };
  EXPECT_EQ(error_of(Loop("", kCounter, reduce)), "");
  // The state is an argument at first, then equal within groups.
  EXPECT_EQ(error_of(Loop("", norm, reduce)), "part main, " + own + "0 and 1");
  EXPECT_EQ(error_of(Loop(id, outer, reduce)), "part main, " + own + "0 and 1");
  EXPECT_EQ(error_of(Loop(id, outer, "    return %6 %7\n")), "");
  EXPECT_EQ(error_of(Loop(sum("[[0,1,2,3]]"), outer, reduce)), "");
  EXPECT_EQ(error_of(Loop(sum("[[0,1],[2,3]]"), outer, reduce)), "");
  EXPECT_EQ(error_of(Loop(sum("[[3,2],[1,0]]"), outer, reduce)), "");
  EXPECT_EQ(error_of(Loop(sum("[[0,1,2],[3]]"), outer, reduce)), "part main, " + own + "2 and 3");
  EXPECT_EQ(error_of(Loop(sum("[[0,2],[1,3]]"), outer, reduce)), "part main, " + own + "0 and 1");
  // What a loop or branch gives out depends on how long it ran, or which branch did.
  const std::string branch = id + "  %35 i1[] = if %32\n  then\n    return %32\n  else\n    return %32\n";
  EXPECT_EQ(error_of(Loop(branch, "    %9 i1[] = copy %35\n", reduce)), "part main, " + own + "0 and 1");
  // A counter that one rank raises by more than others.
  const std::string raise =
      "    %10 f32[2] = all_reduce %6 fold=add groups=[[0,1,2,3]] channel=1\n"
      "    %11 u32[] = partition_id\n    %12 i32[] = convert %11\n    return %10 %12\n";
  EXPECT_EQ(error_of(Loop("", kCounter, raise)), "part main, " + own + "0 and 1");
}

TEST(CheckCommunicationTest, RegionsEndByThemselves) {
  const std::string ring = "pairs=[[0,1],[1,2],[2,3],[3,0]] channel=1\n";
  const std::string send = "    %10 = send %6 " + ring, recv = "    %11 f32[2] = recv " + ring,
                    end = "    return %11 %7\n";
  EXPECT_EQ(ErrorOf(Loop("", kCounter, send + recv + end)), "");
  EXPECT_EQ(
      ErrorOf(Loop("", kCounter, recv + send + end)),
      "rank 1 waits in %11 recv from rank 0 on channel 1, rank 0 goes to %11 recv from rank 3 on channel 1 first");
  EXPECT_EQ(ErrorOf(Loop("", kCounter, send + "    return %6 %7\n")),
            "rank 0 sends in %10 send to rank 1 on channel 1, rank 1 ends without receiving it");
  EXPECT_EQ(ErrorOf(Loop("  %20 = send %0 " + ring, kCounter, recv + end)),
            "part main, %11 recv: shares channel 1 with %20 of part main, which is not in the same region");
  // Around it, the loop is a call of its ranks.
  const std::string reduce =
      "    %10 f32[2] = all_reduce %6 fold=add groups=[[0,1,2,3]] channel=1\n    return %10 %7\n";
  const std::string first = "  %20 f32[2] = recv pairs=[[4,0],[0,1],[1,2],[2,3]] channel=5\n";
  const std::string then =
      "part other on [4]\n  argument %0 f32[2]\n  %1 = send %0 pairs=[[4,0]] channel=5\n  return\n";
  EXPECT_EQ(ErrorOf(Loop(first, kCounter, reduce) + then),
            "rank 1 waits in %20 recv from rank 0 on channel 5, rank 0 goes to %2 while on {0,1,2,3} first");
  const std::string pass_on = "  %21 = send %0 pairs=[[0,1],[1,2],[2,3]] channel=5\n";
  EXPECT_EQ(ErrorOf(Loop(pass_on + first, kCounter, reduce) + then), "");
}

// A stage of a pipeline: a loop with a counter from 0 that communicates with another part.
std::string Stage(const std::string& name, const std::string& ranks, int rounds, const std::string& body) {
  return "part " + name + " on " + ranks + "\n  argument %0 f32[2]\n  %1 i32[] = constant value=0\n" +
         "  %2 f32[2], %3 i32[] = while %0 %1\n  cond\n    argument %4 f32[2]\n    argument %5 i32[]\n" +
         "    %20 i32[] = constant value=" + std::to_string(rounds) + "\n    %21 i1[] = compare %5 %20 direction=LT\n" +
         "    return %21\n  body\n    argument %6 f32[2]\n    argument %7 i32[]\n    %22 i32[] = constant value=1\n" +
         "    %23 i32[] = add %7 %22\n" + body + "  return\n";
}

TEST(CheckCommunicationTest, LoopsOfSeveralParts) {
  const std::string pairs = "pairs=[[0,2],[1,3]] channel=1\n", back = "pairs=[[2,0],[3,1]] channel=1\n";
  const std::string reduce = "    %30 f32[2] = all_reduce %6 fold=add groups=[[0,1],[2,3]] channel=7\n";
  const std::string send = reduce + "    %10 = send %30 " + pairs + "    return %30 %23\n";
  const std::string recv = "    %10 f32[2] = recv " + pairs + "    return %10 %23\n";
  const std::string both = "    %10 = send %6 " + pairs + "    %11 f32[2] = recv " + back + "    return %11 %23\n";
  const std::string other = "    %11 f32[2] = recv " + pairs + "    %10 = send %11 " + back + "    return %11 %23\n";
  const std::string first = "    %10 f32[2] = recv " + back + "    %11 = send %6 " + pairs + "    return %10 %23\n";
  const auto parts = [](const std::string& a, const std::string& b) { return ErrorOf(a + b); };
  const auto a = [](int rounds, const std::string& body) { return Stage("a", "[0,1]", rounds, body); };
  const auto b = [](int rounds, const std::string& body) { return Stage("b", "[2,3]", rounds, body); };
  EXPECT_EQ(parts(a(8, send), b(8, recv)), "");
  EXPECT_EQ(parts(a(0, send), b(0, recv)), "");
  EXPECT_EQ(parts(a(8, both), b(8, other)), "");
  EXPECT_EQ(parts(a(8, send), b(7, recv)),
            "rank 0 sends in %10 send to rank 2 on channel 1, rank 2 ends without receiving it");
  EXPECT_EQ(parts(a(7, send), b(8, recv)), "rank 2 waits in %10 recv from rank 0 on channel 1, rank 0 ends without it");
  EXPECT_EQ(parts(a(8, first), b(8, other)),
            "rank 2 waits in %11 recv from rank 0 on channel 1, rank 0 goes to %10 recv from rank 2 on channel 1 "
            "first");
  // Two rounds, or each by itself.
  const std::string twice = "  %1 f32[2] = recv " + pairs + "  %2 f32[2] = recv " + pairs;
  EXPECT_EQ(parts(a(2, send), PartOf("b", "[2,3]", twice)), "");
  EXPECT_EQ(parts(a(3, send), PartOf("b", "[2,3]", twice)),
            "rank 0 sends in %10 send to rank 2 on channel 1, rank 2 ends without receiving it");
  const std::string refused =
      "ranks of other parts communicate in it, which they may only in the body of a loop whose "
      "number of rounds follows from constants";
  std::string unknown = a(8, send);
  unknown.replace(unknown.find("add %7 %22"), 10, "add %7 %7");
  EXPECT_EQ(parts(unknown, b(8, recv)), "part a, %2 while: " + refused);
  EXPECT_EQ(parts(PartOf("a", "[0,1]",
                         "  %1 i1[] = constant value=true\n  %2 = if %1\n  then\n    %3 = send %0 " + pairs +
                             "    return\n  else\n    return\n"),
                  PartOf("b", "[2,3]", "  %1 f32[2] = recv " + pairs)),
            "part a, %2 if: " + refused);
  EXPECT_EQ(parts(a(1000000000, send), b(1000000000, recv)),
            "part a, %2 while: has 1000000000 rounds with ranks of other parts, which are too many to check");
}

// ---- size ----

// 1,024 ranks in one part and in two, 2,500 calls on groups of all ranks and of two ranks.
TEST(CheckCommunicationTest, LargeProgramsTakeSeconds) {
  constexpr int kRanks = 1024, kCalls = 2500;
  std::string all = "[[0", across = "[";
  for (int rank = 1; rank < kRanks; ++rank) all += "," + std::to_string(rank);
  all += "]]";
  for (int rank = 0; rank < kRanks / 2; ++rank)
    across += (rank == 0 ? "[" : ",[") + std::to_string(rank) + "," + std::to_string(rank + kRanks / 2) + "]";
  across += "]";
  Program program = Parse(
                        "axccl-program 1\nranks 1024\npart a on [0]\n  argument %0 f32[2]\n"
                        "  %1 f32[2] = all_reduce %0 fold=add groups=" +
                        all +
                        " channel=1\n"
                        "  %2 f32[2] = all_reduce %0 fold=add groups=" +
                        across + " channel=1\n  return\n")
                        .value();
  Part& part = program.parts[0];
  std::vector<Operation>& operations = part.function.operations;
  const std::vector<Operation> pair = operations;
  for (int call = 2; call < kCalls; ++call) {
    operations.push_back(pair[static_cast<size_t>(call % 2)]);
    operations.back().id = operations.back().results[0].id = static_cast<Id>(call + 1);
  }
  part.ranks.clear();
  for (int rank = 0; rank < kRanks; ++rank) part.ranks.push_back(rank);
  for (const bool split : {false, true}) {
    if (split) {
      program.parts.push_back(program.parts[0]);
      program.parts[1].function.name = "b";
      program.parts[0].ranks.resize(kRanks / 2);
      program.parts[1].ranks.erase(program.parts[1].ranks.begin(), program.parts[1].ranks.begin() + kRanks / 2);
    }
    const auto begin = std::chrono::steady_clock::now();
    const Status checked = Check(program);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    EXPECT_TRUE(checked.ok()) << checked.message();
    EXPECT_LT(took.count(), 30) << split;  // it takes less than half a second
  }
}

}  // namespace
}  // namespace axccl::program
