// Which operation of a training step runs when and on which stage of a pipeline. Pure functions.
#pragma once

#include <unordered_map>
#include <vector>

#include "src/base/status.h"
#include "src/program/program.h"
#include "src/program/transform/spread.h"

namespace axccl::program {

// Where the forward pass may be cut: one value of the batch goes on, and all that follows needs nothing else of it.
// A layer ends before the first of these cuts after which weights are used again.
struct Layer {
  size_t first = 0,
         last = 0;   // operations of the function; those between that are not of the forward pass do not count
  Id output = 0;     // the value that goes on; of the last layer, nothing
  double flops = 0;  // of the products
};

// Values that are split or terms are those of the batch.
std::vector<Layer> LayersOf(const Function& function, const std::vector<bool>& forward, const Spread& spread);

enum class Turn : uint8_t {
  kBefore,    // once, from state and constants
  kForward,   // for each microbatch
  kBackward,  // for each microbatch
  kAfter,     // once, from what all microbatches gave
};

struct Stages {
  std::vector<Turn> turns;                // [operation]
  std::vector<int> stages;                // [operation]; kAnywhere: what needs it, makes it
  std::unordered_map<Id, int> arguments;  // where the state is
};
inline constexpr int kAnywhere = -1;

// kInvalidArgument, with the number of layers, if there are more stages than layers.
Result<Stages> StagesOf(const Function& function, const Spread& spread, int stages);

// What each stage does in a step: nothing, or a pass of a microbatch.
struct Pass {
  int microbatch = -1;
  bool is_forward = true;
};
enum class PipelineOrder : uint8_t;
// [step][stage]. What a stage gives in one step, its neighbours can take in the next.
std::vector<std::vector<Pass>> ScheduleOf(int stages, int microbatches, PipelineOrder order);

}  // namespace axccl::program
