// Lists of oracle cases the suites of this folder share. Pure functions of their arguments.
#pragma once

#include <cstdint>
#include <vector>

#include "tests/harness/element.h"
#include "tests/harness/oracle.h"
#include "tests/harness/random.h"

namespace axccl::tests {

inline constexpr size_t kSmallCounts[] = {0, 1, 2, 3, 7, 31, 64, 1000, 1009};

// Whether the oracle can bound a result under NCCL's semantics: averages of narrow floats over many ranks lose their
// summands to rounding in storage precision.
bool Judgeable(ncclDataType_t type, harness::Fold fold, int nranks);

// Every call x type x fold (if it folds) x count, with roots in turn, each with its own seed.
std::vector<harness::Case> AllCases(int nranks, const std::vector<size_t>& counts, uint64_t seed);

// A random case with at most `max_bytes` bytes of data per rank and block.
harness::Case RandomCase(harness::Random* random, int nranks, size_t max_bytes);

}  // namespace axccl::tests
