// A chunk of the output needs the input chunks that it is made of, and no others; and nothing that it is made of is
// read before it is declared ready. Shown without a clock: the ranks declare their input chunks one at a time, in a
// random order of the ranks that all of them know. After each declaration, before the next one, every chunk of the
// output whose inputs are all declared must come, with its value, and no other chunk may.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tests/harness/client.h"
#include "tests/pipelines/int_pipeline.h"

namespace axccl::tests {

// Runs some steps of a case with axcclProducer in that way. `clique` has two streams for each rank.
void RunInAnyOrder(harness::RankContext& context, const harness::Clique& clique, const IntCase& c, uint64_t seed);
// The same with cases of every kind, order and some numbers of slices, of which the seed draws half.
void RunKindsInAnyOrder(harness::RankContext& context, std::span<const int64_t> columns,
                        const std::vector<harness::Memory>& memories);

}  // namespace axccl::tests
