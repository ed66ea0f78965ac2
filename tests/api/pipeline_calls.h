// A step of a small pipeline on both ranks of a world, with every function of pipelines.h.
#pragma once

#include "tests/api/world.h"

namespace axccl::test {

// How the step waits for the chunks of its output, and declares those of its input ready.
enum class Awaits { kWait, kTest, kStream };
enum class Declares { kReady, kStream, kWord };

// Creates, starts, finishes and destroys. Returns the first error; the pipelines are then left to the world.
ncclResult_t StepPipelines(World& world, Awaits awaits, Declares declares);
// Its two parts: creates and starts; the rest.
ncclResult_t StartPipelines(World& world);
ncclResult_t FinishPipelines(World& world, Awaits awaits, Declares declares);

}  // namespace axccl::test
