// Communication of several ranks: what matches, what does not, and the words for it.
#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "src/program/check.h"
#include "src/program/text.h"
#include "tests/harness/folder.h"
#include "tests/harness/random.h"

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

// ---- mutations ----

// Both parts communicate with each other in each call but two, so that a change of one of them is an error.
const std::string kRight =
    "part a on [0,1]\n"
    "  argument %0 f32[4,4] donated\n"
    "  argument %1 f32[4,4]\n"
    "  %2 f32[4,4] = dot %0 %1\n"
    "  %3 f32[4,4] = all_reduce %2 fold=add groups=[[0,2],[1,3]] channel=1\n"
    "  %4 f32[8,4] = all_gather %2 dim=0 groups=[[0,2],[1,3]] channel=1\n"
    "  %5 f32[2,4] = reduce_scatter %2 fold=max dim=0 groups=[[0,2],[1,3]] channel=2\n"
    "  %6 f32[2,8] = all_to_all %2 split_dim=0 concat_dim=1 groups=[[0,2],[1,3]] channel=2\n"
    "  %7 f32[4,4] = collective_broadcast %2 groups=[[0,2],[1,3]] channel=3\n"
    "  %8 f32[4,4] = collective_permute %2 pairs=[[0,2],[2,0],[1,3],[3,1]] channel=3\n"
    "  %9 f32[4,4] = all_reduce %2 fold=min groups=[[0,1,2,3]] channel=4\n"
    "  %10 f32[4,4] = add %3 %9\n"
    "  %11 = send %10 pairs=[[0,2],[1,3]] channel=5\n"
    "  %12 f32[4,4] = multiply %8 %7\n"
    "  %13 f32[8,4] = recv pairs=[[2,0],[3,1]] channel=6\n"
    "  %14 f32[16,4] = concatenate %4 %13 dim=0\n"
    "  %15 = free %2 %3 %9\n"
    "  return %14 %12 %5 %6\n"
    "part b on [2,3]\n"
    "  argument %0 f32[4,4] donated\n"
    "  %3 f32[4,4] = all_reduce %0 fold=add groups=[[0,2],[1,3]] channel=1\n"
    "  %4 f32[8,4] = all_gather %0 dim=0 groups=[[0,2],[1,3]] channel=1\n"
    "  %5 f32[2,4] = reduce_scatter %0 fold=max dim=0 groups=[[0,2],[1,3]] channel=2\n"
    "  %6 f32[2,8] = all_to_all %0 split_dim=0 concat_dim=1 groups=[[0,2],[1,3]] channel=2\n"
    "  %7 f32[4,4] = collective_broadcast %0 groups=[[0,2],[1,3]] channel=3\n"
    "  %8 f32[4,4] = collective_permute %0 pairs=[[0,2],[2,0],[1,3],[3,1]] channel=3\n"
    "  %9 f32[4,4] = all_reduce %0 fold=min groups=[[0,1,2,3]] channel=4\n"
    "  %10 f32[4,4] = recv pairs=[[0,2],[1,3]] channel=5\n"
    "  %11 f32[4,4] = add %9 %10\n"
    "  %12 = send %4 pairs=[[2,0],[3,1]] channel=6\n"
    "  return %11 %3 %8 %7\n";

std::vector<std::string> Lines(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find('\n', at) + 1;
    lines.push_back(text.substr(at, end - at));
    at = end;
  }
  return lines;
}

std::string Join(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line;
  return text;
}

bool IsCollective(const std::string& line) {
  return line.find(" channel=") != line.npos && line.find("%11 = send") == line.npos &&
         line.find("%12 = send") == line.npos && line.find(" recv ") == line.npos;
}

