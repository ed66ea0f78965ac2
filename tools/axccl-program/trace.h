// What ranks did when, simulated or measured, as Chrome trace events, which ui.perfetto.dev shows.
#pragma once

#include <string>
#include <vector>

#include "src/program/simulate.h"

namespace axccl::tools {

// A process for each rank, with a line for each stream and a curve of its memory. `events`: those of a rank are in the
// order of the program. What has not ended when the next event of its stream begins, such as a message that was sent,
// is on a line of its own. Pure.
std::string TraceOf(const std::vector<program::SimulatedEvent>& events);

}  // namespace axccl::tools
