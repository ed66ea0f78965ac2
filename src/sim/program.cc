#include "src/sim/program.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "src/base/format.h"
#include "src/plan/cargo.h"

namespace axccl::sim {

using plan::Op;
using plan::Operand;
using plan::OpKind;
using plan::Placement;
using plan::Schedule;

namespace {

// An endpoint, as seen by the rank that it signals. Ranks are those of the program.
struct Line {
  uint32_t source = 0;
  uint32_t distance = 0;  // machines from the source to the destination
  uint32_t to = 0;
  uint16_t lane = 0;
  uint16_t endpoint = 0;

  auto Way() const { return std::tie(source, distance, to, lane); }
  friend bool operator==(const Line&, const Line&) = default;
  friend bool operator<(const Line& a, const Line& b) {
    return std::tuple_cat(a.Way(), std::tie(a.endpoint)) < std::tuple_cat(b.Way(), std::tie(b.endpoint));
  }
};

template <class T>
void SortOnce(std::vector<T>* values) {
  std::sort(values->begin(), values->end());
  values->erase(std::unique(values->begin(), values->end()), values->end());
}

// The position of a value in an ascending list; the list's size if it is not there.
template <class T>
size_t Find(const std::vector<T>& values, const T& value) {
  const auto it = std::lower_bound(values.begin(), values.end(), value);
  return it != values.end() && *it == value ? static_cast<size_t>(it - values.begin()) : values.size();
}

class Compiler {
 public:
  // `machine` < 0: compiles all ranks.
  Compiler(const Schedule& schedule, const Placement& placement, int machine, bool in_place)
      : schedule_(schedule),
        placement_(placement),
        machine_(machine),
        in_place_(in_place),
        cargo_(schedule, placement) {
    for (int r = 0; r < schedule.contract.ranks; ++r) {
      if (machine < 0 || placement.MachineOf(r) == machine) ranks_.push_back(r);
    }
  }

  Result<Program> Run();

 private:
  bool one() const { return machine_ >= 0; }
  // The number of a rank in the program.
  uint32_t Number(int rank) const { return static_cast<uint32_t>(one() ? placement_.LocalIndex(rank) : rank); }
  uint32_t Strand(uint32_t number, int lane) const { return number * schedule_.lanes + static_cast<uint32_t>(lane); }
  uint32_t Distance(int from, int to) const {
    const int machines = placement_.machines();
    return static_cast<uint32_t>((placement_.MachineOf(to) - placement_.MachineOf(from) + machines) % machines);
  }
  const std::vector<Op>& OpsOf(int rank, int lane) const {
    return schedule_.program[static_cast<size_t>(rank)][static_cast<size_t>(lane)].ops;
  }
  Line SignalLine(int rank, int lane, const Op& op, int to) const {
    return {Number(rank), Distance(rank, to), Number(to), static_cast<uint16_t>(lane), op.endpoint};
  }
  // The line as its source names it. If one machine represents all, the source is the corresponding rank of that
  // machine.
  Line WaitLine(int rank, const Op& op) const {
    return {Number(op.peer), Distance(op.peer, rank), Number(rank), op.from_lane, op.endpoint};
  }
  template <class F>
  void ForEachReached(int rank, const Op& op, F f) const {
    if (op.peer != plan::kAllPeers) return f(static_cast<int>(op.peer));
    for (int to = 0; to < schedule_.contract.ranks; ++to) {
      if (to != rank) f(to);
    }
  }

  Status Refuse(const char* why) const;
  Status CollectLines(int rank, int lane);
  Status MatchLines();
  void MakeCounters();
  Status NumberInputs(int rank);
  Status FindChunk(int rank, const Op& op, Step* step) const;
  bool Coincide(const Operand& from, const Operand& to) const;
  size_t LineOfSignal(const Line& line) const { return one() ? Find(signals_, line) : Find(waits_, line); }
  Status AddStrand(int rank, int lane);
  void AddDelivery(int rank, int lane, const Op& op, int to, uint32_t parts, Step* step);
  Status AddMove(int rank, const Op& op, Step* step);
  Status AddShares(int rank, const Operand& operand, bool source, Step* step);
  Status AddMulticast(int rank, const Operand& operand, bool source, Step* step);

