// Runs a program and what a transform made of it, on the reference, and compares: the pieces of the transformed program
// must be those of the results of the program before, bit for bit.
#pragma once

#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "src/program/tensor.h"
#include "src/program/transform.h"

namespace axccl::program {

// Integers between -3 and 3, from the seed.
std::vector<Tensor> RandomArguments(const Function& function, uint64_t seed);

testing::AssertionResult GivesTheSame(const Program& before, const Transformed& after, uint64_t seed);

}  // namespace axccl::program