// The texts that differ from the right one by one change of an operation.
std::vector<std::string> Mutations() {
  const std::vector<std::string> lines = Lines(kRight);
  std::vector<std::string> mutations;
  const auto add = [&](size_t i, const std::string& line) {
    std::vector<std::string> changed = lines;
    changed[i] = line;
    mutations.push_back(Join(changed));
  };
  const std::vector<std::pair<std::string, std::string>> replacements = {
      {"[0,2],[1,3]]", "[2,0],[1,3]]"},
      {"[0,2],[1,3]]", "[0,3],[1,2]]"},
      {"[0,2],[1,3]]", "[0,2]]"},
      {"[2,0],[3,1]]", "[3,0],[2,1]]"},
      {"[[0,1,2,3]]", "[[0,1,3,2]]"},
      {"[[0,1,2,3]]", "[[0,1],[2,3]]"},
      {"fold=add", "fold=max"},
      {"fold=max", "fold=min"},
      {"fold=min", "fold=or"},
      {" dim=0", " dim=1"},
      {"split_dim=0", "split_dim=1"},
      {"concat_dim=1", "concat_dim=0"},
      {"f32[", "f64["},
      {"f32[", "bf16["},
      {"f32[4", "f32[5"},
      {"channel=", "channel=1"},
      {"[0,2],[2,0]", "[0,2],[2,1]"},
  };
  for (size_t i = 0; i < lines.size(); ++i) {
    for (const auto& [old, replacement] : replacements) {
      const size_t at = lines[i].find(old);
      if (at == lines[i].npos) continue;
      std::string line = lines[i];
      add(i, line.replace(at, old.size(), replacement));
    }
    if (IsCollective(lines[i]) && i + 1 < lines.size() && IsCollective(lines[i + 1])) {
      std::vector<std::string> changed = lines;
      std::swap(changed[i], changed[i + 1]);
      mutations.push_back(Join(changed));
    }
  }
  // Frees too early, twice, and of what is not to be freed.
  for (const auto& [before, freed] :
       std::vector<std::pair<std::string, const char*>>{{"  %4 f32[8,4] = all_gather %2", "%2"},
                                                        {"  %10 f32[4,4] = add", "%3"},
                                                        {"  %11 = send", "%10"},
                                                        {"  %12 f32[4,4] = multiply", "%8"},
                                                        {"  %15 = free", "%9"},
                                                        {"  %15 = free", "%1"},
                                                        {"  %15 = free", "%14"},
                                                        {"  %4 f32[8,4] = all_gather %0", "%0"}}) {
    std::string text = kRight;
    mutations.push_back(text.insert(text.find(before), std::string("  %50 = free ") + freed + "\n"));
  }
  // Sends and receives that are missing or come twice.
  for (const char* begin : {"  %11 = send", "  %12 = send"}) {
    std::string text = kRight;
    const size_t at = text.find(begin), size = text.find('\n', at) + 1 - at;
    const std::string line = text.substr(at, size);
    mutations.push_back(std::string(text).erase(at, size));
    mutations.push_back(text.insert(at, "  %51" + line.substr(line.find(" ="))));
  }
  for (const char* type : {"f32[8,4]", "f32[4,4]"}) {
    std::string text = kRight;
    const size_t at = text.find(std::string(type) + " = recv"), size = text.find('\n', at) - at;
    mutations.push_back(text.replace(at, size, std::string(type) + " = constant value=0"));
  }
  return mutations;
}

TEST(CheckCommunicationTest, MutationsAreRefused) {
  ASSERT_EQ(ErrorOf(kRight), "");
  const std::vector<std::string> mutations = Mutations();
  const std::set<std::string> distinct(mutations.begin(), mutations.end());
  EXPECT_GE(distinct.size(), 150u);
  for (const std::string& text : distinct) {
    const std::string error = ErrorOf(text);
    EXPECT_NE(error, "") << text;
    EXPECT_NE(error.substr(0, 4), "does") << error;
  }
}

// ---- against all interleavings ----

// What a rank does: a collective on `ranks`, or a message of `size` floats from ranks[0] to ranks[1].
struct Step {
  char what;  // 'c', 's', 'r'
  Ints ranks;
  int channel, size;

  auto operator<=>(const Step&) const = default;
};
using Steps = std::vector<std::vector<Step>>;  // of each rank

// Whether every order in which ranks can go on ends with all messages received, and with their sizes.
class Interleavings {
 public:
  explicit Interleavings(const Steps& steps) : steps_(steps) {}
  bool AllEnd() { return Visit(std::vector<size_t>(steps_.size(), 0)); }

 private:
  // The sizes of messages before the steps `at`, of those that match `like` but for the size.
  std::vector<int> Sizes(const std::vector<size_t>& at, int64_t rank, Step like) const {
    std::vector<int> sizes;
    for (size_t i = 0; i < at[static_cast<size_t>(rank)]; ++i) {
      const Step& step = steps_[static_cast<size_t>(rank)][i];
      like.size = step.size;
      if (step == like) sizes.push_back(step.size);
    }
    return sizes;
  }

  bool Visit(const std::vector<size_t>& at) {
    if (!seen_.insert(at).second) return true;
    bool goes_on = false, is_right = true;
    for (size_t rank = 0; rank < steps_.size(); ++rank) {
      if (at[rank] == steps_[rank].size()) continue;
      std::vector<size_t> next = at;
      if (!Advance(static_cast<int64_t>(rank), &next, &is_right)) continue;
      goes_on = true;
      if (!is_right || !Visit(next)) return false;
    }
    if (goes_on) return true;
    for (size_t rank = 0; rank < steps_.size(); ++rank) {
      if (at[rank] != steps_[rank].size()) return false;
      for (const Step& step : steps_[rank]) {
        if (step.what == 's' && Sizes(at, step.ranks[0], step).size() !=
                                    Sizes(at, step.ranks[1], {'r', step.ranks, step.channel, 0}).size())
          return false;
      }
    }
    return true;
  }