  const Schedule& schedule_;
  const Placement& placement_;
  const int machine_;
  const bool in_place_;
  plan::CargoFinder cargo_;
  std::vector<int> ranks_;
  std::vector<Line> signals_, waits_;                 // ascending, without duplicates
  std::vector<std::pair<size_t, uint32_t>> waiters_;  // line of waits_, strand; counters have the same numbers
  std::vector<Share> op_shares_;
  std::vector<uint32_t> input_number_;  // [input chunk of the rank that is compiled]: from 1; 0: not awaited
  Program program_;
};

Status Compiler::Refuse(const char* why) const {
  return MakeStatus(Code::kInvalidUsage, "Simulate(%s %s): %s", schedule_.algorithm.c_str(),
                    plan::KindName(schedule_.contract.kind), why);
}

Status Compiler::CollectLines(int rank, int lane) {
  for (const Op& op : OpsOf(rank, lane)) {
    if (op.kind == OpKind::kWait) waits_.push_back(WaitLine(rank, op));
    if (op.kind != OpKind::kSignal) continue;
    if (one() && op.peer == plan::kAllPeers)
      return Refuse("a rank signals all others at once; only all ranks show its time");
    ForEachReached(rank, op, [&](int to) { signals_.push_back(SignalLine(rank, lane, op, to)); });
  }
  return Status();
}

// Endpoints may have other numbers on another machine; the k-th endpoint between two ranks corresponds to the k-th
// there.
Status Compiler::MatchLines() {
  SortOnce(&signals_);
  SortOnce(&waits_);
  if (!one()) return Status();
  const auto same_way = [](const Line& a, const Line& b) { return a.Way() == b.Way(); };
  if (!std::equal(signals_.begin(), signals_.end(), waits_.begin(), waits_.end(), same_way))
    return Refuse("machines signal each other what none like them waits for: they do not do the same");
  return Status();
}

void Compiler::MakeCounters() {
  for (const int rank : ranks_) {
    for (int lane = 0; lane < schedule_.lanes; ++lane) {
      for (const Op& op : OpsOf(rank, lane)) {
        if (op.kind == OpKind::kWait)
          waiters_.push_back({Find(waits_, WaitLine(rank, op)), Strand(Number(rank), lane)});
      }
    }
  }
  SortOnce(&waiters_);
  for (const auto& [line, strand] : waiters_) program_.counters.push_back({strand, 0});
}

// The order in which a caller computes chunks: those that lanes await first, in the order of lanes, then those that
// they await second, and so on.
Status Compiler::NumberInputs(int rank) {
  std::vector<std::tuple<size_t, int, uint16_t>> awaits;
  for (int lane = 0; lane < schedule_.lanes; ++lane) {
    size_t place = 0;
    for (const Op& op : OpsOf(rank, lane)) {
      if (op.kind == OpKind::kAwait) awaits.push_back({place++, lane, op.chunk});
    }
  }
  std::sort(awaits.begin(), awaits.end());
  input_number_.assign(static_cast<size_t>(plan::InputBlocks(schedule_.contract, rank)) * schedule_.slices, 0);
  uint32_t number = 0;
  for (const auto& [place, lane, chunk] : awaits) {
    if (chunk >= input_number_.size())
      return Refuse(Format("rank %d awaits chunk %d, which its input does not have", rank, chunk).c_str());
    if (input_number_[chunk] == 0) input_number_[chunk] = ++number;
  }
  program_.awaited.push_back(number);
  return Status();
}

Status Compiler::FindChunk(int rank, const Op& op, Step* step) const {
  if (op.kind == OpKind::kAwait) return step->value = input_number_[op.chunk], Status();
  const bool exists = op.peer >= 0 && op.peer < schedule_.contract.ranks &&
                      op.chunk < plan::OutputBlocks(schedule_.contract, op.peer) * schedule_.slices;
  if (!exists)
    return Refuse(
        Format("rank %d notifies chunk %d at rank %d, which its output does not have", rank, op.chunk, op.peer)
            .c_str());
  step->first = program_.outputs[Number(op.peer)] + op.chunk;
  step->token = op.peer == rank;
  return Status();
}

void Compiler::AddDelivery(int rank, int lane, const Op& op, int to, uint32_t parts, Step* step) {
  const Line line = SignalLine(rank, lane, op, to);
  const size_t index = LineOfSignal(line);
  const bool far = placement_.Apart(rank, to);
  const auto add = [&](uint32_t counter, uint32_t of_parts) {
    program_.deliveries.push_back({counter, line.to, line.distance, of_parts, far, rank == to});
    ++step->count;
  };
  step->shared |= far;
  auto it = std::lower_bound(waiters_.begin(), waiters_.end(), std::pair<size_t, uint32_t>(index, 0));
  if (it == waiters_.end() || it->first != index) return add(Delivery::kNoCounter, parts);
  for (; it != waiters_.end() && it->first == index; ++it, parts = 0) {
    const auto counter = static_cast<uint32_t>(it - waiters_.begin());
    ++program_.counters[counter].per_turn;
    add(counter, parts);
  }
}

// The switch reads the slots of all ranks and sends their sum to the reader, or sends to all what it gets once. A
// rank's own slots are no exception.
Status Compiler::AddMulticast(int rank, const Operand& o, bool source, Step* step) {
  if (placement_.machines() > 1) return Refuse("needs slots of all ranks at once, which only one machine has");
  const auto add = [&](int of, Resource resource, uint32_t parts, uint32_t multicast) {
    op_shares_.push_back({Number(of) * kNumResources + resource, parts, multicast});
  };
  add(rank, source ? kLinkIn : kLinkOut, 0, o.parts);
  for (int q = 0; q < schedule_.contract.ranks; ++q) {
    add(q, source ? kLinkOut : kLinkIn, 0, o.parts);
    add(q, kMemory, o.parts, 0);
  }
  step->over_links += o.parts;
  return Status();
}

Status Compiler::AddShares(int rank, const Operand& o, bool source, Step* step) {
  if (o.buffer == plan::Buffer::kMulticast) return AddMulticast(rank, o, source, step);
  op_shares_.push_back({Number(rank) * kNumResources + kMemory, o.parts});
  step->in_memory += o.parts;
  if (o.rank == rank) return Status();
  if (placement_.Apart(o.rank, rank)) {
    // Slots of ranks on other machines are written in order to be sent, and are read where they have arrived.
    if (o.buffer != plan::Buffer::kScratch)
      return Refuse("needs memory that its ranks share; between machines take another algorithm");
    if (source && one()) return Refuse("a rank reads in the scratch of another machine; only all ranks show its time");
    return Status();
  }
  const uint32_t from = Number(source ? o.rank : rank), to = Number(source ? rank : o.rank);
  op_shares_.push_back({from * kNumResources + kLinkOut, o.parts});
  op_shares_.push_back({to * kNumResources + kLinkIn, o.parts});
  step->over_links += o.parts;
  return Status();
}

// Whether both are the same memory, as all ranks run in place.
bool Compiler::Coincide(const Operand& from, const Operand& to) const {
  int input = 0, output = 0;
  return in_place_ && from.buffer == plan::Buffer::kInput && to.buffer == plan::Buffer::kOutput &&
         from.rank == to.rank && plan::InPlaceBlocks(schedule_.contract, from.rank, &input, &output) &&
         from.block == input && to.block == output && from.part == to.part;
}

Status Compiler::AddMove(int rank, const Op& op, Step* step) {
  const bool may_do_nothing = op.kind == OpKind::kCopy && !plan::Reduces(schedule_.contract.kind);
  op_shares_.clear();
  for (const Operand& o : op.dst) {
    if (!may_do_nothing || !Coincide(op.src[0], o)) AXCCL_RETURN_IF_ERROR(AddShares(rank, o, false, step));
  }
  if (op_shares_.empty()) return step->kind = OpKind::kNop, Status();
  for (const Operand& o : op.src) AXCCL_RETURN_IF_ERROR(AddShares(rank, o, true, step));
  std::sort(op_shares_.begin(), op_shares_.end());
  step->kind = OpKind::kCopy;
  step->shared = true;
  step->first = static_cast<uint32_t>(program_.shares.size());
  for (const Share& share : op_shares_) {
    if (step->count > 0 && program_.shares.back().resource == share.resource) {
      program_.shares.back().parts += share.parts;
      program_.shares.back().multicast += share.multicast;
    } else {
      program_.shares.push_back(share);
      ++step->count;
    }
  }
  return Status();
}

Status Compiler::AddStrand(int rank, int lane) {
  const std::vector<plan::Cargo>& cargo = cargo_.Of(rank, lane);
  auto next_cargo = cargo.begin();
  const std::vector<Op>& ops = OpsOf(rank, lane);
  for (const Op& op : ops) {
    Step step;
    step.kind = op.kind;
    if (op.kind == OpKind::kCopy || op.kind == OpKind::kReduce) AXCCL_RETURN_IF_ERROR(AddMove(rank, op, &step));
    if (op.kind == OpKind::kAwait || op.kind == OpKind::kNotify) AXCCL_RETURN_IF_ERROR(FindChunk(rank, op, &step));
    if (op.kind == OpKind::kSignal) {
      step.first = static_cast<uint32_t>(program_.deliveries.size());
      ForEachReached(rank, op, [&](int to) {
        const uint32_t parts = placement_.Apart(rank, to) ? (next_cargo++)->parts : 0;
        AddDelivery(rank, lane, op, to, parts, &step);
      });
    }
    if (op.kind == OpKind::kWait) {
      const std::pair<size_t, uint32_t> waiter(Find(waits_, WaitLine(rank, op)), Strand(Number(rank), lane));
      step.first = static_cast<uint32_t>(Find(waiters_, waiter));
      step.value = op.value;
    }
    program_.steps.push_back(step);
  }
  return Status();
}

Result<Program> Compiler::Run() {
  program_.ranks = static_cast<uint32_t>(ranks_.size());
  program_.lanes = schedule_.lanes;
  program_.outputs.push_back(0);
  for (const int rank : ranks_) {
    const int chunks = plan::OutputBlocks(schedule_.contract, rank) * schedule_.slices;
    program_.outputs.push_back(program_.outputs.back() + static_cast<uint32_t>(chunks));
    program_.machine.push_back(one() ? 0 : static_cast<uint32_t>(placement_.MachineOf(rank)));
    program_.place.push_back(placement_.is_flat() ? static_cast<uint32_t>(rank)
                                                  : static_cast<uint32_t>(placement_.LocalIndex(rank)));
    for (int lane = 0; lane < schedule_.lanes; ++lane) AXCCL_RETURN_IF_ERROR(CollectLines(rank, lane));
  }
  AXCCL_RETURN_IF_ERROR(MatchLines());
  MakeCounters();
  for (const int rank : ranks_) {
    AXCCL_RETURN_IF_ERROR(NumberInputs(rank));
    for (int lane = 0; lane < schedule_.lanes; ++lane) {
      program_.begin.push_back(program_.steps.size());
      AXCCL_RETURN_IF_ERROR(AddStrand(rank, lane));
    }
  }
  program_.begin.push_back(program_.steps.size());
  return std::move(program_);
}

}  // namespace

Result<Program> CompileAll(const Schedule& schedule, const Placement& placement, bool in_place) {
  return Compiler(schedule, placement, -1, in_place).Run();
}

bool AreAlike(const Placement& placement) {
  if (placement.is_flat()) return false;
  const int each = placement.ranks() / placement.machines();
  for (int r = 0; r < placement.ranks(); ++r) {
    if (placement.MachineOf(r) != r / each) return false;
  }
  return placement.ranks() % each == 0;
}

Result<Program> CompileOne(const Schedule& schedule, const Placement& placement, int machine, bool in_place) {
  return Compiler(schedule, placement, machine, in_place).Run();
}

}  // namespace axccl::sim
