// The devices that a program is simulated on: equal machines with several devices each, connected by NICs; their text
// form (docs/program-format.md, "Fabrics"). Plain data.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "src/base/status.h"
#include "src/program/simulate/measured.h"
#include "src/sim/fabric.h"

namespace axccl::program {

// The defaults are tools/axccl-program/h100.fabric, which names the source of each figure.
struct Machines {
  int ranks_per_machine = 8;
  // For each device.
  uint64_t memory_bytes = 80'000'000'000;
  double launch_seconds = 3e-6;  // every local operation, collective and message
  double f64_flops = 6.7e13;     // dot and dot_general of operands of that type
  double f32_flops = 6.7e13;
  double f16_flops = 9.895e14;      // also of bf16
  double integer_flops = 1.979e15;  // also of i1
  double element_flops = 6.7e13;    // all other operations
  // Between devices; its memory bandwidth is that of local operations, too.
  sim::Fabric fabric;
  // Goes before the figures, where it says something.
  Measured measured;
};

// "axccl-fabric 1", then a line `name value` for each figure, in this order, then those of
// measured.h. Comments begin with `#` and go to the end
// of their line; lines may be empty. kInvalidArgument with line and column for anything else, and values that are
// impossible.
Result<Machines> ParseMachines(std::string_view text);
// Without comments.
std::string Print(const Machines& machines);

}  // namespace axccl::program
