// The reference executor: all ranks of a program on one thread, every operation by its definition (compute.h). What
// other executors and transforms give is compared with this.
//
// A rank goes on until it needs others: a collective runs when all ranks of its group have come to it, and a recv when
// the send that it belongs to has been executed; a send does not wait. Programs must have passed Check (check.h), so
// that ends. The result does not depend on the order in which ranks are executed.
#pragma once

#include <functional>
#include <vector>

#include "src/base/status.h"
#include "src/program/program.h"
#include "src/program/reference/compute.h"

namespace axccl::program {

// Sees every result of every operation of every rank when it is there: (rank, operation, number of the result, value).
// For one rank, that is the order in which it executes them.
using Observer = std::function<void(int, const Operation&, size_t, const Tensor&)>;

// `inputs`: for each rank of the program, the arguments of its part; none for ranks without one. kInvalidArgument,
// which names rank and argument, if they are not of the arguments' types, or inputs without dimensions differ between
// the ranks of a part (check.h).
Status CheckInputs(const Program& program, const std::vector<Tensors>& inputs);

// Returns the outputs of each rank. kInvalidArgument as CheckInputs; kInvalidUsage, which names two ranks and what they
// wait for, if ranks wait for each other for ever, or a rank and an operation with roots that are wrong (compute.h).
Result<std::vector<Tensors>> RunReference(const Program& program, const std::vector<Tensors>& inputs,
                                          const Observer& observer = {});

}  // namespace axccl::program
