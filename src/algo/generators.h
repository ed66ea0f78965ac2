// The generators behind Generate(), one family a file. Each takes a contract of two or more ranks whose kind algo.cc
// lists for it, and is a pure function of its arguments. Those that are told `only` write the program of these ranks
// alone where the kind has no root: then what ranks do needs no credits (builder.h), and follows from a rank's number.
#pragma once

#include <span>
#include <string_view>

#include "src/algo/algo.h"
#include "src/plan/schedule.h"

namespace axccl::algo {

plan::Schedule Bruck(const plan::Contract& contract, int lanes);
plan::Schedule Direct(const plan::Contract& contract, int lanes);
// For placements that have levels: one of HierarchicalAlgorithms().
plan::Schedule Hierarchical(const plan::Contract& contract, std::string_view algorithm,
                            const plan::Placement& placement, int lanes, std::span<const int> only);
plan::Schedule Oneshot(const plan::Contract& contract, int lanes);
plan::Schedule Pairwise(const plan::Contract& contract, int lanes);
plan::Schedule Pull(const plan::Contract& contract, int lanes);
plan::Schedule Push(const plan::Contract& contract, int lanes);
plan::Schedule Rhd(const plan::Contract& contract, int lanes);
plan::Schedule Ring(const plan::Contract& contract, int lanes, std::span<const int> only);
plan::Schedule Tree(const plan::Contract& contract, int lanes);
plan::Schedule Twoshot(const plan::Contract& contract, int lanes);

}  // namespace axccl::algo
