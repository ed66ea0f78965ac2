// When values are used for the last time.
#include "src/program/liveness.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "src/program/text.h"

namespace axccl::program {
namespace {

// "1: 0 2;" for each operation after which something is dropped, in order, regions included.
void Append(const Function& function, const Liveness& liveness, std::string* text) {
  const auto add = [&](const std::string& where, std::span<const Id> dropped) {
    std::vector<Id> ids(dropped.begin(), dropped.end());
    std::sort(ids.begin(), ids.end());
    if (!ids.empty()) *text += where + ":";
    for (const Id id : ids) *text += " " + std::to_string(id);
    if (!ids.empty()) *text += ";";
  };
  add(function.name, liveness.DroppedAtOnce(function));
  for (const Operation& operation : function.operations) {
    for (const Function& region : operation.regions) Append(region, liveness, text);
    add(std::to_string(operation.id), liveness.DroppedAfter(function, operation));
  }
  add("end", liveness.DroppedAtEnd(function));
}

std::string Drops(const std::string& body) {
  const Result<Program> program = Parse("axccl-program 1\nranks 1\npart main on [0]\n" + body);
  if (!program.ok()) return std::string(program.status().message());
  const Liveness liveness(program.value());
  std::string text;
  Append(program.value().parts[0].function, liveness, &text);
  return text;
}

TEST(Liveness, EndsWithTheLastUse) {
  EXPECT_EQ(Drops("  argument %0 i8[] donated\n  argument %1 i8[] donated\n  argument %2 i8[] donated\n  %3 i8[] = add "
                  "%0 %2\n  %4 i8[] = add %0 %0\n"
                  "  %5 i8[] = add %3 %3\n  return %2 %5\n"),
            "main: 1;4: 0 4;5: 3;end: 2 5;");
}

TEST(Liveness, OfWhatARegionUsesEndsWithTheRegionsOperation) {
  EXPECT_EQ(Drops("  argument %0 i1[] donated\n  argument %1 i1[] donated\n  %2 i1[] = not %0\n  %3 i1[] = while %0\n  "
                  "cond\n    "
                  "argument %4 i1[]\n"
                  "    return %4\n  body\n    argument %5 i1[]\n    %6 i1[] = and %5 %1\n    %7 i1[] = and %6 %2\n    "
                  "return %7\n"
                  "  %8 i1[] = or %3 %2\n  return %8\n"),
            "end: 4;6: 5;7: 6;end: 7;3: 0 1;8: 2 3;end: 8;");
}

TEST(Liveness, WhatARegionReturnsOfTheFunctionAroundItStays) {
  EXPECT_EQ(
      Drops(
          "  argument %0 i1[]\n  %1 i1[] = if %0\n  then\n    return %0\n  else\n    %2 i1[] = not %0\n    return %2\n"
          "  return %0 %1 %1\n"),
      "end: 2;end: 0 1;");
}

// Their memory is the caller's.
TEST(Liveness, OfArgumentsThatAreNotDonatedEndsWithThePart) {
  EXPECT_EQ(
      Drops("  argument %0 i8[]\n  argument %1 i8[]\n  argument %2 i8[]\n  %3 i8[] = add %0 %2\n  return %2 %3\n"),
      "end: 0 1 2 3;");
}

}  // namespace
}  // namespace axccl::program
