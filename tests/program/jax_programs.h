// Programs that JAX partitioned for 4 ranks, with inputs and the results that JAX computed: the folder
// stablehlo_programs of AXCCL_VECTORS (tests/harness/vectors.h).
#pragma once

#include <string>
#include <vector>

#include "src/program/tensor.h"

namespace axccl::program {

struct JaxProgram {
  std::string text;                                  // StableHLO
  std::vector<std::vector<Tensor>> inputs, outputs;  // by rank
};

std::vector<std::string> JaxProgramNames();
// The folder must be there.
JaxProgram ReadJaxProgram(const std::string& name);

}  // namespace axccl::program