  bool Advance(int64_t rank, std::vector<size_t>* next, bool* is_right) const {
    const Step& step = steps_[static_cast<size_t>(rank)][(*next)[static_cast<size_t>(rank)]];
    if (step.what == 'r') {
      const std::vector<int> sent = Sizes(*next, step.ranks[0], {'s', step.ranks, step.channel, 0});
      const size_t received = Sizes(*next, rank, step).size();
      if (sent.size() <= received) return false;
      *is_right = sent[received] == step.size;
    }
    if (step.what == 'c') {
      for (const int64_t member : step.ranks) {
        const size_t at = (*next)[static_cast<size_t>(member)];
        const auto& theirs = steps_[static_cast<size_t>(member)];
        if (at == theirs.size() || theirs[at] != step) return false;
      }
      for (const int64_t member : step.ranks) ++(*next)[static_cast<size_t>(member)];
    } else {
      ++(*next)[static_cast<size_t>(rank)];
    }
    return true;
  }

  const Steps& steps_;
  std::set<std::vector<size_t>> seen_;
};

// Steps that match, and then often some that do not.
Steps RandomSteps(harness::Random* random) {
  const auto below = [&](uint64_t bound) { return static_cast<int>(random->Below(bound)); };
  Steps steps(2 + random->Below(3));
  for (int i = 1 + below(7); i > 0; --i) {
    const int64_t a = below(steps.size()), b = (a + 1 + below(steps.size() - 1)) % static_cast<int64_t>(steps.size());
    Step step{'c', {a, b}, below(2), 1 + below(2)};
    if (random->OneIn(2)) {
      step.what = 's';
      steps[static_cast<size_t>(a)].push_back(step);
      step.what = 'r';
      steps[static_cast<size_t>(b)].push_back(step);
    } else {
      for (int64_t other = 0; other < static_cast<int64_t>(steps.size()); ++other) {
        if (other != a && other != b && random->OneIn(4)) step.ranks.push_back(other);
      }
      for (const int64_t rank : step.ranks) steps[static_cast<size_t>(rank)].push_back(step);
    }
  }
  for (int changes = below(4); changes > 0; --changes) {
    auto& list = steps[random->Below(steps.size())];
    if (list.size() < 2) continue;
    const size_t at = random->Below(list.size() - 1);
    std::swap(list[at], list[at + 1]);
    if (random->OneIn(6)) list.erase(list.begin() + static_cast<int64_t>(at));
    if (random->OneIn(6)) list[0].size = 3 - list[0].size;
  }
  return steps;
}

std::string TextOf(const Steps& steps) {
  std::string text = "axccl-program 1\nranks " + std::to_string(steps.size()) + "\n";
  for (size_t rank = 0; rank < steps.size(); ++rank) {
    text += "part rank" + std::to_string(rank) + " on [" + std::to_string(rank) + "]\n";
    text += "  argument %1 f32[1]\n  argument %2 f32[2]\n";
    int id = 10;
    for (const Step& step : steps[rank]) {
      std::string ranks;
      for (const int64_t member : step.ranks) ranks += (ranks.empty() ? "" : ",") + std::to_string(member);
      const std::string size = std::to_string(step.size), type = " f32[" + size + "]";
      text += "  %" + std::to_string(id++);
      if (step.what == 'c') text += type + " = all_reduce %" + size + " fold=add groups=[[" + ranks;
      if (step.what == 's') text += " = send %" + size + " pairs=[[" + ranks;
      if (step.what == 'r') text += type + " = recv pairs=[[" + ranks;
      text += "]] channel=" + std::to_string(step.channel) + "\n";
    }
    text += "  return\n";
  }
  return text;
}

TEST(CheckCommunicationTest, RandomProgramsEndIfAllInterleavingsDo) {
  harness::Random random(harness::Seed());
  std::map<bool, int> counts;
  for (int i = 0; i < 5000; ++i) {
    const Steps steps = RandomSteps(&random);
    const Result<Program> program = Parse(TextOf(steps));
    ASSERT_TRUE(program.ok()) << program.status().message();
    const Status checked = Check(program.value());
    const bool ends = Interleavings(steps).AllEnd();
    ASSERT_EQ(checked.ok(), ends) << checked.message() << ", seed " << harness::Seed() << "\n" << TextOf(steps);
    ++counts[ends];
  }
  EXPECT_GT(counts[true], 1000) << "seed " << harness::Seed();
  EXPECT_GT(counts[false], 1000) << "seed " << harness::Seed();
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
