// Runs a schedule with real numbers under a hostile scheduler, for the tests of the verifier.
//
// All ranks and lanes run in one thread; at every step a seeded scheduler picks who goes on, and prefers to let one run
// ahead while others starve. Reads of sources and writes of destinations are steps of their own. Scratch and outputs
// begin as poison; contributions differ from turn to turn, so that what is left from an earlier turn is noticed; after
// each turn of a direct schedule, or at the end of the others, a rank's user checks the outputs and spoils all buffers.
//
// Knows nothing of the verifier, nor of the model of the tests. Pure.
#pragma once

#include <cstdint>
#include <string>

#include "src/plan/schedule.h"

namespace axccl::verify {

struct RunOptions {
  uint64_t seed = 1;
  int turns = 5;
  uint32_t in_place = 0;  // bit r: rank r runs in place, where it can
};

// Empty, or what went wrong: a deadlock, or an output that is not what the contract says.
std::string RunOnce(const plan::Schedule& schedule, const RunOptions& options);

}  // namespace axccl::verify
