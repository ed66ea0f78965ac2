#include "src/cost/cost.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace axccl::cost {

using plan::Op;
using plan::OpKind;
using plan::Operand;
using plan::Schedule;

namespace {

constexpr int kTurns = 3;  // on paper: the first, and two more for the difference

// The time of an operation under one of the views of Model::Cost.
struct Weight {
  double fixed = 0;
  double cached = 0;
  double memory = 0;
};

struct Step {
  OpKind kind = OpKind::kNop;
  Weight work;
  int endpoint = 0;  // index into the counters
  int value = 0;
  bool token = false;
};

// A schedule with everything looked up that the runs on paper need.
class Paper {
 public:
  Paper(const Schedule& schedule, const Machine& machine, bool by_call)
      : schedule_(schedule), machine_(machine), by_call_(by_call) {
    const double strands = static_cast<double>(schedule.contract.ranks) * schedule.lanes;
    load_ = std::max(1.0, strands / std::max(1, machine.cores));
    hop_ = load_ > 1 ? machine.switch_seconds * load_ : machine.signal_seconds;
    for (int rank = 0; rank < schedule.contract.ranks; ++rank) {
      for (int lane = 0; lane < schedule.lanes; ++lane) AddStrand(rank, lane);
    }
  }

  // When the last strand ends each turn, counting only `member` of the weights, and hops where they are fixed costs.
  std::vector<double> Run(double Weight::* member) const;

 private:
  struct Strand {
    std::vector<Step> steps;
  };

  int Counter(int rank, int lane, int endpoint) const {
    return (rank * schedule_.lanes + lane) * schedule_.endpoints + endpoint;
  }
  void AddStrand(int rank, int lane);
  Weight Work(const Op& op, int rank) const;

  const Schedule& schedule_;
  const Machine& machine_;
  const bool by_call_;
  double load_ = 1;
  double hop_ = 0;
  std::vector<Strand> strands_;
};

Weight Paper::Work(const Op& op, int rank) const {
  Weight w;
  w.fixed = machine_.op_seconds;
  // Reading and writing are each half of a copy.
  const double cached = 0.5 / machine_.cached_bytes_per_second, memory = 0.5 / machine_.memory_bytes_per_second;
  for (const auto* operands : {&op.dst, &op.src}) {
    for (const Operand& o : *operands) {
      const bool user = o.buffer != plan::Buffer::kScratch;
      w.cached += o.parts * cached;
      w.memory += o.parts * (user ? memory : cached);
      if (user && by_call_ && o.rank != rank) {
        // One more copy, between there and working space here.
        w.fixed += machine_.call_seconds;
        w.cached += o.parts / machine_.call_bytes_per_second;
        w.memory += o.parts / machine_.call_bytes_per_second;
      }
    }
  }
  return {w.fixed * load_, w.cached * load_, w.memory * load_};
}

void Paper::AddStrand(int rank, int lane) {
  Strand strand;
  for (const Op& op : schedule_.program[rank][lane].ops) {
    Step step;
    step.kind = op.kind;
    step.work = Work(op, rank);
    if (op.kind == OpKind::kSignal) step.endpoint = Counter(rank, lane, op.endpoint);
    if (op.kind == OpKind::kWait) {
      step.token = op.peer == rank;
      step.endpoint = Counter(op.peer, op.from_lane, op.endpoint);
      step.value = op.value;
      // Even what has been signalled long ago has to be fetched from the core that wrote it.
      if (!step.token) step.work.fixed += 0.5 * machine_.signal_seconds;
    }
    strand.steps.push_back(step);
  }
  strands_.push_back(std::move(strand));
}

std::vector<double> Paper::Run(double Weight::* member) const {
  const double hop = member == &Weight::fixed ? hop_ : 0;
  std::vector<std::vector<double>> signalled(strands_.size() * schedule_.endpoints);
  std::vector<int> per_turn(signalled.size(), 0);
  for (const Strand& strand : strands_) {
    for (const Step& step : strand.steps) {
      if (step.kind == OpKind::kSignal) ++per_turn[step.endpoint];
    }
  }
  std::vector<double> ends(kTurns, 0), time(strands_.size(), 0);
  std::vector<int> turn(strands_.size(), 0);
  std::vector<size_t> next(strands_.size(), 0);
  for (bool moved = true; moved;) {
    moved = false;
    for (size_t s = 0; s < strands_.size(); ++s) {
      const auto& steps = strands_[s].steps;
      for (; turn[s] < kTurns; ++next[s], moved = true) {
        if (next[s] == steps.size()) {
          ends[turn[s]] = std::max(ends[turn[s]], time[s]);
          ++turn[s];
          next[s] = static_cast<size_t>(-1);  // 0 after the loop's increment
          continue;
        }
        const Step& step = steps[next[s]];
        double since = 0;
        if (step.kind == OpKind::kWait) {
          const auto& times = signalled[step.endpoint];
          const size_t index = static_cast<size_t>(turn[s] * per_turn[step.endpoint] + step.value - 1);
          if (index >= times.size()) break;
          since = times[index] + (step.token ? 0 : hop);
        }
        time[s] = std::max(time[s] + step.work.*member, since);
        if (step.kind == OpKind::kSignal) signalled[step.endpoint].push_back(time[s]);
      }
    }
  }
  const bool all_ended = *std::min_element(turn.begin(), turn.end()) == kTurns;
  if (!all_ended) ends.assign(kTurns, std::numeric_limits<double>::infinity());  // a deadlock takes for ever
  return ends;
}

}  // namespace

Model::Model(const Schedule& schedule, const Machine& machine, bool by_call)
    : parts_(schedule.parts), lanes_(schedule.lanes), cache_bytes_(static_cast<double>(machine.cache_bytes)) {
  const Paper paper(schedule, machine, by_call);
  const auto derive = [&](double Weight::* member, double Cost::* into) {
    const std::vector<double> ends = paper.Run(member);
    first_.*into = ends[0];
    next_.*into = std::isinf(ends[0]) ? ends[0] : (ends[kTurns - 1] - ends[0]) / (kTurns - 1);
  };
  derive(&Weight::fixed, &Cost::fixed);
  derive(&Weight::cached, &Cost::cached);
  derive(&Weight::memory, &Cost::memory);
  // Further lanes are run by other threads, which have to be woken and joined.
  if (schedule.lanes > 1) first_.fixed += machine.switch_seconds;
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
  // Of user data larger than the cache, what fits may still be there.
  const double in_cache = user_blocks_ * block <= cache_bytes_ ? 1 : cache_bytes_ / (user_blocks_ * block);
  const auto seconds = [&](const Cost& c) {
    return c.fixed + part * (in_cache * c.cached + (1 - in_cache) * c.memory);
  };
  return seconds(first_) + (turns - 1) * seconds(next_);
}

}  // namespace axccl::cost
