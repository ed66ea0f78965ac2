// What loops and branches depend on.
#include "src/program/control.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "src/program/text.h"

namespace axccl::program {
namespace {

std::set<Id> Needed(const std::string& body) {
  const Result<Program> program = Parse("axccl-program 1\nranks 1\npart main on [0]\n" + body);
  EXPECT_TRUE(program.ok()) << program.status().message();
  if (!program.ok()) return {};
  const auto needed = ControlValues(program.value().parts[0].function);
  return {needed.begin(), needed.end()};
}

TEST(Control, NeedsNothingWithoutLoopsAndBranches) {
  EXPECT_EQ(Needed("  argument %0 i8[]\n  %1 i8[] = add %0 %0\n  return %1\n"), std::set<Id>{});
}

// The counter, not the sum that is carried beside it.
TEST(Control, OfALoopIsItsCounter) {
  EXPECT_EQ(Needed("  argument %0 f32[]\n  %1 i32[] = constant value=0\n  %2 i32[], %3 f32[] = while %1 %0\n  cond\n"
                   "    argument %4 i32[]\n    argument %5 f32[]\n    %6 i32[] = constant value=9\n"
                   "    %7 i1[] = compare %4 %6 direction=LT\n    return %7\n  body\n    argument %8 i32[]\n"
                   "    argument %9 f32[]\n    %10 i32[] = constant value=1\n    %11 i32[] = add %8 %10\n"
                   "    %12 f32[] = add %9 %9\n    return %11 %12\n  return %3\n"),
            (std::set<Id>{1, 2, 4, 6, 7, 8, 10, 11}));
}

// A value becomes the condition only after two rounds.
TEST(Control, FollowsValuesAroundALoop) {
  EXPECT_EQ(
      Needed(
          "  argument %0 i1[]\n  argument %1 i1[]\n  argument %2 i1[]\n  %3 i1[], %4 i1[], %5 i1[] = while %0 %1 %2\n"
          "  cond\n    argument %6 i1[]\n    argument %7 i1[]\n    argument %8 i1[]\n    return %6\n  body\n"
          "    argument %9 i1[]\n    argument %10 i1[]\n    argument %11 i1[]\n    return %10 %11 %11\n  return\n"),
      (std::set<Id>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}));
}

TEST(Control, OfABranchIsItsPredicateAndWhatItGivesOn) {
  EXPECT_EQ(Needed("  argument %0 i1[]\n  argument %1 i1[]\n  argument %2 f32[]\n  %3 i1[], %4 f32[] = if %0\n  then\n"
                   "    %5 i1[] = not %1\n    return %5 %2\n  else\n    return %1 %2\n  %6 f32[] = if %3\n  then\n    "
                   "return %2\n"
                   "  else\n    return %4\n  return %6\n"),
            (std::set<Id>{0, 1, 3, 5}));
}

}  // namespace
}  // namespace axccl::program
