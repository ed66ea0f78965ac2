#include "src/tune/tune.h"

#include <algorithm>
#include <limits>
#include <map>
#include <mutex>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "src/algo/algo.h"
#include "src/base/log.h"
#include "src/cost/cost.h"
#include "src/tune/filter.h"
#include "src/verify/verify.h"

namespace axccl::tune {

using plan::Contract;
using plan::Kind;

namespace {

constexpr uint64_t kLineBytes = 64;
constexpr std::string_view kPull = "pull", kPush = "push";
// Scratch a rank fills in one turn, small enough to be in a cache still when peers read it. Where ranks share cores, a
// switch costs more than what the cache saves, and turns may be longer.
constexpr uint64_t kTurnBytes[] = {64u << 10, 128u << 10, 256u << 10};
constexpr uint64_t kSharedCoreTurnBytes = 1u << 20;
// Between machines a turn has to be long beside the time a message travels.
constexpr uint64_t kNetworkTurnBytes[] = {512u << 10, 1u << 20, 2u << 20};

// What the choice needs of a schedule.
struct Candidate {
  cost::Model model;
  int slots = 0;
  int parts = 1;
  bool direct = false;
  double fixed_seconds = 0;  // beside the model: the barrier that goes with a plan that is not complete
};

// The tile whose slots take `turn_bytes` in all; 0 where not even lines fit.
uint64_t TileFor(const Candidate& c, uint64_t turn_bytes) {
  return turn_bytes / static_cast<uint64_t>(c.slots) / kLineBytes * kLineBytes * static_cast<uint64_t>(c.parts);
}

double BarrierSeconds(const cost::Machine& machine, int ranks, const plan::Placement& placement) {
  const std::string_view algorithm = algo::Algorithms(Kind::kBarrier, placement).back();
  const auto schedule = algo::Generate(Contract{Kind::kBarrier, ranks, 0}, algorithm, 1, placement);
  return schedule.ok() ? cost::Model(schedule.value(), machine, false, placement).Seconds(0, 0) : 0;
}

}  // namespace

// What stays of the arguments, and the candidates generated so far. Guarded by `mutex`; candidates never change or go.
struct Chooser::Rule {
  explicit Rule(Filter f) : filter(std::move(f)) {}

  const Candidate* Find(const cost::Machine& machine, const Query& query, std::string_view algorithm, int lanes) const;
  bool InGroupOrder(const Query& query, std::string_view algorithm) const;

