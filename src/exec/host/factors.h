// The factors of a reduction's inputs, applied as they are read: each rank has a factor of its own, or all have the
// same.
#pragma once

#include "src/exec/host/binding.h"

namespace axccl::exec {

// Sets the scales of the call's scaling, and this rank's own factor.
void StartScales(Binding* binding);
// Write the factor to this rank's op record, and read it from a member's.
void AnnounceFactor(const Binding& binding, OpRecord* record);
void BindFactor(const Binding& binding, int position);
// Stores the factor of each source of a step in the workspace.
void GatherFactors(const Binding& binding, const Step& step);

}  // namespace axccl::exec
