// Which operation of a training step runs when and on which stage of a pipeline. Pure functions.
#pragma once

#include <unordered_map>
#include <vector>

#include "src/base/status.h"
#include "src/program/program.h"
#include "src/program/transform/spread.h"

namespace axccl::program {

// Where the forward pass may be cut: one value of the batch goes on, and all that follows needs nothing else of it.
// A layer ends before the first of these cuts after which weights are used again, in a product if the layer has one.
struct Layer {
  size_t first = 0,
         last = 0;  // operations of the function; those between that are not of the forward pass do not count
  // The value that goes on. Of the last layer: the first that goes on alone after the last use of weights, if any does.
  Id output = 0;
  bool has_output = false;
  double flops = 0;  // of the products
};

// Values that are split or terms are those of the batch. The last `losses` results are losses; operations that only
// lead to those before the last belong to the layer whose output they take.
bool IsOfBatch(const SpreadStep& step);
std::vector<Layer> LayersOf(const Function& function, size_t losses, const Spread& spread);

// The values that are the state, or are computed from it alone, with the donated argument.
std::unordered_map<Id, Id> FromState(const Function& function, const Spread& spread);

// [layer]: its stage. Stages of about equal flops; of equal numbers of layers, if otherwise one would be empty.
std::vector<int> CutLayers(const std::vector<Layer>& layers, int stages);

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

// The last `losses` results are losses. With one microbatch, what needs all of them may be needed by a pass.
// kInvalidArgument, with the number of layers, if there are more stages than these; with the names of the operations,
// if a pass of a microbatch needs what all microbatches give.
Result<Stages> StagesOf(const Function& function, size_t losses, const Spread& spread, int stages, int microbatches);
// Whether the backward pass of a stage needs nothing of that of another stage.
bool AreIndependent(const Function& function, const Stages& stages);

// What each stage does in a step: nothing, or a pass of a microbatch.
struct Pass {
  int microbatch = -1;
  bool is_forward = true;
};
enum class PipelineOrder : uint8_t;
// [step][stage]. What a stage gives in one step, its neighbours can take in the next. `independent`: a backward pass
// needs the stage's own forward pass alone.
std::vector<std::vector<Pass>> ScheduleOf(int stages, int microbatches, PipelineOrder order, bool independent = false);

}  // namespace axccl::program
