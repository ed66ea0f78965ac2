#include "src/tune/tune.h"

#include <algorithm>
#include <atomic>
#include <deque>
#include <limits>
#include <map>
#include <mutex>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "src/algo/algo.h"
#include "src/base/float_mode.h"
#include "src/base/log.h"
#include "src/base/sizes.h"
#include "src/cost/cost.h"
#include "src/tune/filter.h"
#include "src/verify/size.h"
#include "src/verify/verify.h"

namespace axccl::tune {

using plan::Contract;
using plan::Kind;

namespace {

constexpr std::string_view kOneshot = "oneshot", kPush = "push", kLeader = "hierarchical_leader";
// Scratch that a rank fills in one turn: small enough to be still in a cache when peers read it. Where ranks share
// cores, a switch costs more than the cache saves, and turns may be longer.
constexpr uint64_t kTurnBytes[] = {64u << 10, 128u << 10, 256u << 10};
constexpr uint64_t kSharedCoreTurnBytes = 1u << 20;
// Between machines, a turn must be long compared with the time that a message travels; on a GPU, with that of an
// operation.
constexpr uint64_t kLongTurnBytes[] = {512u << 10, 1u << 20, 2u << 20};

// For groups from this size on, evaluating algorithms that ignore the machines takes longer than it can ever save.
constexpr int kManyRanks = 64;
// From this number of machines on, the rounds of a barrier take less time than a message to each machine, if a hop
// takes ten times as long as a message keeps either end busy.
constexpr int kMachinesToRelay = 32;

// Fewer bytes are not worth another lane between machines.
constexpr uint64_t kLeastLaneBytes = 1u << 10;
// With fewer bytes of a block for each lane, an operation may have less than the least number of lanes: some of the 512
// threads of a GPU's lane would have no 16 bytes to move.
constexpr uint64_t kFullLaneBytes = 8u << 10;

// The most ranks of the group that share cores.
int SharersOf(const Query& query) {
  return std::max(1, query.sharers > 0 ? query.sharers : query.placement.Most(query.contract.ranks));
}

}  // namespace

// The properties of a schedule on which the choice depends.
struct Costed {
  cost::Model model;
  int slots = 0;
  int parts = 1;
  bool direct = false;
  bool pushes = false;
  bool multicast = false;
  bool fits = true;          // the verifier takes it
  double fixed_seconds = 0;  // in addition to the model: the barrier that a plan that is not complete needs

  bool staged() const { return !direct && slots > 0; }
  double Seconds(uint64_t block_bytes, uint64_t tile_bytes) const {
    return model.Seconds(block_bytes, tile_bytes) + fixed_seconds;
  }
};

namespace {

// The tile whose slots take `turn_bytes` in total; 0 if not even lines fit.
uint64_t TileFor(const Costed& c, uint64_t turn_bytes) {
  return turn_bytes / static_cast<uint64_t>(c.slots) / kCacheLine * kCacheLine * static_cast<uint64_t>(c.parts);
}

// Whether the algorithm is worth evaluating unless the filter names it; for some, another one is always as good or
// better.
bool Pays(const Query& query, std::string_view algorithm) {
  const Kind kind = query.contract.kind;
  const plan::Placement& placement = query.placement;
  if (!placement.has_levels()) return true;
  const bool gathers = kind == Kind::kAllReduce && (algorithm == "hierarchical_bruck" || algorithm == kLeader);
  // So few bytes are best gathered: to cut them for many ranks takes more messages, and to evaluate that takes seconds.
  if (kind == Kind::kAllReduce && placement.ranks() >= kManyRanks && query.block_bytes <= kLeastLaneBytes)
    return gathers;
  if (algorithm == algo::kHierarchical) return true;
  if (algorithm.starts_with(algo::kHierarchical)) {
    // A direct exchange has the bytes and messages of a ring and fewer hops. Two machines never pass data on, but may
    // gather.
    return algorithm != "hierarchical_ring" && (gathers || placement.machines() > 2);
  }
  // If ranks are spread evenly, these algorithms move bytes between machines more than once, or in more messages and
  // hops.
  const bool even = placement.Most(placement.ranks()) <= 2 * placement.Fewest(placement.ranks());
  return plan::HasRoot(kind) || placement.machines() < 4 || !even || placement.ranks() < kManyRanks;
}

// The programs that tell the time of a schedule: that of one rank, where it stands for all.
struct Sample {
  Sample(const Contract& contract, std::string_view algorithm, int lanes, const plan::Placement& placement)
      : like(placement.is_flat() && algo::Alike(contract, algorithm) ? algo::kStandsForAll : -1),
        schedule(algo::Generate(contract, algorithm, lanes, placement,
                                {&algo::kStandsForAll, like < 0 ? size_t{0} : size_t{1}})) {}
  // In kinds in which all ranks do the same, each depends on every other, so every algorithm for them is complete.
  bool complete() const { return like >= 0 || algo::Complete(schedule.value()); }

