// The generators behind Generate(), one family a file. Each takes a contract of two or more ranks whose kind algo.cc
// lists for it, and is a pure function of its arguments.
#pragma once

#include "src/algo/algo.h"
#include "src/plan/schedule.h"

namespace axccl::algo {

plan::Schedule Bruck(const plan::Contract& contract, int lanes);
plan::Schedule Direct(const plan::Contract& contract, int lanes);
// For placements that have levels.
plan::Schedule Hierarchical(const plan::Contract& contract, const plan::Placement& placement, int lanes);
plan::Schedule Oneshot(const plan::Contract& contract, int lanes);
plan::Schedule Pairwise(const plan::Contract& contract, int lanes);
plan::Schedule Pull(const plan::Contract& contract, int lanes);
plan::Schedule Push(const plan::Contract& contract, int lanes);
plan::Schedule Rhd(const plan::Contract& contract, int lanes);
plan::Schedule Ring(const plan::Contract& contract, int lanes);
plan::Schedule Tree(const plan::Contract& contract, int lanes);
plan::Schedule Twoshot(const plan::Contract& contract, int lanes);

}  // namespace axccl::algo
