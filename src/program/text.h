// The canonical text form of a program (`.axp`), and its hash. docs/program-format.md explains the form to its authors.
//
// Each program has one text, and each text one program: Parse accepts exactly what Print writes, so Print(Parse(t)) ==
// t for every text it accepts, and Parse(Print(p)) == p for every well-formed program (program.h). Lines end in '\n',
// words are separated by one space, numbers are decimal without leading zeros. What belongs to a part or a region is
// indented by two spaces more than its first line:
//
//   axccl-program 1
//   ranks 2
//   part main on [0,1]                                            name, ranks
//     argument %0 i32[]                                           id, type
//     argument %1 f32[2,3] donated
//     %2 i32[], %3 f32[2,3] = while %0 %1                         results = operation operands attributes
//     cond                                                        a region for each of the operation, in order
//       argument %4 i32[]
//       argument %5 f32[2,3]
//       %6 i32[] = constant value=8
//       %7 i1[] = compare %4 %6 direction=LT
//       return %7                                                 ends a part or region
//     body
//       argument %8 i32[]
//       argument %9 f32[2,3]
//       %10 i32[] = add %8 %8
//       %11 f32[2,3] = all_reduce %9 fold=add groups=[[0,1]] channel=1
//       return %10 %11
//     %12 = free %2                                               an operation without results has an id, too
//     return %3
//
// Functions are pure and thread-safe. Parse accepts untrusted text: it allocates in proportion to the text only, and
// what it returns is well-formed, but its types, shapes and communication are not checked.
#pragma once

#include <string>
#include <string_view>

#include "src/base/status.h"
#include "src/plan/plan.h"
#include "src/program/program.h"

namespace axccl::program {

inline constexpr int kTextVersion = 1;

// Expects a well-formed program.
std::string Print(const Program& program);
// "f32[2,3]"
std::string Print(const TensorType& type);

// Returns kInvalidArgument with the line and column of the first character that does not fit.
Result<Program> Parse(std::string_view text);

// XXH3's 128-bit hash of the text.
plan::Hash HashOf(const Program& program);

}  // namespace axccl::program
