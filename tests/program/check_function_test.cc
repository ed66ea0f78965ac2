// Collectives, control flow and lifetimes: what is accepted, and what is refused with which words.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "src/program/check.h"
#include "src/program/text.h"
#include "tests/harness/random.h"
#include "tests/program/random_program.h"

namespace axccl::program {
namespace {

// What Check says of these lines as the part of ranks 0 and 1, where nothing happens on ranks 2 and 3.
std::string ErrorOf(const std::string& lines) {
  const Result<Program> program =
      Parse("axccl-program 1\nranks 5\npart main on [0,1]\n" + lines + "part other on [2,3]\n  return\n");
  if (!program.ok()) return "does not parse: " + std::string(program.status().message());
  return std::string(Check(program.value()).message());
}

struct Case {
  const char* lines;
  const char* error;  // words of it; "": accepted
};

void Expect(const std::string& before, const std::vector<Case>& cases) {
  for (const Case& test : cases) {
    const std::string error = ErrorOf(before + test.lines);
    if (test.error[0] == '\0') {
      EXPECT_EQ(error, "") << test.lines;
    } else {
      EXPECT_NE(error.find(test.error), error.npos) << test.lines << test.error << "\n" << error;
    }
  }
}

// ---- collectives ----

TEST(CheckCollectivesTest, AllGather) {
  Expect(
      "  argument %0 f32[2,3]\n  argument %1 i1[2,2]\n",
      {
          {"  %2 f32[2,6] = all_gather %0 dim=1 groups=[[1,0]] channel=1\n  return\n", ""},
          {"  %2 f32[2,3] = all_gather %0 dim=1 groups=[[0],[1]] channel=1\n  return\n", ""},
          {"  %2 f32[4,3], %3 i1[4,2] = all_gather %0 %1 dim=0 groups=[[0,1],[2,3]] channel=1\n  return\n", ""},
          {"  %2 f32[2,3] = all_gather %0 dim=2 groups=[[0],[1]] channel=1\n  return\n", "[StableHLO all_gather (C1)]"},
          {"  %2 f32[2,9] = all_gather %0 dim=1 groups=[[0,1,0]] channel=1\n  return\n", "[StableHLO all_gather (C2)]"},
          {"  %2 f32[2,3] = all_gather %0 dim=1 groups=[[0],[0]] channel=1\n  return\n", "[StableHLO all_gather (C2)]"},
          {"  %2 f32[2,3] = all_gather %0 dim=1 groups=[[0]] channel=1\n  return\n",
           "part main, %2 all_gather: rank 1 of the part is in no group [StableHLO all_gather (C3)]"},
          {"  %2 f32[2,6] = all_gather %0 dim=1 groups=[[0,1],[2]] channel=1\n  return\n",
           "[StableHLO all_gather (I3)]"},
          {"  %2 f32[4,2] = all_gather %0 dim=0 groups=[[0,1]] channel=1\n  return\n",
           "result %2 has type f32[4,2], expected f32[4,3] [StableHLO all_gather (C6)]"},
          {"  %2 f64[4,3] = all_gather %0 dim=0 groups=[[0,1]] channel=1\n  return\n", "[StableHLO all_gather (C6)]"},
          {"  %2 f32[4,3], %3 i1[2,2] = all_gather %0 %1 dim=0 groups=[[0,1]] channel=1\n  return\n",
           "result %3 has type"},
          {"  %2 f32[2,9] = all_gather %0 dim=1 groups=[[0,1,4]] channel=1\n  return\n", "rank 4 is in no part"},
          {"  %2 f32[2,9] = all_gather %0 dim=1 groups=[[0,1,2]] channel=1\n  return\n",
           "rank 0 waits in %2 all_gather on {0,1,2} (dim=1 channel=1 f32[2,9]), rank 2 ends without it"},
      });
}

TEST(CheckCollectivesTest, AllReduce) {
  Expect("  argument %0 f32[2]\n  argument %1 i1[2]\n",
         {
             {"  %2 f32[2] = all_reduce %0 fold=max groups=[[0],[1]] channel=1\n  return\n", ""},
             {"  %2 i1[2], %3 i1[2] = all_reduce %1 %1 fold=xor groups=[[0,1],[4]] channel=1\n  return\n", ""},
             {"  %2 f32[2] = all_reduce %0 fold=max groups=[[0,1],[0]] channel=1\n  return\n",
              "[StableHLO all_reduce (C1)]"},
             {"  %2 f32[2] = all_reduce %0 fold=max groups=[[1]] channel=1\n  return\n", "[StableHLO all_reduce (C2)]"},
             {"  %2 f32[2], %3 i1[2] = all_reduce %0 %1 fold=xor groups=[[0,1]] channel=1\n  return\n",
              "elements of type f32 have no fold=xor [StableHLO all_reduce (C5)]"},
             {"  %2 f32[2], %3 i1[2] = all_reduce %0 %1 fold=max groups=[[0,1]] channel=1\n  return\n",
              "elements of type f32 [StableHLO all_reduce (C5)]"},
             {"  %2 f32[3] = all_reduce %0 fold=add groups=[[0,1]] channel=1\n  return\n",
              "[StableHLO all_reduce (C6) (C7)]"},
             {"  %2 f64[2] = all_reduce %0 fold=add groups=[[0,1]] channel=1\n  return\n",
              "[StableHLO all_reduce (C6) (C7)]"},
         });
}

TEST(CheckCollectivesTest, ReduceScatterAndAllToAll) {
  Expect("  argument %0 f32[4,3]\n  argument %1 i1[2,2]\n",
         {
             {"  %2 f32[2,3] = reduce_scatter %0 fold=add dim=0 groups=[[0,1]] channel=1\n  return\n", ""},
             {"  %2 f32[4,1] = reduce_scatter %0 fold=add dim=1 groups=[[0,1]] channel=1\n  return\n",
              "the size 3 of dimension 1 cannot be divided among 2 ranks [StableHLO reduce_scatter (C1)]"},
             {"  %2 f32[2,3] = reduce_scatter %0 fold=add dim=2 groups=[[0,1]] channel=1\n  return\n",
              "reduce_scatter (C2)]"},
             {"  %2 f32[2,3] = reduce_scatter %0 fold=add dim=0 groups=[[1,1]] channel=1\n  return\n",
              "reduce_scatter (C3)]"},
             {"  %2 f32[2,3] = reduce_scatter %0 fold=add dim=0 groups=[[1,2]] channel=1\n  return\n",
              "reduce_scatter (C4)]"},
             {"  %2 f32[2,3] = reduce_scatter %0 fold=and dim=0 groups=[[0,1]] channel=1\n  return\n",
              "reduce_scatter (C7)]"},
             {"  %2 f32[4,3] = reduce_scatter %0 fold=add dim=0 groups=[[0,1]] channel=1\n  return\n",
              "reduce_scatter (C8)"},
             {"  %2 f32[2,3] = reduce_scatter %0 fold=add dim=0 groups=[[0,1],[2]] channel=1\n  return\n",
              "reduce_scatter (I3)]"},
             {"  %2 f32[2,6] = all_to_all %0 split_dim=0 concat_dim=1 groups=[[0,1]] channel=1\n  return\n", ""},
             {"  %2 f32[4,3] = all_to_all %0 split_dim=0 concat_dim=0 groups=[[0,1]] channel=1\n  return\n", ""},
             {"  %2 f32[2,6] = all_to_all %0 split_dim=2 concat_dim=1 groups=[[0,1]] channel=1\n  return\n",
              "all_to_all (C1)]"},
             {"  %2 f32[8,1] = all_to_all %0 split_dim=1 concat_dim=0 groups=[[0,1]] channel=1\n  return\n",
              "all_to_all (C2)]"},
             {"  %2 f32[2,6] = all_to_all %0 split_dim=0 concat_dim=2 groups=[[0,1]] channel=1\n  return\n",
              "all_to_all (C3)]"},
             {"  %2 f32[2,6] = all_to_all %0 split_dim=0 concat_dim=1 groups=[[0,0]] channel=1\n  return\n",
              "all_to_all (C5)]"},
             {"  %2 f32[2,6] = all_to_all %0 split_dim=0 concat_dim=1 groups=[[0,2]] channel=1\n  return\n",
              "all_to_all (C6)]"},
             {"  %2 f32[2,6] = all_to_all %0 split_dim=0 concat_dim=1 groups=[[0,1],[2]] channel=1\n  return\n",
              "all_to_all (C8)]"},
             {"  %2 f32[2,3] = all_to_all %0 split_dim=0 concat_dim=1 groups=[[0,1]] channel=1\n  return\n",
              "all_to_all (C9)]"},
         });
}

TEST(CheckCollectivesTest, OtherCommunication) {
  Expect(
      "  argument %0 f32[2]\n",
      {
          {"  %2 f32[2] = collective_broadcast %0 groups=[[1]] channel=1\n  return\n", ""},
          {"  %2 f32[2] = collective_broadcast %0 groups=[[0],[1,0]] channel=1\n  return\n",
           "collective_broadcast (C1)]"},
          {"  %2 f32[3] = collective_broadcast %0 groups=[[1,0]] channel=1\n  return\n", "collective_broadcast (C3)]"},
          {"  %2 f32[2], %3 f32[3] = collective_broadcast %0 %0 groups=[[1,0]] channel=1\n  return\n",
           "result %3 has type f32[3], expected f32[2] [StableHLO collective_broadcast (C3)]"},
          {"  %1 i32[1] = constant value=0\n  %2 f32[2] = collective_broadcast_from %0 %1 groups=[[1]] channel=1\n  "
           "return\n",
           ""},
          {"  %1 i32[2] = constant value=0\n  %2 f32[2] = collective_broadcast_from %0 %1 groups=[[1]] channel=1\n  "
           "return\n",
           "operand %1 has type i32[2], expected i32[1] [StableHLO collective_broadcast (C4)]"},
          {"  %1 i64[1] = constant value=0\n  %2 f32[2] = collective_broadcast_from %0 %1 groups=[[1]] channel=1\n  "
           "return\n",
           "collective_broadcast (C4)]"},
          {"  %2 f32[2] = collective_reduce %0 fold=add groups=[[1]] channel=1\n  return\n", ""},
          {"  %2 f32[2] = collective_reduce %0 fold=add groups=[[1],[0,1]] channel=1\n  return\n",
           "collective_reduce (C1)]"},
          {"  %2 f32[2] = collective_reduce %0 fold=xor groups=[[1]] channel=1\n  return\n", "collective_reduce (C5)]"},
          {"  %2 f64[2] = collective_reduce %0 fold=add groups=[[1]] channel=1\n  return\n",
           "result %2 has type f64[2], expected f32[2]"},
          {"  %1 i32[1] = constant value=0\n  %2 f32[2] = collective_reduce_to %0 %1 fold=min groups=[[0,1]] "
           "channel=1\n  return\n",
           ""},
          {"  %1 i32[] = constant value=0\n  %2 f32[2] = collective_reduce_to %0 %1 fold=min groups=[[0,1]] "
           "channel=1\n  return\n",
           "operand %1 has type i32[], expected i32[1]"},
          {"  %2 f32[2] = collective_permute %0 pairs=[[0,1],[1,0]] channel=1\n  return\n", ""},
          {"  %2 f32[2] = collective_permute %0 pairs=[] channel=1\n  return\n", ""},
          {"  %2 f32[2] = collective_permute %0 pairs=[[0,1],[0,0]] channel=1\n  return\n", "collective_permute (C2)]"},
          {"  %2 f32[2] = collective_permute %0 pairs=[[0,1],[1,1]] channel=1\n  return\n",
           "rank 1 is the target of two pairs [StableHLO collective_permute (C3)]"},
          {"  %2 f64[2] = collective_permute %0 pairs=[[0,1]] channel=1\n  return\n", "collective_permute (C5)]"},
          {"  %2 u32[] = partition_id\n  return\n", ""},
          {"  %2 i32[] = partition_id\n  return\n", "result %2 has type i32[], expected u32[]"},
          {"  %2 u32[] = replica_id\n  return\n", ""},
          {"  %2 u32[1] = replica_id\n  return\n", "result %2 has type u32[1], expected u32[]"},
          {"  %2 = send %0 pairs=[[0,1],[1,0]] channel=1\n  %3 f32[2] = recv pairs=[[0,1],[1,0]] channel=1\n  return\n",
           ""},
          {"  %2 = send %0 pairs=[[2,1],[3,0]] channel=1\n  return\n", "no rank of the part is the source of a pair"},
          {"  %2 = send %0 pairs=[[0,1],[0,2]] channel=1\n  return\n", "[StableHLO send (C2)]"},
          {"  %2 = send %0 pairs=[[0,1],[1,1]] channel=1\n  return\n", "[StableHLO send (C3)]"},
          {"  %2 = send %0 pairs=[[0,4]] channel=1\n  return\n", "%2 send: rank 4 is in no part"},
          {"  %2 f32[2] = recv pairs=[[0,1]] channel=1\n  return\n", "rank 0 of the part is the target of no pair"},
          {"  %2 f32[2] = recv pairs=[[0,1],[0,0]] channel=1\n  return\n", "[StableHLO recv (C2)]"},
          {"  %2 f32[2] = recv pairs=[[0,1],[2,1]] channel=1\n  return\n", "[StableHLO recv (C3)]"},
      });
}

// Texts have no such ranks.
TEST(CheckCollectivesTest, RanksThatTheProgramDoesNotHave) {
  Program program = Parse(
                        "axccl-program 1\nranks 2\npart main on [0,1]\n  argument %0 f32[2]\n"
                        "  %1 f32[2] = all_reduce %0 fold=add groups=[[0,1]] channel=1\n"
                        "  %2 f32[2] = collective_permute %1 pairs=[[0,1]] channel=1\n  return %2\n")
                        .value();
  ASSERT_TRUE(Check(program).ok());
  for (const int64_t rank : {int64_t{-1}, int64_t{2}, INT64_MIN, INT64_MAX}) {
    for (const size_t operation : {0, 1}) {
      Program wrong = program;
      std::get<Groups>(wrong.parts[0].function.operations[operation].attributes[1 - operation].value)[0][1] = rank;
      const std::string error(Check(wrong).message());
      EXPECT_NE(error.find(operation == 0 ? "all_reduce (C3)]" : "collective_permute (C4)]"), error.npos) << error;
    }
  }
}

// ---- control flow ----

TEST(CheckControlTest, If) {
  Expect(
      "  argument %0 i1[]\n  argument %1 f32[2]\n",
      {
          {"  %2 f32[2] = if %0\n  then\n    return %1\n  else\n    return %1\n  return %2\n", ""},
          {"  %2 = if %0\n  then\n    return\n  else\n    return\n  return\n", ""},
          {"  %2 = if %1\n  then\n    return\n  else\n    return\n  return\n", "expected i1[] [StableHLO if (I1)]"},
          {"  %2 = if %0\n  then\n    argument %3 i1[]\n    return\n  else\n    return\n  return\n",
           "[StableHLO if (C1)]"},
          {"  %2 = if %0\n  then\n    return\n  else\n    argument %3 i1[]\n    return\n  return\n",
           "[StableHLO if (C1)]"},
          {"  %2 f32[2] = if %0\n  then\n    return %1\n  else\n    return %0\n  return\n", "[StableHLO if (C2) (C3)]"},
          {"  %2 f32[2] = if %0\n  then\n    return %1\n  else\n    return\n  return\n", "[StableHLO if (C2) (C3)]"},
          {"  %2 f32[3] = if %0\n  then\n    return %1\n  else\n    return %1\n  return\n", "[StableHLO if (C3)]"},
          {"  %2 = if %0\n  then\n    %3 f32[2] = abs %0\n    return\n  else\n    return\n  return\n",
           "%3 abs: operand %0"},
          {"  %2 = if %0\n  then\n    return\n  else\n    %3 f32[2] = abs %0\n    return\n  return\n",
           "%3 abs: operand %0"},
      });
}

TEST(CheckControlTest, While) {
  const std::string before = "  argument %0 i32[]\n  argument %1 i1[]\n";
  const std::string good =
      "  %2 i32[] = while %0\n  cond\n    argument %3 i32[]\n    return %1\n"
      "  body\n    argument %4 i32[]\n    return %4\n  return %2\n";
  struct Change {
    const char *old, *replacement, *error;
  };
  EXPECT_EQ(ErrorOf(before + good), "");
  for (const Change& change : std::vector<Change>{
           {"%3 i32[]", "%3 i64[]",
            "the arguments of cond have type i64[] at 0, expected i32[] [StableHLO while (C1)]"},
           {"    argument %3 i32[]\n", "", "the arguments of cond are 0, expected 1 [StableHLO while (C1)]"},
           {"return %1", "return %3", "the results of cond have type i32[] at 0, expected i1[] [StableHLO while (C1)]"},
           {"return %1", "return %1 %1", "[StableHLO while (C1)]"},
           {"return %1", "return", "[StableHLO while (C1)]"},
           {"%4 i32[]", "%4 u32[]",
            "the arguments of body have type u32[] at 0, expected i32[] [StableHLO while (C2)]"},
           {"return %4", "return %1", "the results of body have type i1[] at 0, expected i32[] [StableHLO while (C2)]"},
           {"return %4", "return", "[StableHLO while (C2)]"},
           {"%2 i32[] =", "%2 i64[] =", "result %2 has type i64[], expected i32[] [StableHLO while (C3)]"},
       }) {
    std::string text = good;
    text.replace(text.find(change.old), std::string(change.old).size(), change.replacement);
    const std::string error = ErrorOf(before + text);
    EXPECT_NE(error.find(change.error), error.npos) << text << change.error << "\n" << error;
  }
}

// ---- free ----

TEST(CheckFreesTest, Lifetimes) {
  Expect(
      "  argument %0 f32[2] donated\n  argument %1 f32[2]\n  argument %2 i1[]\n  %3 f32[2] = abs %0\n",
      {
          {"  %4 = free %3 %0\n  return %1\n", ""},
          {"  %4 f32[2] = abs %3\n  %5 = free %3\n  return %4\n", ""},
          {"  %4 = free %1\n  return\n", "part main, %4 free: frees %1, an argument that is not donated"},
          {"  %4 = free %3 %3\n  return\n", "%4 free: frees %3, which %4 has freed"},
          {"  %4 = free %3\n  %5 = free %3\n  return\n", "%5 free: frees %3, which %4 has freed"},
          {"  %4 = free %3\n  %5 f32[2] = abs %3\n  return\n", "%5 abs: uses %3, which %4 has freed"},
          {"  %4 = free %0\n  return %0\n", "%4 free: frees %0, which the part returns"},
          {"  %4 = free %3\n  %5 = if %2\n  then\n    %6 f32[2] = abs %3\n    return\n  else\n    return\n  return\n",
           "%6 abs: uses %3, which %4 has freed"},
          {"  %4 = free %3\n  %5 f32[2] = if %2\n  then\n    return %3\n  else\n    return %1\n  return\n",
           "%5 if: then returns %3, which %4 has freed"},
          {"  %5 = if %2\n  then\n    %6 = free %3\n    return\n  else\n    return\n  return\n",
           "%6 free: frees %3, which is from outside of the region"},
          {"  %5 = if %2\n  then\n    %6 f32[2] = abs %1\n    %7 = free %6\n    return\n  else\n    return\n  return\n",
           ""},
          {"  %5 f32[2] = if %2\n  then\n    %6 f32[2] = abs %1\n    %7 = free %6\n    return %6\n  else\n    return "
           "%1\n"
           "  return\n",
           "%5 if: then returns %6, which %7 has freed"},
          {"  %5 f32[2] = while %1\n  cond\n    argument %6 f32[2]\n    return %2\n  body\n    argument %7 f32[2]\n"
           "    %8 f32[2] = abs %7\n    %9 = free %7\n    return %8\n  return\n",
           "%9 free: frees %7, an argument that is not donated"},
          {"  %5 f32[2] = while %1\n  cond\n    argument %6 f32[2]\n    return %2\n  body\n    argument %7 f32[2]\n"
           "    %8 f32[2] = abs %7\n    %9 f32[2] = abs %8\n    %10 = free %8\n    return %9\n  %11 = free %5\n  "
           "return\n",
           ""},
      });
}

// ---- any program ----

TEST(CheckTest, AcceptsAnyWellFormedProgram) {
  harness::Random random(harness::Seed());
  size_t refused = 0;
  for (int i = 0; i < 5000; ++i) {
    const Program program = RandomProgram(&random);
    const Status types = CheckTypes(program), frees = CheckFrees(program);
    refused += Check(program).ok() ? 0 : 1;
    EXPECT_TRUE(types.ok() || !types.message().empty());
  }
  EXPECT_GT(refused, 4000u) << "seed " << harness::Seed();
}

}  // namespace
}  // namespace axccl::program
