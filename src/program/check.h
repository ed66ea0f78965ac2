// What must hold before a program may run. Parse checks the form of a text only; these functions check what it says.
// docs/program-format.md states the rules to the authors of programs.
//
// Each accepts any well-formed program (program.h), whatever its numbers, and takes time and memory in proportion to
// its size. The first error is returned: kInvalidArgument for what is wrong with one operation, kInvalidUsage for ranks
// whose calls do not match. Messages name part and operation, and cite the constraint that it violates:
//   part main, %50 all_gather: result %50 has type f32[4,3], expected f32[8,3] [StableHLO all_gather (C6)]
//   rank 2 waits in %41 all_reduce on {0,2}, rank 0 goes to %44 all_gather on {0,2} first
//
// Pure functions; thread-safe.
#pragma once

#include "src/base/status.h"
#include "src/program/program.h"

namespace axccl::program {

// All of the following, in this order. What passes can be executed without further checks, and does not deadlock.
Status Check(const Program& program);

// Every operation has operands, attributes and results as StableHLO's constraints demand, and groups and pairs of ranks
// that the program has.
Status CheckTypes(const Program& program);

// `free` ends the life of values once, after their last use, and only of values that the function itself has made or
// was given.
Status CheckFrees(const Program& program);

// Expects a program that passes CheckTypes. The ranks' communication comes to an end: executed by all ranks, each in
// the order of its part, every collective is reached by all its ranks with equal types and attributes, and the k-th
// `recv` of a pair of ranks on a channel meets the k-th `send`, of the same type. A collective waits for all its ranks,
// a `recv` for its `send`, and a `send` for nobody.
Status CheckCommunication(const Program& program);

}  // namespace axccl::program
