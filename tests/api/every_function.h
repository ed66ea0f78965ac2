// A way to call each function that the library exports (world.h).
#pragma once

#include <span>

#include "tests/api/world.h"

namespace axccl::test {

struct ExportedFunction {
  const char* name;
  // Calls it as a program would, with the calls that belong to it, and waits for the work. Returns the first error.
  ncclResult_t (*call)(World& world);
  ncclResult_t expected = ncclSuccess;
};

std::span<const ExportedFunction> EveryFunction();

}  // namespace axccl::test
