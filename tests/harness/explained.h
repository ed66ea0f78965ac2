// The explanation of axccl-plan for an operation, for tests that run the operation.
#pragma once

#include <string>

namespace axccl::harness {

// Returns the algorithm that `program` explain `question` names, with the environment of this process; its whole output
// if it names none.
std::string ExplainedAlgorithm(const std::string& program, const std::string& question);

}  // namespace axccl::harness
