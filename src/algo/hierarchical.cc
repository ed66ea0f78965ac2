// Hierarchical: ranks that share memory fold data before it leaves their machine, and spread data that arrives
// (levels.h). The algorithms differ in what happens between the machines; those that send few messages are better for
// many machines or little data.
//
//                        all_reduce  all_gather  reduce_scatter  broadcast, reduce  all_to_all, barrier  the others
//   hierarchical         direct      direct      direct          chain              direct               direct
//   hierarchical_ring    ring        ring        ring
//   hierarchical_tree    two trees                               two trees
//   hierarchical_rhd     doubling                doubling
//   hierarchical_bruck   by gather   doubling                                       logarithmic
//   hierarchical_leader  by gather, by one rank of each machine
//
// The empty entries would equal other entries under another name: chains are the ring of broadcast and reduce, Bruck's
// all-gather is the doubling half of recursive halving and doubling. Gather and scatter are bound by the root's link,
// which trees do not relieve.
#include "src/algo/hierarchical.h"

#include "src/algo/generators.h"

namespace axccl::algo {

using plan::Contract;
using plan::Kind;
using plan::Placement;

namespace {

plan::Schedule Write(const Form& form) {
  const Kind kind = form.contract.kind;
  const bool on_circle = kind == Kind::kAllReduce || kind == Kind::kAllGather || kind == Kind::kReduceScatter;
  if (form.algorithm == "hierarchical_ring") return OnCircle(form, Circuit::kRing);
  if (form.algorithm == "hierarchical_tree") return OnTrees(form, Shape::kTwoTrees);
  if (form.algorithm == "hierarchical_rhd") return OnCircle(form, Circuit::kDoubling);
  if (form.algorithm == "hierarchical_leader") return AllReduceByGather(form, Carriers::kLeaders);
  if (form.algorithm == "hierarchical_bruck") {
    if (kind == Kind::kAllReduce) return AllReduceByGather(form, Carriers::kColumns);
    return on_circle ? OnCircle(form, Circuit::kDoubling) : ExchangeBlocks(form, Messages::kLogarithmic);
  }
  if (on_circle) return OnCircle(form, Circuit::kDirect);
  if (kind == Kind::kBroadcast || kind == Kind::kReduce) return OnTrees(form, Shape::kChain);
  return ExchangeBlocks(form, Messages::kDirect);
}

}  // namespace

plan::Schedule Hierarchical(const Contract& contract, std::string_view algorithm, const Placement& placement, int lanes,
                            std::span<const int> only) {
  if (plan::HasRoot(contract.kind)) only = {};
  plan::Schedule schedule = Write(Form{contract, algorithm, placement, lanes, only});
  schedule.placement = placement;
  return schedule;
}

}  // namespace axccl::algo