  int like;
  Result<plan::Schedule> schedule;
};

double BarrierSeconds(const cost::Machine& machine, int ranks, const plan::Placement& placement) {
  const Sample barrier({Kind::kBarrier, ranks, 0}, BarrierAlgorithm(placement), 1, placement);
  if (!barrier.schedule.ok()) return 0;
  return cost::Model(barrier.schedule.value(), machine, false, placement, 1, barrier.like).Seconds(0, 0);
}

std::atomic<uint64_t> g_costed{0};

// The contract that is costed for the query's. Roots on machines of one size cost about the same: the lowest stands for
// all of them.
Contract CostedContract(const Query& query) {
  const auto& [kind, ranks, root] = query.contract;
  return {kind, ranks, plan::HasRoot(kind) ? query.placement.FirstAlike(root) : 0};
}

// Empty if the algorithm cannot be generated for the contract.
std::optional<Costed> CostOf(const cost::Machine& machine, const Query& query, std::string_view algorithm, int lanes) {
  g_costed.fetch_add(1, std::memory_order_relaxed);
  const Contract contract = CostedContract(query);
  Sample sample(contract, algorithm, 1, query.placement);
  // Lanes of a direct schedule wait for each other; lanes of other schedules all do the same.
  const bool joined = lanes > 1 && sample.schedule.ok() && sample.schedule->direct;
  if (joined) sample = Sample(contract, algorithm, lanes, query.placement);
  if (!sample.schedule.ok()) return std::nullopt;
  const plan::Schedule& schedule = *sample.schedule;
  const double barrier = sample.complete() ? 0 : BarrierSeconds(machine, query.contract.ranks, query.placement);
  return Costed{cost::Model(schedule, machine, query.access == Access::kCall, query.placement, joined ? 1 : lanes,
                            sample.like, query.sharers),
                schedule.slots,
                schedule.parts,
                schedule.direct,
                plan::Pushes(schedule),
                plan::UsesMulticast(schedule),
                verify::Fits(schedule, lanes, joined ? lanes : 1),
                barrier};
}

// The index of the fastest candidate, the first if several are; -1: none may be chosen.
int Fastest(const std::vector<Candidate>& candidates) {
  int best = -1;
  double seconds = std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < candidates.size(); ++i) {
    const Candidate& c = candidates[i];
    if (c.excluded != Exclusion::kNone || c.choice.seconds >= seconds) continue;
    best = static_cast<int>(i);
    seconds = c.choice.seconds;
  }
  return best;
}

// The candidate of that algorithm with as many lanes as `like`; -1: none may be chosen.
int Sibling(const std::vector<Candidate>& candidates, std::string_view algorithm, const Choice& like) {
  for (size_t i = 0; i < candidates.size(); ++i) {
    const Choice& choice = candidates[i].choice;
    if (choice.algorithm == algorithm && choice.lanes == like.lanes && candidates[i].excluded == Exclusion::kNone)
      return static_cast<int>(i);
  }
  return -1;
}

}  // namespace

