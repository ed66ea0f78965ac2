// Random pipelines of every kind, on the ranks of a run, against the oracle of view_cases.h.
#pragma once

#include "tests/harness/run_ranks.h"

namespace axccl::tests {

// Collective over the run, whatever its layout: `cases` pipelines, three starts each. Every chunk is checked as soon as
// it is there, everything at the end of each start.
void RunRandomPipelines(harness::RankContext& context, int cases);

}  // namespace axccl::tests
