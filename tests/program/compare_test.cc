// Which operation differs first, of ranks that are threads of this process; and of those of a job, which agree.
#include "tools/axccl-program/compare.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "src/program/reference.h"
#include "src/program/text.h"
#include "tools/axccl-program/agreed_run.h"
#include "tools/axccl-program/inputs.h"
#include "tools/axccl-program/run.h"

namespace axccl::tools {
namespace {

using program::Operation;
using program::OpKind;
using program::Program;
using program::Tensor;
using program::Tensors;
using program::TensorSpan;

using Places = std::vector<std::optional<Place>>;

TEST(FirstOf, OfAPartTheLeastIndexThenTheLowestRank) {
  EXPECT_EQ(FirstOf({}), std::nullopt);
  EXPECT_EQ(FirstOf({std::nullopt, std::nullopt}), std::nullopt);
  EXPECT_EQ(FirstOf({std::nullopt, Place{0, 7, 1}}), 1u);
  EXPECT_EQ(FirstOf({Place{0, 7, 1}, Place{0, 6, 2}, Place{0, 6, 0}}), 1u) << "the reference's order does not matter";
}

TEST(FirstOf, OfPartsThatWhichTheReferenceComesToFirst) {
  EXPECT_EQ(FirstOf(Places{Place{0, 9, 4}, Place{1, 2, 5}}), 0u);
  EXPECT_EQ(FirstOf(Places{Place{1, 9, 5}, Place{0, 2, 4}}), 1u);
  EXPECT_EQ(FirstOf(Places{Place{0, 3, 9}, Place{0, 4, 1}, Place{1, 0, 5}}), 2u) << "rank 0 is first of its part";
}

// Ranks add up their numbers, and take the root of the sum in a loop.
constexpr char kLoop[] =
    "axccl-program 1\nranks 3\npart main on [0,1,2]\n  argument %0 f32[2]\n  %1 u32[] = partition_id\n"
    "  %2 f32[] = convert %1\n  %3 f32[2] = broadcast_in_dim %2 dims=[]\n  %4 f32[2] = add %0 %3\n"
    "  %5 f32[2] = all_reduce %4 fold=add groups=[[0,1,2]] channel=1\n  %6 i32[] = constant value=0\n"
    "  %7 i32[], %8 f32[2] = while %6 %5\n  cond\n    argument %9 i32[]\n    argument %10 f32[2]\n"
    "    %11 i32[] = constant value=3\n    %12 i1[] = compare %9 %11 direction=LT\n    return %12\n"
    "  body\n    argument %13 i32[]\n    argument %14 f32[2]\n    %15 i32[] = constant value=1\n"
    "    %16 i32[] = add %13 %15\n    %17 f32[2] = abs %14\n    return %16 %17\n  return %8 %4\n";

float& At(Tensor* tensor, int64_t i) { return *reinterpret_cast<float*>(tensor->at(i)); }

// What an operation gives on the rank that it is made to differ on: rank 2 knows itself by its number.
Tensor DifferOnRankTwo(const Operation& operation, TensorSpan operands) {
  Tensor result = program::ComputeLocal(operation, operands);
  if (operation.kind == OpKind::kConvert && At(&result, 0) == 2) At(&result, 0) = 7;
  return result;
}

// The verdict of ranks that compare together, which must be the same on all of them.
std::string VerdictOf(const std::string& text, decltype(RunOptions::local) local, double tolerance = 0) {
  const Program program = program::Parse(text).value();
  const std::vector<Tensors> inputs = RandomInputs(program, 5);
  Comparison comparison(&program, &inputs, tolerance);
  comparison.here = {0, program.ranks};
  comparison.against = "reference";
  comparison.expected = program::RunReference(program, inputs).value();
  std::vector<std::string> verdicts;
  const Start start = [&](int ranks, const MakeTask& make) {
    Result<std::vector<RankResult>> results = RunRanksOnThreads(ranks, make);
    for (const RankResult& result : results.value()) verdicts.push_back(result.verdict);
    return results;
  };
  RunOptions options;
  options.local = std::move(local);
  options.comparison = &comparison;
  RunReport report;
  const Result<std::vector<Tensors>> outputs = RunBy(start, program, inputs, &report, options);
  EXPECT_TRUE(outputs.ok()) << outputs.status().message();
  for (const std::string& verdict : verdicts) EXPECT_EQ(verdict, report.verdict);
  return report.verdict;
}

TEST(AgreedRun, SaysNothingOfWhatIsRight) { EXPECT_EQ(VerdictOf(kLoop, program::ComputeLocal), ""); }

TEST(AgreedRun, NamesRankOperationElementAndValues) {
  const std::string verdict = VerdictOf(kLoop, DifferOnRankTwo);
  EXPECT_EQ(verdict.find("differs from reference in rank 0, output 0: element [0] is "), 0u) << verdict;
  const std::string first = "\nthe first operation that differs from the reference: ";
  ASSERT_NE(verdict.find(first), std::string::npos) << verdict;
  EXPECT_EQ(verdict.substr(verdict.find(first) + first.size()), "rank 2, %2 convert: element [] is 7 instead of 2");
}

TEST(AgreedRun, ToleratesWhatTheTensorsMayDiffer) {
  const auto nearly = [](const Operation& operation, TensorSpan operands) {
    Tensor result = program::ComputeLocal(operation, operands);
    if (operation.kind == OpKind::kAbs) At(&result, 1) += 1e-4f;
    return result;
  };
  EXPECT_NE(VerdictOf(kLoop, nearly).find("rank 0, %17 abs: element [1] is "), std::string::npos);
  EXPECT_EQ(VerdictOf(kLoop, nearly, 1e-3), "");
}

// Where a value decides which operations follow, the first of others is named.
TEST(Watch, NamesAnotherOperation) {
  const Program program = program::Parse(kLoop).value();
  const std::vector<Tensors> inputs = RandomInputs(program, 5);
  Watch watch(&program, &inputs, 0);
  ASSERT_TRUE(watch.Begin(1, {1, 1}).ok());
  const program::Observer see = watch.observer();
  const Operation& first = program.parts[0].function.operations[0];
  const Operation& second = program.parts[0].function.operations[1];
  see(0, second, 0, Tensor());  // of a rank that is not watched
  EXPECT_FALSE(watch.Of(0).has_value());
  see(1, first, 0, Tensor::Of(1u));
  EXPECT_FALSE(watch.Of(1).has_value());
  see(1, first, 0, Tensor::Of(1u));
  ASSERT_TRUE(watch.Of(1).has_value());
  EXPECT_EQ(watch.Of(1)->text, "rank 1, %1 partition_id: another operation comes before it");
  EXPECT_EQ(watch.Of(1)->place.index, 1u);
  see(1, second, 0, Tensor::Of(2u));
  EXPECT_EQ(watch.Of(1)->place.index, 1u) << "the first one stays";
}

}  // namespace
}  // namespace axccl::tools
