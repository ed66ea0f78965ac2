// Imports the StableHLO text of a module as it is after XLA's SPMD partitioning, or with sdy.manual_computation
// instead: one program for all ranks.
//
// Accepted are modules in the pretty form and in MLIR's generic form, and mixtures of both; one module gives the same
// program in either. docs/stablehlo.md has the operations, types and attributes. The rest is refused: attributes that
// carry no meaning here are on a list, and are ignored only there.
//
// The program has one part, `main`, on all ranks. Calls are inlined. Rank r * P + p is replica r, partition p of
// mhlo.num_replicas x mhlo.num_partitions (P); where the module has neither, its replica groups, pairs and meshes say
// how many there are. IDs are dense, in the order of the printed program.
//
// Pure and thread-safe. The text may be untrusted: memory and time grow in proportion to it (calls, groups and meshes
// included), and what is returned is well-formed (program.h). Types that the text repeats must agree with each other;
// whether an operation may have them is not checked, as in Parse.
#pragma once

#include <string_view>

#include "src/base/status.h"
#include "src/program/program.h"

namespace axccl::program {

// Returns kInvalidArgument with line and column, the name of what is refused, and what is supported instead.
Result<Program> ImportStablehlo(std::string_view text);

}  // namespace axccl::program
