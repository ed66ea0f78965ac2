#include "src/cost/cost.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "src/plan/cargo.h"
#include "src/plan/walk.h"

namespace axccl::cost {

using plan::Op;
using plan::Operand;
using plan::OpKind;
using plan::Schedule;

namespace {

constexpr int kTurns = 3;  // simulated turns: the first, and two more for the difference
// A machine's network devices send the messages of its ranks one after the other. Not measured: a typical figure of
// adapters.
constexpr double kDeviceSeconds = 2.5e-7;

// The time of an operation under one of the views of Model::Cost.
struct Weight {
  double fixed = 0;
  double cached = 0;
  double memory = 0;
};

struct Step {
  OpKind kind = OpKind::kNop;
  Weight work;
  size_t counter = 0;
  int value = 0;
  bool token = false;
  bool remote = false;     // a wait for a rank of another machine
  double cargo_parts = 0;  // for a signal: what it carries to other machines
  bool far = false;        // for a signal: it goes to another machine
};

// The time at which a signal is made, and the time at which everything it carries to other machines has left.
struct Signalled {
  double made = 0;
  double left = 0;
};

// A schedule with everything looked up that the simulated turns need.
class Paper {
 public:
  Paper(const Schedule& schedule, const Machine& machine, bool by_call, const plan::Placement& placement, int copies,
        int like, int sharers)
      : schedule_(schedule),
        machine_(machine),
        by_call_(by_call),
        placement_(placement),
        copies_(copies),
        like_(like),
        sent_(placement.machines(), 0),
        received_(placement.machines(), 0),
        sharers_(sharers > 0 ? sharers : placement.Most(schedule.contract.ranks)),
        on_gpus_(static_cast<size_t>(schedule.contract.ranks)) {
    const double cores = std::max(1, machine.cores), lanes = schedule.lanes * copies;
    if (placement.is_flat()) {
      load_ = std::max(1.0, sharers_ * lanes / cores);
      hop_ = load_ > 1 ? machine.switch_seconds * load_ : machine.signal_seconds;
    } else {
      // Lanes share the rank's core: one moves data while others wait for the network.
      const double crowd = std::max(1.0, placement.Most(schedule.contract.ranks) / cores);
      load_ = crowd * lanes;
      hop_ = crowd > 1 ? machine.switch_seconds * crowd : machine.signal_seconds;
      far_hop_ = machine.network_signal_seconds + (crowd > 1 ? hop_ : 0);
    }
    const std::vector<const plan::Lane*> strands = plan::StrandsOf(schedule);
    const plan::Counters counters(strands, schedule.lanes);
    per_turn_.resize(counters.size(), 0);
    strands_.resize(strands.size());
    for (int rank = like < 0 ? 0 : like; rank < (like < 0 ? schedule.contract.ranks : like + 1); ++rank) {
      for (int lane = 0; lane < schedule.lanes; ++lane) AddStrand(rank, lane, counters);
    }
    sends_.resize(static_cast<size_t>(schedule.contract.ranks));
    plan::CargoFinder finder(schedule, placement);
    for (int rank = 0; rank < schedule.contract.ranks; ++rank) {
      for (int lane = 0; lane < schedule.lanes; ++lane) AddCargo(rank, lane, finder.Of(rank, lane));
    }
  }

  // Returns when the last strand ends each turn, counting only `member` of the weights, and hops if they are fixed
  // costs.
  std::vector<double> Run(double Weight::*member) const;
  // Seconds per byte of a part for which a turn keeps the busiest link busy.
  double LinkSeconds() const;
  // The same of the links and, if the data is not in its cache, of the memory of a GPU.
  double GpuSeconds(bool in_memory) const;

 private:
  struct Strand {
    std::vector<Step> steps;
  };

  void AddStrand(int rank, int lane, const plan::Counters& counters);
  void AddCargo(int rank, int lane, const std::vector<plan::Cargo>& cargo);
  // The number of ranks on a rank's machine that send anything to other machines.
  double SendersBeside(int rank) const;
  Weight Work(const Op& op, int rank) const;
  // Whether the operand is on another GPU.
  bool IsPeers(const Operand& o, int rank) const {
    if (machine_.peer_bytes_per_second == 0 || sharers_ >= schedule_.contract.ranks) return false;
    return o.rank != rank || o.buffer == plan::Buffer::kMulticast;
  }
  void AddToGpus(const Op& op, int rank);
  void AddMulticast(const Operand& o, int rank, bool source);

