// What inputs of a reduction are multiplied by as they are read: each rank has a factor of its own, or all have one.
#pragma once

#include "src/exec/host/binding.h"

namespace axccl::exec {

// Sets the scales of the call's scaling, and this rank's own factor.
void StartScales(Binding* binding);
// To this rank's op record, for other members; and from a member's.
void AnnounceFactor(const Binding& binding, OpRecord* record);
void BindFactor(const Binding& binding, int position);
// Puts what each source of a step is multiplied by into the workspace.
void GatherFactors(const Binding& binding, const Step& step);

}  // namespace axccl::exec
