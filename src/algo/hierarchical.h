// The forms of hierarchical schedules: what happens between machines. hierarchical.cc maps the algorithms of each kind
// to forms; the file of each form says when it is good.
#pragma once

#include <span>
#include <string_view>

#include "src/algo/levels.h"
#include "src/plan/placement.h"
#include "src/plan/schedule.h"

namespace axccl::algo {

// The request for a form. The finished schedule holds all of it except the placement.
struct Form {
  const plan::Contract& contract;
  std::string_view algorithm;
  const plan::Placement& placement;  // must have levels
  int lanes;
  std::span<const int> only;  // ranks whose programs are wanted; empty means all
};

// All-reduce, all-gather, reduce-scatter.
enum class Circuit { kDirect, kRing, kDoubling };
plan::Schedule OnCircle(const Form& form, Circuit circuit);
// `carriers` must be kColumns or kLeaders.
plan::Schedule AllReduceByGather(const Form& form, Carriers carriers);

// All-reduce, broadcast, reduce.
enum class Shape { kChain, kTwoTrees };
plan::Schedule OnTrees(const Form& form, Shape shape);

// All-to-all, gather, scatter, barrier. kLogarithmic takes a logarithmic number of rounds, in which machines forward
// what others sent (not for gather and scatter).
enum class Messages { kDirect, kLogarithmic };
plan::Schedule ExchangeBlocks(const Form& form, Messages messages);
// The slots that a rank needs in the logarithmic all-to-all.
int BundleSlots(const plan::Placement& placement);

}  // namespace axccl::algo
