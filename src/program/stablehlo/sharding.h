// Shardings of Shardy's dialect, and sdy.manual_computation: the body of a function that is already one of each rank.
//
// Functions return false once they have reported a failure.
#pragma once

#include "src/program/stablehlo/scanner.h"
#include "src/program/stablehlo/tree.h"
#include "src/tensor/replica_groups.h"

namespace axccl::program::stablehlo {

// `<@mesh, [{"x"}, {"y":(1)2}], replicated={"z"}>`: kSharding.
bool ReadSharding(Scanner* in, AttrNode* attr);
// `[<@mesh, [{"x"}]>, <@mesh, [{}]>]`: kList.
bool ReadShardings(Scanner* in, AttrNode* attr);
// `{"x", "y"}`: kList of kText.
bool ReadManualAxes(Scanner* in, AttrNode* attr);

// The sdy.manual_computation of a function that does nothing else, null for a function without.
const Op* ManualOf(const Func& func);
// Checks that it is all that the function does, that it is manual in all axes of a mesh of all ranks, and that its
// types are the shards of the function's types.
bool CheckManual(const Module& module, const Func& func, const tensor::Grid& grid, Scanner* errors);

}  // namespace axccl::program::stablehlo