  const Schedule& schedule_;
  const Machine& machine_;
  const bool by_call_;
  const plan::Placement& placement_;
  const int copies_;
  const int like_;
  std::vector<double> sent_, received_;  // [machine]: parts in a turn
  const int sharers_;                    // the most ranks that share cores
  // Of the data of a rank on a GPU, in parts in a turn.
  struct OnGpu {
    double moved = 0;               // read and written in its memory
    double sent = 0, received = 0;  // over the GPU's link
  };
  std::vector<OnGpu> on_gpus_;  // [rank]
  double load_ = 1;
  double hop_ = 0;
  double far_hop_ = 0;       // between machines
  std::vector<bool> sends_;  // [rank]: whether it sends anything to other machines
  std::vector<Strand> strands_;
  std::vector<int> per_turn_;  // [counter]: signals
};

Weight Paper::Work(const Op& op, int rank) const {
  Weight w;
  w.fixed = machine_.op_seconds;
  // Reading and writing are each half of a copy.
  const double cached = 0.5 / machine_.cached_bytes_per_second, memory = 0.5 / machine_.memory_bytes_per_second;
  const auto by_call = [&](const Operand& o) { return by_call_ && !plan::IsSlot(o) && o.rank != rank; };
  // Slots are written one after the other, each from what is in the cache by then.
  if (op.dst.size() > 1 && std::any_of(op.dst.begin(), op.dst.end(), plan::IsSlot)) {
    const auto more = static_cast<double>(op.dst.size() - 1);
    w = {w.fixed * (1 + more), more * op.dst[0].parts * cached, more * op.dst[0].parts * cached};
  }
  // A system call covers what is copied to its first destination, and what is copied to working space to be reduced.
  const bool brought = op.kind == OpKind::kCopy && by_call(op.src[0]);
  for (const auto* operands : {&op.dst, &op.src}) {
    for (const Operand& o : *operands) {
      const bool called = by_call(o), source = operands == &op.src;
      if (called) {
        w.fixed += machine_.call_seconds;
        w.cached += o.parts / machine_.call_bytes_per_second;
        w.memory += o.parts / machine_.call_bytes_per_second;
      }
      if (brought && (source || &o == &op.dst[0])) continue;
      if (IsPeers(o, rank)) {
        // A copy from or to there takes as long as its loads.
        w.cached += o.parts * (1 / machine_.peer_bytes_per_second - cached);
        w.memory += o.parts * (1 / machine_.peer_bytes_per_second - memory);
        continue;
      }
      w.cached += o.parts * cached;
      w.memory += o.parts * (plan::IsSlot(o) || (called && source) ? cached : memory);
    }
  }
  return {w.fixed * load_, w.cached * load_, w.memory * load_};
}

// What goes to all GPUs, or comes from all, takes more of the links than its bytes.
void Paper::AddMulticast(const Operand& o, int rank, bool source) {
  if (machine_.gpu_multicast_bytes_per_second == 0) return;
  const double parts = o.parts * machine_.gpu_link_bytes_per_second / machine_.gpu_multicast_bytes_per_second;
  const int ranks = schedule_.contract.ranks;
  OnGpu& self = on_gpus_[static_cast<size_t>(rank)];
  (source ? self.received : self.sent) += parts;
  for (int q = 0; q < ranks; ++q) {
    OnGpu& owner = like_ < 0 ? on_gpus_[static_cast<size_t>(q)] : self;
    owner.moved += o.parts;
    (source ? owner.sent : owner.received) += parts;
  }
}

// If one rank's program stands for all, the others read and write in its memory what it does in theirs.
void Paper::AddToGpus(const Op& op, int rank) {
  OnGpu& self = on_gpus_[static_cast<size_t>(rank)];
  for (const auto* operands : {&op.dst, &op.src}) {
    for (const Operand& o : *operands) {
      if (o.buffer == plan::Buffer::kMulticast) {
        AddMulticast(o, rank, operands == &op.src);
        continue;
      }
      OnGpu& owner = like_ < 0 ? on_gpus_[static_cast<size_t>(o.rank)] : self;
      owner.moved += o.parts;
      if (!IsPeers(o, rank)) continue;
      const bool source = operands == &op.src;
      (source ? owner : self).sent += o.parts;
      (source ? self : owner).received += o.parts;
    }
  }
}

void Paper::AddStrand(int rank, int lane, const plan::Counters& counters) {
  const auto strand = static_cast<size_t>(rank * schedule_.lanes + lane);
  const std::vector<Op>& ops = schedule_.program[rank][lane].ops;
  std::vector<Step>& steps = strands_[strand].steps;
  steps.reserve(ops.size());
  for (const Op& op : ops) {
    Step& step = steps.emplace_back();
    step.kind = op.kind;
    step.work = Work(op, rank);
    AddToGpus(op, rank);
    if (op.kind == OpKind::kSignal) {
      step.counter = counters.OfSignal(strand, op);
      ++per_turn_[step.counter];
    }
    if (op.kind == OpKind::kWait) {
      step.token = op.peer == rank;
      step.counter = counters.OfWait(op, like_ < 0 ? op.peer : like_);
      step.value = op.value;
      step.remote = placement_.Apart(op.peer, rank);
      // Even the line of a signal made long ago has to be fetched from the core that wrote it.
      if (!step.token && !step.remote) step.work.fixed += 0.5 * machine_.signal_seconds;
      if (step.remote) step.work.fixed += machine_.network_message_seconds * load_;
    }
  }
}

void Paper::AddCargo(int rank, int lane, const std::vector<plan::Cargo>& cargo) {
  auto& steps = strands_[static_cast<size_t>(rank * schedule_.lanes + lane)].steps;
  for (const plan::Cargo& c : cargo) {
    steps[c.op].cargo_parts += c.parts;
    steps[c.op].far = true;
    steps[c.op].work.fixed += machine_.network_message_seconds * load_;
    sent_[static_cast<size_t>(placement_.MachineOf(rank))] += c.parts;
    received_[static_cast<size_t>(placement_.MachineOf(c.reader))] += c.parts;
    if (c.parts > 0) sends_[static_cast<size_t>(rank)] = true;
  }
}

double Paper::SendersBeside(int rank) const {
  double senders = 0;
  for (int q : placement_.RanksOf(placement_.MachineOf(rank))) senders += sends_[static_cast<size_t>(q)];
  return senders;
}

double Paper::LinkSeconds() const {
  const double most =
      std::max(*std::max_element(sent_.begin(), sent_.end()), *std::max_element(received_.begin(), received_.end()));
  return most * copies_ / machine_.link_bytes_per_second;
}

double Paper::GpuSeconds(bool in_memory) const {
  const auto seconds = [this](double parts, double rate) { return rate > 0 ? parts * sharers_ * copies_ / rate : 0; };
  double most = 0;
  for (const OnGpu& rank : on_gpus_) {
    most = std::max(most, seconds(std::max(rank.sent, rank.received), machine_.gpu_link_bytes_per_second));
    if (in_memory) most = std::max(most, seconds(rank.moved, machine_.gpu_memory_bytes_per_second));
  }
  return most;
}

std::vector<double> Paper::Run(double Weight::*member) const {
  const bool fixed = member == &Weight::fixed;
  const double hop = fixed ? hop_ : 0;
  const double far_hop = fixed ? far_hop_ : 0;
  // While a rank sends, the other ranks of its machine that send do so, too.
  std::vector<double> seconds_per_part(strands_.size(), 0), device_seconds(strands_.size(), 0);
  for (size_t s = 0; s < strands_.size() && !placement_.is_flat(); ++s) {
    const double senders = SendersBeside(static_cast<int>(s) / schedule_.lanes);
    if (fixed) device_seconds[s] = std::max(0.0, senders - 1) * kDeviceSeconds;
    if (!fixed) seconds_per_part[s] = senders / machine_.link_bytes_per_second;
  }
  std::vector<double> link_free(strands_.size(), 0);
  std::vector<double> ends(kTurns, 0), time(strands_.size(), 0);
  std::vector<int> turn(strands_.size(), 0);
  std::vector<size_t> next(strands_.size(), 0);
  plan::Signals<Signalled> signals(per_turn_.size());
  plan::Walk(strands_.size(), [&](size_t s) {
    const std::vector<Step>& steps = strands_[s].steps;
    bool moved = false;
    for (; turn[s] < kTurns; ++turn[s], next[s] = 0, moved = true) {
      for (; next[s] < steps.size(); ++next[s], moved = true) {
        const Step& step = steps[next[s]];
        double since = 0;
        if (step.kind == OpKind::kWait) {
          const auto number = static_cast<uint64_t>(turn[s] * per_turn_[step.counter] + step.value);
          const Signalled* const signalled = signals.Find(step.counter, number);
          if (signalled == nullptr) return moved;
          since = step.remote ? signalled->left + far_hop : signalled->made + (step.token ? 0 : hop);
        }
        time[s] = std::max(time[s] + step.work.*member, since);
        if (step.kind != OpKind::kSignal) continue;
        if (step.cargo_parts > 0)
          link_free[s] = std::max(time[s], link_free[s]) + step.cargo_parts * seconds_per_part[s];
        const double left = step.far ? time[s] + device_seconds[s] : time[s];
        signals.Make(step.counter, {time[s], std::max(left, link_free[s])});
      }
      ends[turn[s]] = std::max(ends[turn[s]], time[s]);
    }
    return moved;
  });
  const bool all_ended = *std::min_element(turn.begin(), turn.end()) == kTurns;
  if (!all_ended) ends.assign(kTurns, std::numeric_limits<double>::infinity());  // a deadlock takes forever
  return ends;
}

}  // namespace

Model::Model(const Schedule& schedule, const Machine& machine, bool by_call, const plan::Placement& placement,
             int copies, int like, int sharers)
    : parts_(schedule.parts),
      lanes_(schedule.lanes * copies),
      cache_bytes_(static_cast<double>(machine.RankCacheBytes())) {
  const Paper paper(schedule, machine, by_call, placement, copies, like, sharers);
  const auto derive = [&](double Weight::*member, double Cost::*into) {
    const std::vector<double> ends = paper.Run(member);
    first_.*into = ends[0];
    next_.*into = std::isinf(ends[0]) ? ends[0] : (ends[kTurns - 1] - ends[0]) / (kTurns - 1);
    if (member == &Weight::fixed) return;
    const double least = placement.is_flat() ? paper.GpuSeconds(member == &Weight::memory) : paper.LinkSeconds();
    first_.*into = std::max(first_.*into, least);
    if (placement.is_flat()) {
      least_.*into = least;
    } else {
      next_.*into = std::max(next_.*into, least);
    }
  };
  derive(&Weight::fixed, &Cost::fixed);
  derive(&Weight::cached, &Cost::cached);
  derive(&Weight::memory, &Cost::memory);
  // Other threads run the further lanes, and have to be woken and joined.
  if (lanes_ > 1 && placement.is_flat()) first_.fixed += machine.switch_seconds;
  for (int r = 0; r < schedule.contract.ranks; ++r) {
    const int blocks = plan::InputBlocks(schedule.contract, r) + plan::OutputBlocks(schedule.contract, r);
    user_blocks_ = std::max(user_blocks_, static_cast<double>(blocks));
  }
}

double Model::Seconds(uint64_t block_bytes, uint64_t tile_bytes) const {
  if (std::isinf(first_.fixed)) return first_.fixed;
  const double block = static_cast<double>(block_bytes);
  const double span = block / lanes_;
  const double turns = tile_bytes == 0 ? 1 : std::max(1.0, std::ceil(span / static_cast<double>(tile_bytes)));
  const double part = span / turns / parts_;
  // If the user data is larger than the cache, what fits may still be there.
  const double in_cache = user_blocks_ * block <= cache_bytes_ ? 1 : cache_bytes_ / (user_blocks_ * block);
  const auto seconds = [&](const Cost& c) {
    return c.fixed + part * (in_cache * c.cached + (1 - in_cache) * c.memory);
  };
  return seconds(first_) + (turns - 1) * std::max(seconds(next_), seconds(least_));
}

}  // namespace axccl::cost
