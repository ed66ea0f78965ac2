// What axccl-plan says of an operation, for tests that do the operation.
#pragma once

#include <string>

namespace axccl::harness {

// The algorithm that `program` explain `question` names, with the environment of this process; all it says where it
// names none.
std::string ExplainedAlgorithm(const std::string& program, const std::string& question);

}  // namespace axccl::harness
