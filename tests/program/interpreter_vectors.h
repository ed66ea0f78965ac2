// The vectors of StableHLO's reference interpreter (stablehlo_interpret.json of AXCCL_VECTORS) as modules: those of all
// collectives, replica_id and partition_id.
#pragma once

#include <string>
#include <vector>

#include "src/program/reference/compute.h"

namespace axccl::program {

struct InterpreterVector {
  std::string name, module;
  std::vector<Tensors> inputs, outputs;  // by rank
};

// Precondition: the vectors are there (harness::VectorsMissing).
std::vector<InterpreterVector> InterpreterVectors();

inline constexpr size_t kInterpreterVectors = 33;

}  // namespace axccl::program
