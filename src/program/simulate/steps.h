// A part written out for its simulation: what each of its ranks executes, one step after the other, loops as often as
// they go round. Refers to the program.
//
// Steps name values by slots, which are used again when a value is dropped. Values that are the same memory have one
// slot: what a barrier gives, and what goes into and out of a region.
#pragma once

#include <cstdint>
#include <vector>

#include "src/base/status.h"
#include "src/program/liveness.h"
#include "src/program/program.h"
#include "src/program/simulate.h"

namespace axccl::program {

struct SimulatedStep {
  enum class Kind : uint8_t { kLocal, kCollective, kSend, kRecv, kDecide };

  Kind kind = Kind::kLocal;
  const Operation* operation = nullptr;
  // Operands, then results, in PartSteps::slots. What follows a kDecide waits for its operand, a condition.
  uint32_t first = 0, operands = 0, results = 0;
  double seconds = 0;        // of kLocal
  double operand_bytes = 0;  // of communication
  uint64_t live = 0;         // bytes while it is executed
};

struct PartSteps {
  std::vector<SimulatedStep> steps;
  std::vector<uint32_t> slots;
  uint32_t num_slots = 0;  // arguments have the first ones
  PartMemory memory;
};

// Of a program that has passed Check. Errors are those of Simulate. `most_steps`: more are an error.
Result<PartSteps> WriteOut(const Part& part, const Liveness& liveness, const Model& model,
                           const SimulateOptions& options, size_t most_steps);

}  // namespace axccl::program
