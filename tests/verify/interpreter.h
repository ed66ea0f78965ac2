// Runs a schedule with real numbers under a hostile scheduler, for the tests of the verifier.
//
// All ranks and lanes run in one thread. At every step a seeded scheduler chooses the next strand, and prefers to let
// one run ahead while others starve. Reads of sources and writes of destinations are separate steps. Scratch and
// outputs begin as poison; contributions differ from turn to turn, so leftovers of an earlier turn are noticed. After
// each turn of a direct schedule, or at the end of the others, a rank's user checks the outputs and spoils all buffers.
// With slices, the user checks each output chunk when it is notified, and writes input chunks while the schedule runs.
//
// Shares nothing with the verifier or the model of the tests. Pure.
#pragma once

#include <cstdint>
#include <string>

#include "src/plan/schedule.h"

namespace axccl::verify {

struct RunOptions {
  uint64_t seed = 1;
  int turns = 5;
  uint32_t in_place = 0;  // bit r: rank r runs in place, if it can
  // With slices, and one turn: the user declares a chunk ready only when nothing else can go on, in the order in which
  // its rank awaits them. By then each output chunk whose inputs are ready must have been notified.
  bool reluctant = false;
};

// Returns what went wrong, a deadlock or an output that violates the contract; empty if nothing did.
std::string RunOnce(const plan::Schedule& schedule, const RunOptions& options);

}  // namespace axccl::verify