  const Filter filter;
  mutable std::mutex mutex;
  mutable std::map<std::tuple<Kind, int, std::string_view, int, bool, plan::Placement>, std::optional<Candidate>> candidates;
  mutable std::map<std::tuple<Kind, int, int, std::string_view, plan::Placement>, bool> in_group_order;
};

// Null where the algorithm cannot be generated for the contract. The root does not matter: all roots cost the same.
const Candidate* Chooser::Rule::Find(const cost::Machine& machine, const Query& query, std::string_view algorithm,
                                     int lanes) const {
  const std::lock_guard lock(mutex);
  const Contract& contract = query.contract;
  const bool by_call = query.access == Access::kCall;
  const auto [it, fresh] =
      candidates.try_emplace({contract.kind, contract.ranks, algorithm, lanes, by_call, query.placement});
  if (fresh) {
    const Contract rooted_at_0{contract.kind, contract.ranks, 0};
    if (auto schedule = algo::Generate(rooted_at_0, algorithm, lanes, query.placement); schedule.ok()) {
      const double barrier = algo::Complete(*schedule) ? 0 : BarrierSeconds(machine, contract.ranks, query.placement);
      it->second = Candidate{cost::Model(*schedule, machine, by_call, query.placement), schedule->slots, schedule->parts,
                             schedule->direct, barrier};
    }
  }
  return it->second ? &*it->second : nullptr;
}

// Whether the algorithm's folds are in group order; here the root matters. All lanes follow the same pattern.
bool Chooser::Rule::InGroupOrder(const Query& query, std::string_view algorithm) const {
  const std::lock_guard lock(mutex);
  const Contract& contract = query.contract;
  const auto [it, fresh] =
      in_group_order.try_emplace({contract.kind, contract.ranks, contract.root, algorithm, query.placement});
  if (fresh) {
    verify::Facts facts;
    auto schedule = algo::Generate(contract, algorithm, 1, query.placement);
    it->second = schedule.ok() && verify::Verify(*schedule, &facts).ok() && facts.group_order;
  }
  return it->second;
}

Result<std::unique_ptr<Chooser>> Chooser::Create(const cost::Machine& machine, std::string_view filter,
                                                 uint64_t scratch_bytes, int max_lanes) {
  AXCCL_ASSIGN_OR_RETURN(Filter parsed, Filter::Parse(filter));
  auto chooser = std::unique_ptr<Chooser>(new Chooser());
  chooser->machine_ = machine;
  chooser->scratch_bytes_ = scratch_bytes;
  chooser->max_lanes_ = std::max(1, max_lanes);
  chooser->rule_ = std::make_shared<const Rule>(std::move(parsed));
  return chooser;
}

// The cheapest choice with this algorithm and number of lanes; infinite seconds where there is none.
Choice Chooser::Try(const Query& query, std::string_view algorithm, int lanes) const {
  Choice best{algorithm, lanes, 0, std::numeric_limits<double>::infinity()};
  const Candidate* c = rule_->Find(machine_, query, algorithm, lanes);
  if (c == nullptr || (c->direct && query.access == Access::kNone)) return best;
  if (c->direct || c->slots == 0) {
    best.seconds = c->model.Seconds(query.block_bytes, 0) + c->fixed_seconds;
    return best;
  }
  std::vector<uint64_t> turns(std::begin(kTurnBytes), std::end(kTurnBytes));
  if (query.placement.Most(query.contract.ranks) * lanes > machine_.cores) turns.push_back(kSharedCoreTurnBytes);
  uint64_t room = scratch_bytes_;
  if (!query.placement.is_flat()) {
    turns.insert(turns.end(), std::begin(kNetworkTurnBytes), std::end(kNetworkTurnBytes));
    room /= static_cast<uint64_t>(lanes);
  }
  for (uint64_t turn_bytes : turns) {
    const uint64_t tile = TileFor(*c, std::min(turn_bytes, room));
    if (tile == 0) continue;
    const double seconds = c->model.Seconds(query.block_bytes, tile) + c->fixed_seconds;
    if (seconds < best.seconds) best = Choice{algorithm, lanes, tile, seconds};
  }
  return best;
}

Choice Chooser::Choose(const Query& query) const {
  std::vector<int> lanes = {1};
  const int spare = std::min(max_lanes_, machine_.cores / std::max(1, query.placement.Most(query.contract.ranks)));
  if (query.placement.is_flat()) {
    if (spare > 1) lanes.push_back(spare);
  } else {
    // While one lane waits for the network another works, cores to spare or not.
    for (int l = 2; l <= max_lanes_; l *= 2) lanes.push_back(l);
  }
  const auto& algorithms = algo::Algorithms(query.contract.kind, query.placement);
  Choice best;
  best.seconds = std::numeric_limits<double>::infinity();
  for (const bool filtered : {true, false}) {
    for (std::string_view algorithm : algorithms) {
      if (filtered && !rule_->filter.Admits(query.contract.kind, algorithm)) continue;
      if (query.group_order && !rule_->InGroupOrder(query, algorithm)) continue;
      for (int l : lanes) {
        const Choice choice = Try(query, algorithm, l);
        if (choice.seconds < best.seconds) best = choice;
      }
    }
    // The model knows nothing of cache lines that several ranks write at the same time.
    const bool lines_are_shared = query.short_runs && best.algorithm == "direct";
    if (lines_are_shared && query.contract.kind == Kind::kAllGather && rule_->filter.Admits(Kind::kAllGather, kPull))
      return Try(query, kPull, best.lanes);
    // Nor of pages that every rank reads a part of.
    const bool pages_are_split = query.split_rows && best.algorithm == "direct";
    const bool can_push = std::find(algorithms.begin(), algorithms.end(), kPush) != algorithms.end();
    if (pages_are_split && can_push && rule_->filter.Admits(query.contract.kind, kPush) &&
        (!query.group_order || rule_->InGroupOrder(query, kPush)))
      return Try(query, kPush, best.lanes);
    if (best.seconds < std::numeric_limits<double>::infinity()) return best;
    if (filtered)
      AXCCL_INFO(kTuning, "NCCL_ALGO leaves no algorithm for %s of %d ranks%s; any is taken",
                 plan::KindName(query.contract.kind), query.contract.ranks,
                 query.group_order ? " in group order" : " of such memory");
  }
  // Scratch too small for a line in every slot. The executor says so when it lays out the slots; oneshot needs fewest.
  return Choice{"oneshot", 1, kLineBytes, 0};
}

}  // namespace axccl::tune