namespace {

// Those of calls, then those of pipelines.
const std::vector<std::string_view>& Numbered() {
  static const std::vector<std::string_view> kNumbered = [] {
    std::vector<std::string_view> names = algo::AllAlgorithms();
    for (int k = 0; k < plan::kNumKinds; ++k) {
      for (std::string_view name : algo::ChunkedAlgorithms(static_cast<plan::Kind>(k))) {
        if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
      }
    }
    return names;
  }();
  return kNumbered;
}

}  // namespace

unsigned NumberOf(std::string_view algorithm) {
  const std::vector<std::string_view>& all = Numbered();
  return static_cast<unsigned>(std::find(all.begin(), all.end(), algorithm) - all.begin());
}

std::string_view AlgorithmOf(unsigned number) {
  const std::vector<std::string_view>& all = Numbered();
  return number < all.size() ? all[number] : "?";
}

std::string_view BarrierAlgorithm(const plan::Placement& placement) {
  if (!placement.has_levels()) return "oneshot";
  return placement.machines() >= kMachinesToRelay ? "hierarchical_bruck" : algo::kHierarchical;
}

std::string_view UnevenAlgorithm(Kind kind, Access access, const plan::Placement& placement) {
  if (access == Access::kMapped) return algo::kDirect;
  return kind == Kind::kAllGather && placement.has_levels() ? algo::kHierarchical : kOneshot;
}

uint64_t NumCosted() { return g_costed.load(std::memory_order_relaxed); }

// The costs of algorithms on a machine, computed on demand; thread-safe. Those of the most recently used machines are
// kept for later communicators.
class Chooser::Costs {
 public:
  // Returns the existing object for such a machine, or makes one.
  static std::shared_ptr<Costs> Of(const cost::Machine& machine);
  explicit Costs(const cost::Machine& machine) : machine_(machine) {}

  // Empty if there is no such schedule.
  std::optional<Costed> Find(const Query& query, std::string_view algorithm, int lanes);
  // Whether the algorithm's folds are in group order, which depends on the root. All lanes follow the same pattern.
  bool InGroupOrder(const Query& query, std::string_view algorithm);

 private:
  // More than a program of a few groups needs. A program with ever new placements starts again at this size.
  static constexpr size_t kMost = 4096;

  const cost::Machine machine_;
  std::mutex mutex_;  // held while a cost is computed, so that other threads wait for it instead of computing it, too
  using CostKey = std::tuple<Kind, int, int, std::string_view, int, bool, plan::Placement, int>;
  using OrderKey = std::tuple<Kind, int, int, std::string_view, plan::Placement>;
  std::map<CostKey, std::optional<Costed>> costs_;
  std::map<OrderKey, bool> in_group_order_;
};

std::shared_ptr<Chooser::Costs> Chooser::Costs::Of(const cost::Machine& machine) {
  constexpr size_t kKept = 8;
  struct Registry {
    std::mutex mutex;
    std::vector<std::weak_ptr<Costs>> all;
    std::deque<std::shared_ptr<Costs>> last;
  };
  static Registry* const registry = new Registry;
  const std::lock_guard lock(registry->mutex);
  std::erase_if(registry->all, [](const auto& costs) { return costs.expired(); });
  std::shared_ptr<Costs> found;
  for (const auto& weak : registry->all) {
    if (auto costs = weak.lock(); costs != nullptr && costs->machine_ == machine) found = std::move(costs);
  }
  if (found == nullptr) registry->all.push_back(found = std::make_shared<Costs>(machine));
  std::erase(registry->last, found);
  registry->last.push_back(found);
  if (registry->last.size() > kKept) registry->last.pop_front();
  return found;
}

std::optional<Costed> Chooser::Costs::Find(const Query& query, std::string_view algorithm, int lanes) {
  const std::lock_guard lock(mutex_);
  const auto [kind, ranks, root] = CostedContract(query);
  const bool by_call = query.access == Access::kCall;
  if (costs_.size() >= kMost) costs_.clear();
  // Stored only once it is known: a partial result of a search that ran out of memory would make this rank choose other
  // plans than its peers.
  const CostKey key{kind, ranks, root, algorithm, lanes, by_call, query.placement, query.sharers};
  auto it = costs_.find(key);
  if (it == costs_.end()) it = costs_.emplace(key, CostOf(machine_, query, algorithm, lanes)).first;
  return it->second;
}

