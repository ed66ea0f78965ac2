// A schedule as a picture, in SVG.
//
// A row for each lane of each rank, and in it a box for each operation, at the earliest column at which it can run:
// behind the operation before it and, if it waits, behind the signal. An arrow leads from a signal to what waits for
// it, and a dotted line from a copy or reduction to the ranks whose buffers it reads or writes. The pointer on a box
// shows the operation as its line of the text. Operations that can never run, because nothing signals what they wait
// for, have a red edge.
//
// The size is bounded, whatever the schedule: of more than 64 lanes or 200 columns the first are drawn, and a line
// says how many lanes and operations are not.
#pragma once

#include <string>

#include "src/plan/schedule.h"

namespace axccl::tools {

// Pure. The schedule need not be right.
std::string DrawingOf(const plan::Schedule& schedule);

}  // namespace axccl::tools
