// Random inputs of programs.
#pragma once

#include <cstdint>
#include <vector>

#include "src/program/reference.h"

namespace axccl::tools {

// Small numbers, the same for the same seed: floats are multiples of 1/8 from -1 to 1, integers from 0 to 3, so that
// they are mostly right as indices. Inputs without dimensions are the same on all ranks of a part.
std::vector<program::Tensors> RandomInputs(const program::Program& program, uint64_t seed);

}  // namespace axccl::tools
