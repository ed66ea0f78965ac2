// Random well-formed programs: every kind, attribute and type, but types and shapes that make no sense together.
#pragma once

#include "src/program/program.h"
#include "tests/harness/random.h"

namespace axccl::program {

// The same state of `random` gives the same program.
Program RandomProgram(harness::Random* random);

}  // namespace axccl::program
