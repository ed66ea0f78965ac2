// Random programs that pass Check, so that they can be executed, and inputs for them: parts that compute, meet in all
// collectives on groups and channels of all sorts, send each other messages, loop and branch.
#pragma once

#include <vector>

#include "src/program/program.h"
#include "src/program/tensor.h"
#include "tests/harness/random.h"

namespace axccl::program {

// Of 1 to 8 ranks.
Program RandomRun(harness::Random* random);
// Small numbers, or any that the types have, infinities and NaNs included.
std::vector<std::vector<Tensor>> RandomRunInputs(const Program& program, harness::Random* random);

}  // namespace axccl::program