bool Chooser::Costs::InGroupOrder(const Query& query, std::string_view algorithm) {
  const std::lock_guard lock(mutex_);
  const Contract& contract = query.contract;
  if (in_group_order_.size() >= kMost) in_group_order_.clear();
  const OrderKey key{contract.kind, contract.ranks, contract.root, algorithm, query.placement};
  auto it = in_group_order_.find(key);
  if (it == in_group_order_.end()) {
    verify::Facts facts;
    auto schedule = algo::Generate(contract, algorithm, 1, query.placement);
    const bool keeps = schedule.ok() && verify::Verify(*schedule, &facts).ok() && facts.group_order;
    it = in_group_order_.emplace(key, keeps).first;
  }
  return it->second;
}

// The arguments that remain in use.
struct Chooser::Rule {
  Filter filter;
  std::shared_ptr<Costs> costs;
};

Result<std::unique_ptr<Chooser>> Chooser::Create(const cost::Machine& machine, std::string_view filter,
                                                 uint64_t scratch_bytes, int max_lanes, int min_lanes) {
  AXCCL_ASSIGN_OR_RETURN(Filter parsed, Filter::Parse(filter));
  auto chooser = std::unique_ptr<Chooser>(new Chooser());
  chooser->machine_ = machine;
  chooser->scratch_bytes_ = scratch_bytes;
  chooser->max_lanes_ = std::max(1, max_lanes);
  chooser->min_lanes_ = std::clamp(min_lanes, 1, chooser->max_lanes_);
  chooser->rule_ = std::make_shared<const Rule>(Rule{std::move(parsed), Costs::Of(machine)});
  return chooser;
}

// Finds the tile in which the candidate is fastest, or why it cannot run at all.
void Chooser::Try(const Query& query, Candidate* candidate) const {
  Choice& choice = candidate->choice;
  const auto exclude = [&](Exclusion why) {
    if (candidate->excluded == Exclusion::kNone) candidate->excluded = why;
  };
  const std::optional<Costed> c = rule_->costs->Find(query, choice.algorithm, choice.lanes);
  if (!c) return exclude(Exclusion::kNoPlan);
  if (!c->fits) return exclude(Exclusion::kTooLarge);
  if (c->direct && query.access == Access::kNone) return exclude(Exclusion::kAccess);
  if (c->pushes && query.access == Access::kCall) exclude(Exclusion::kPushes);
  if (!c->staged()) {
    choice.seconds = c->Seconds(query.block_bytes, 0);
    return;
  }
  std::vector<uint64_t> turns(std::begin(kTurnBytes), std::end(kTurnBytes));
  if (SharersOf(query) * choice.lanes > machine_.cores) turns.push_back(kSharedCoreTurnBytes);
  if (!query.placement.is_flat() || machine_.peer_bytes_per_second > 0)
    turns.insert(turns.end(), std::begin(kLongTurnBytes), std::end(kLongTurnBytes));
  const bool apart = c->multicast && query.multicast_bytes != 0;
  const uint64_t shared = query.scratch_bytes != 0 ? query.scratch_bytes : scratch_bytes_;
  const uint64_t room = (apart ? query.multicast_bytes : shared) / static_cast<uint64_t>(choice.lanes);
  for (uint64_t turn_bytes : turns) {
    const uint64_t tile = TileFor(*c, std::min(turn_bytes, room));
    if (tile == 0) continue;
    const double seconds = c->Seconds(query.block_bytes, tile);
    if (seconds < choice.seconds) choice = Choice{choice.algorithm, choice.lanes, tile, seconds};
  }
  if (choice.tile_bytes == 0) exclude(Exclusion::kScratch);
  choice.seconds = std::min(choice.seconds, PackedSeconds(query, choice));
}

