// The generators behind Generate(), one family in each file. Each takes a contract of two or more ranks whose kind
// algo.cc lists for it, and is a pure function of its arguments. All but Tree write the programs of the ranks in `only`
// alone if the kind has no root: the programs then need no credits (builder.h) and depend only on the rank's number.
#pragma once

#include <span>
#include <string_view>

#include "src/algo/algo.h"
#include "src/base/status.h"
#include "src/plan/schedule.h"

namespace axccl::algo {

plan::Schedule Bruck(const plan::Contract& contract, int lanes, std::span<const int> only);
// For one rank, too. kInvalidArgument for too many lanes.
Result<plan::Schedule> ChunkedDirect(const plan::Contract& contract, const Chunking& chunking);
Result<plan::Schedule> ChunkedRing(const plan::Contract& contract, const Chunking& chunking);
Result<plan::Schedule> ChunkedStaged(const plan::Contract& contract, const Chunking& chunking);
plan::Schedule Direct(const plan::Contract& contract, int lanes, std::span<const int> only);
// For placements with levels; `algorithm` is one of HierarchicalAlgorithms().
plan::Schedule Hierarchical(const plan::Contract& contract, std::string_view algorithm,
                            const plan::Placement& placement, int lanes, std::span<const int> only);
plan::Schedule Nvls(const plan::Contract& contract, int lanes, std::span<const int> only);
plan::Schedule NvlsOneshot(const plan::Contract& contract, int lanes, std::span<const int> only);
plan::Schedule Oneshot(const plan::Contract& contract, int lanes, std::span<const int> only);
plan::Schedule Pairwise(const plan::Contract& contract, int lanes, std::span<const int> only);
plan::Schedule Pull(const plan::Contract& contract, int lanes, std::span<const int> only);
plan::Schedule Push(const plan::Contract& contract, int lanes, std::span<const int> only);
plan::Schedule Rhd(const plan::Contract& contract, int lanes, std::span<const int> only);
plan::Schedule Ring(const plan::Contract& contract, int lanes, std::span<const int> only);
plan::Schedule RingPull(const plan::Contract& contract, int lanes, std::span<const int> only);
plan::Schedule Tree(const plan::Contract& contract, int lanes, std::span<const int> only);
plan::Schedule Twoshot(const plan::Contract& contract, int lanes, std::span<const int> only);

}  // namespace axccl::algo
