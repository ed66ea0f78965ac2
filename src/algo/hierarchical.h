// The forms of hierarchical schedules: what happens between machines. hierarchical.cc says which form is which
// algorithm of which kind, and each form's file what it is good for.
#pragma once

#include <span>
#include <string_view>

#include "src/algo/levels.h"
#include "src/plan/placement.h"
#include "src/plan/schedule.h"

namespace axccl::algo {

// What a form is asked for. The schedule has all of it but the placement.
struct Form {
  const plan::Contract& contract;
  std::string_view algorithm;
  const plan::Placement& placement;  // has levels
  int lanes;
  std::span<const int> only;  // ranks whose program is wanted; none means all
};

// All-reduce, all-gather, reduce-scatter.
enum class Circuit { kDirect, kRing, kDoubling };
plan::Schedule OnCircle(const Form& form, Circuit circuit);
// By rails or leaders.
plan::Schedule AllReduceByGather(const Form& form, Carriers carriers);

// All-reduce, broadcast, reduce.
enum class Shape { kChain, kTwoTrees };
plan::Schedule OnTrees(const Form& form, Shape shape);

// All-to-all, gather, scatter, barrier. Logarithmic: in as many rounds, passed on by others (not gather and scatter).
enum class Messages { kDirect, kLogarithmic };
plan::Schedule ExchangeBlocks(const Form& form, Messages messages);
// Of a rank, in the logarithmic all-to-all.
int BundleSlots(const plan::Placement& placement);

}  // namespace axccl::algo