uint64_t ReadBlocks(const plan::Contract& contract) {
  const bool one = contract.kind == plan::Kind::kBroadcast || contract.kind == plan::Kind::kSendRecv;
  return one ? 1 : static_cast<uint64_t>(contract.ranks);
}

uint64_t MostFlaggedBytes(const plan::Contract& contract, bool words, bool rows) {
  using cost::Gpu;
  if (plan::Reduces(contract.kind) && contract.ranks > Gpu::kMostReducedRanks) return 0;
  const bool for_each = plan::InputBlocks(contract, contract.root) > 1;  // a rank publishes a block for each other one
  if (rows && (!for_each || contract.ranks <= Gpu::kMostRowedRanks)) return Gpu::kRowsBytes;
  return words ? Gpu::kWordsBytes : 0;
}

double Chooser::PackedSeconds(const Query& query, const Choice& choice) const {
  const uint64_t block = query.block_bytes, blocks = ReadBlocks(query.contract);
  const bool one_step = choice.algorithm == kOneshot && choice.lanes == 1 && query.placement.is_flat();
  constexpr double kNever = std::numeric_limits<double>::infinity();
  if (!one_step || block == 0 || block > std::min(query.flagged_bytes, choice.tile_bytes)) return kNever;
  const bool kept = blocks * RoundUp(block, 16) <= machine_.packed_bytes;
  if (block <= machine_.packed_block_bytes && kept) return machine_.packed_seconds;
  if (query.flagged_bytes <= machine_.packed_block_bytes) return kNever;
  return machine_.packed_seconds + static_cast<double>(blocks * block) / machine_.rowed_bytes_per_second;
}

std::vector<int> Chooser::LaneCounts(const Query& query, std::string_view algorithm) const {
  if (algorithm == kLeader) return {1};  // one rank does the work of several, for data that is too small to be cut
  if (!query.placement.is_flat()) {
    // While one lane waits for the network, another works, whether or not there are spare cores.
    std::vector<int> lanes = {1};
    for (int l = 2; l <= max_lanes_ && query.block_bytes >= kLeastLaneBytes * static_cast<uint64_t>(l); l *= 2)
      lanes.push_back(l);
    return lanes;
  }
  const int most = std::clamp(machine_.cores / SharersOf(query), 1, max_lanes_);
  const bool large = query.block_bytes >= kFullLaneBytes * static_cast<uint64_t>(min_lanes_);
  std::vector<int> lanes;
  for (int l = large ? min_lanes_ : 1; l < most; l *= 2) lanes.push_back(l);
  lanes.push_back(most);
  return lanes;
}

Exclusion Chooser::Exclude(const Query& query, std::string_view algorithm, Pass pass) const {
  const auto admits = [&](std::string_view name) { return rule_->filter.Admits(query.contract.kind, name); };
  // NCCL_ALGO's "direct" also admits "pull" where ranks only read each other's buffers.
  // On GPUs its "ring" admits "ring_pull", as NCCL's, which uses buffers where it can.
  const bool on_gpus = machine_.peer_bytes_per_second > 0;
  const std::string_view stands_in_for = algorithm == algo::kPull && query.access == Access::kCall ? algo::kDirect
                                         : algorithm == algo::kRingPull && on_gpus                 ? algo::kRing
                                                                                                   : algorithm;
  const bool stands_in = rule_->filter.AdmitsByName(query.contract.kind, stands_in_for);
  if (pass.filtered && !admits(algorithm) && !stands_in) return Exclusion::kFilter;
  if (pass.paying && !Pays(query, algorithm)) return Exclusion::kNoGain;
  if (query.group_order && !rule_->costs->InGroupOrder(query, algorithm)) return Exclusion::kGroupOrder;
  return Exclusion::kNone;
}

void Chooser::Weigh(const Query& query, Pass pass, bool time_all, std::vector<Candidate>* candidates) const {
  candidates->clear();
  const bool few_ranks = query.contract.ranks < kManyRanks;
  std::vector<std::string_view> algorithms = algo::Algorithms(query.contract.kind, query.placement);
  for (std::string_view algorithm : algo::MulticastAlgorithms(query.contract.kind)) {
    const bool folds = algo::FoldsByMulticast(query.contract.kind, algorithm);
    if (query.multicast >= (folds ? Multicast::kFolds : Multicast::kStores)) algorithms.push_back(algorithm);
  }
  for (std::string_view algorithm : algorithms) {
    const Exclusion excluded = Exclude(query, algorithm, pass);
    for (const int lanes : LaneCounts(query, algorithm)) {
      Candidate& c = candidates->emplace_back();
      c = Candidate{Choice{algorithm, lanes, 0, std::numeric_limits<double>::infinity()}, excluded};
      if (excluded == Exclusion::kNone || (time_all && (few_ranks || excluded != Exclusion::kNoGain))) Try(query, &c);
    }
  }
}

Decision Chooser::Decide(const Query& query, bool time_all) const {
  const DefaultFloatMode mode;  // the caller's may differ from that of other ranks' threads
  Decision d;
  // First what is admitted and pays; then what is admitted; then anything.
  for (const Pass pass : {Pass{true, true}, Pass{true, false}, Pass{false, true}}) {
    Weigh(query, pass, time_all, &d.candidates);
    d.chosen = Fastest(d.candidates);
    d.filter_ignored = !pass.filtered;
    if (d.chosen >= 0) break;
    if (pass.filtered && !pass.paying)
      AXCCL_INFO(kTuning, "NCCL_ALGO leaves no algorithm for %s of %d ranks%s; any is taken",
                 plan::KindName(query.contract.kind), query.contract.ranks,
                 query.group_order ? " in group order" : " of such memory");
  }
  if (d.chosen < 0) {
    // The scratch is too small for a line in every slot, or no plan of so many ranks can be verified. The executor
    // reports the first when it lays out the slots, the verifier the second; oneshot needs the fewest slots.
    d.choice = Choice{kOneshot, 1, kCacheLine, 0};
    d.reason = Reason::kNoScratch;
    return d;
  }
  const auto prefer = [&](std::string_view algorithm, Reason reason) {
    const Choice& best = d.candidates[static_cast<size_t>(d.chosen)].choice;
    const int other = best.algorithm == algo::kDirect ? Sibling(d.candidates, algorithm, best) : -1;
    if (other < 0) return;
    d.chosen = other;
    d.reason = reason;
  };
  // The model does not cover cache lines that several ranks write at the same time, nor pages of which every rank reads
  // a part.
  if (query.short_runs) prefer(algo::kPull, Reason::kShortRuns);
  if (query.split_rows) prefer(kPush, Reason::kSplitRows);
  d.choice = d.candidates[static_cast<size_t>(d.chosen)].choice;
  return d;
}

Split Chooser::SplitTime(const Query& query, const Choice& choice) const {
  if (PackedSeconds(query, choice) <= choice.seconds) return Split{choice.seconds, 0, 0, 0};
  const double kInfinite = std::numeric_limits<double>::infinity();
  cost::Machine machine = machine_;
  const auto seconds = [&] {
    const auto c = CostOf(machine, query, choice.algorithm, choice.lanes);
    return c ? c->Seconds(query.block_bytes, choice.tile_bytes) : 0;
  };
  const double all = seconds();
  machine.link_bytes_per_second = kInfinite;
  const double no_link = seconds();
  machine.network_signal_seconds = machine.network_message_seconds = 0;
  const double no_network = seconds();
  machine.cached_bytes_per_second = machine.memory_bytes_per_second = machine.call_bytes_per_second = kInfinite;
  if (machine.peer_bytes_per_second > 0) machine.peer_bytes_per_second = kInfinite;
  machine.gpu_memory_bytes_per_second = machine.gpu_link_bytes_per_second = 0;
  const double no_bytes = seconds();
  return Split{no_bytes, no_network - no_bytes, no_link - no_network, all - no_link};
}

}  // namespace axccl::tune
