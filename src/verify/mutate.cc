#include "src/verify/mutate.h"

#include <algorithm>
#include <map>
#include <utility>

#include "src/plan/text.h"
#include "src/verify/describe.h"

namespace axccl::verify {

using plan::Buffer;
using plan::Lane;
using plan::Op;
using plan::Operand;
using plan::OpKind;
using plan::Schedule;

namespace {

// Lists the mutations of one operation.
class Lister {
 public:
  Lister(const Schedule& s, bool multicast, int rank, int lane, size_t index, std::vector<Mutation>* out)
      : s_(s), multicast_(multicast), op_(s.program[rank][lane].ops[index]), out_(out) {
    at_.rank = static_cast<uint16_t>(rank);
    at_.lane = static_cast<uint16_t>(lane);
    at_.index = static_cast<uint32_t>(index);
  }

  void List() {
    Add(Change::kDropOp, 0);
    const auto& ops = s_.program[at_.rank][at_.lane].ops;
    if (at_.index + 1 < ops.size() && ops[at_.index] != ops[at_.index + 1]) Add(Change::kSwapOps, 0);
    if (op_.kind == OpKind::kSignal) ListSignal();
    if (op_.kind == OpKind::kWait) ListWait();
    if (op_.kind == OpKind::kCopy || op_.kind == OpKind::kReduce) ListData();
    if (op_.kind == OpKind::kAwait || op_.kind == OpKind::kNotify) {
      ListChunk(static_cast<int>(ops.size()));
    } else {
      AddPlaces(Change::kDuplicateOp, static_cast<int>(ops.size()) + 1);
    }
    ListInserted();
  }

 private:
  void Add(Change change, int value) {
    Mutation m = at_;
    m.change = change;
    m.value = value;
    out_->push_back(m);
  }
  // Fields are unsigned, so values below zero do not exist.
  void AddNeighbours(Change change, int value) {
    if (value > 0) Add(change, value - 1);
    Add(change, value + 1);
  }
  void AddOthers(Change change, int value, int first, int end) {
    for (int v = first; v < end; ++v) {
      if (v != value) Add(change, v);
    }
  }

  void AddPlaces(Change change, int end) {
    const int index = static_cast<int>(at_.index);
    for (int distance = 2; distance < end; distance *= 2) {
      if (distance <= index) Add(change, index - distance);
      if (index + distance < end) Add(change, index + distance);
    }
  }

  void ListInserted() {
    const int ranks = s_.contract.ranks;
    if (ranks > 1) {
      if (at_.index < s_.program[(at_.rank + 1) % ranks][at_.lane].ops.size()) Add(Change::kInsertOp, 0);
      Add(Change::kAddPair, (at_.rank + 1 + static_cast<int>(at_.index) % (ranks - 1)) % ranks);
    }
    if (s_.lanes > 1) Add(Change::kAddPair, at_.rank);
  }

  void ListSignal() {
    AddOthers(Change::kSignalPeer, op_.peer, plan::kAllPeers, s_.contract.ranks);
    AddNeighbours(Change::kSignalEndpoint, op_.endpoint);
    Add(Change::kDropPair, 0);
    ListMerged();
  }

  // At the first signal of an endpoint: the others with its destination.
  void ListMerged() {
    const auto& ops = s_.program[at_.rank][at_.lane].ops;
    const auto first = ops.begin() + at_.index;
    const auto of = [](int endpoint) {
      return [endpoint](const Op& op) { return op.kind == OpKind::kSignal && op.endpoint == endpoint; };
    };
    if (std::any_of(ops.begin(), first, of(op_.endpoint))) return;
    for (int e = 0; e < s_.endpoints; ++e) {
      const auto other = std::find_if(ops.begin(), ops.end(), of(e));
      if (other != first && other != ops.end() && other->peer == op_.peer) Add(Change::kMergeEndpoints, e);
    }
  }

  void ListWait() {
    AddOthers(Change::kWaitPeer, op_.peer, 0, s_.contract.ranks);
    AddOthers(Change::kWaitLane, op_.from_lane, 0, s_.lanes);
    AddNeighbours(Change::kWaitEndpoint, op_.endpoint);
    AddNeighbours(Change::kWaitValue, op_.value);
  }

  void ListChunk(int ops) {
    AddNeighbours(Change::kChunk, op_.chunk);
    if (op_.kind == OpKind::kNotify) AddOthers(Change::kNotifyOwner, op_.peer, 0, s_.contract.ranks);
    AddOthers(Change::kMoveOp, static_cast<int>(at_.index), 0, ops);
    Add(Change::kDuplicateOp, static_cast<int>(at_.index));
  }

  void ListData() {
    for (const bool of_source : {false, true}) {
      const auto& operands = of_source ? op_.src : op_.dst;
      at_.of_source = of_source;
      for (size_t i = 0; i < operands.size(); ++i) {
        at_.operand = static_cast<uint16_t>(i);
        ListOperand(operands[i]);
        Add(of_source ? Change::kDropSource : Change::kDropDestination, 0);
        Add(of_source ? Change::kDuplicateSource : Change::kDuplicateDestination, 0);
        if (of_source && i + 1 < operands.size() && operands[i] != operands[i + 1]) Add(Change::kSwapSources, 0);
        for (const int after : {0, 1}) {
          if (of_source && IsInPlace(operands[i])) Add(Change::kOntoItself, after);
        }
      }
    }
    Add(Change::kFlipFinish, 0);
    AddPlaces(Change::kMoveOp, static_cast<int>(s_.program[at_.rank][at_.lane].ops.size()));
    if (!op_.finish) return;
    Add(Change::kFinishSlot, 0);
    if (op_.dst[0].buffer != Buffer::kMulticast) Add(Change::kFinishOutput, 0);
  }

  // Whether it is an input block that is also an output block if its rank runs in place.
  bool IsInPlace(const Operand& o) const {
    int input = 0, output = 0;
    return o.buffer == Buffer::kInput && plan::InPlaceBlocks(s_.contract, o.rank, &input, &output) && o.block == input;
  }

  void ListOperand(const Operand& o) {
    AddOthers(Change::kOperandBuffer, static_cast<int>(o.buffer), 0, multicast_ ? plan::kNumBuffers : 3);
    AddOthers(Change::kOperandRank, o.rank, 0, s_.contract.ranks);
    AddNeighbours(Change::kOperandBlock, o.block);
    AddNeighbours(Change::kOperandPart, o.part);
    AddNeighbours(Change::kOperandParts, o.parts);
    if (!multicast_ || !plan::IsSlot(o)) return;
    if (o.buffer == Buffer::kScratch) return Add(Change::kMulticast, plan::kAllPeers);
    AddOthers(Change::kMulticast, plan::kAllPeers, 0, s_.contract.ranks);
  }

  const Schedule& s_;
  const bool multicast_;  // whether it has multicast operands; others gain none
  const Op& op_;
  std::vector<Mutation>* out_;
  Mutation at_;
};

void ApplyToOperand(const Mutation& m, Operand* o) {
  const auto value = static_cast<uint16_t>(m.value);
  switch (m.change) {
    case Change::kOperandBuffer:
      o->buffer = static_cast<Buffer>(value);
      break;
    case Change::kOperandRank:
      o->rank = value;
      break;
    case Change::kOperandBlock:
      o->block = value;
      break;
    case Change::kOperandPart:
      o->part = value;
      break;
    case Change::kOperandParts:
      o->parts = value;
      break;
    case Change::kMulticast:
      o->buffer = m.value == plan::kAllPeers ? Buffer::kMulticast : Buffer::kScratch;
      o->rank = m.value == plan::kAllPeers ? uint16_t{0} : value;
      break;
    default:
      break;
  }
}

void ApplyToList(const Mutation& m, std::vector<Operand>* operands) {
  const auto at = operands->begin() + m.operand;
  switch (m.change) {
    case Change::kDropSource:
    case Change::kDropDestination:
      operands->erase(at);
      break;
    case Change::kDuplicateSource:
    case Change::kDuplicateDestination:
      operands->insert(at, Operand(*at));
      break;
    case Change::kSwapSources:
      std::swap(*at, *(at + 1));
      break;
    default:
      ApplyToOperand(m, &*at);
  }
}

void MoveOp(const Mutation& m, Lane* lane) {
  const auto from = lane->ops.begin() + m.index, to = lane->ops.begin() + m.value;
  if (from < to) std::rotate(from, from + 1, to + 1);
  if (to < from) std::rotate(to, from, from + 1);
}

uint32_t UnusedId(const Schedule& s) {
  uint32_t id = 0;
  for (const auto& lanes : s.program) {
    for (const Lane& lane : lanes) {
      for (const Op& op : lane.ops) id = std::max(id, op.id + 1);
    }
  }
  return id;
}

void Insert(Op op, size_t index, size_t rank, size_t lane, Schedule* s) {
  op.id = UnusedId(*s);
  auto& ops = s->program[rank][lane].ops;
  ops.insert(ops.begin() + static_cast<ptrdiff_t>(index), std::move(op));
}

// Copies the part of an input to the output that is the same memory if the rank runs in place.
void CopyOntoItself(const Mutation& m, Schedule* s) {
  Op copy;
  copy.kind = OpKind::kCopy;
  copy.src = {s->program[m.rank][m.lane].ops[m.index].src[m.operand]};
  copy.dst = copy.src;
  int input = 0, output = 0;
  plan::InPlaceBlocks(s->contract, copy.src[0].rank, &input, &output);
  copy.dst[0].buffer = Buffer::kOutput;
  copy.dst[0].block = static_cast<uint16_t>(output);
  Insert(std::move(copy), m.index + m.value, m.rank, m.lane, s);
}

void FinishLater(const Mutation& m, Schedule* s) {
  Op& op = s->program[m.rank][m.lane].ops[m.index];
  Op copy = op;
  copy.kind = OpKind::kCopy;
  if (m.change == Change::kFinishSlot) {
    op.dst = {{Buffer::kScratch, m.rank, 0, s->slots, op.dst[0].parts}};
    s->slots += op.dst[0].parts;
    s->inline_endpoint.resize(s->slots, -1);
  }
  copy.src = {op.dst[0]};
  op.finish = false;
  Insert(std::move(copy), m.index + 1, m.rank, m.lane, s);
}

using SignalOf = std::pair<int, int>;  // endpoint and value

std::map<uint32_t, SignalOf> SignalsById(const Lane& lane) {
  std::map<uint32_t, SignalOf> signals;
  std::map<int, int> made;
  for (const Op& op : lane.ops) {
    if (op.kind == OpKind::kSignal) signals[op.id] = {op.endpoint, ++made[op.endpoint]};
  }
  return signals;
}

// Calls change(lane), which changes the signals of the lane that the mutation names. The waits for each of them remain
// waits for it; those for a signal that is gone go, too.
template <class F>
void ChangeSignals(const Mutation& m, Schedule* s, F change) {
  Lane& changed = s->program[m.rank][m.lane];
  std::map<SignalOf, uint32_t> ids;
  for (const auto& [id, signal] : SignalsById(changed)) ids[signal] = id;
  change(&changed);
  const std::map<uint32_t, SignalOf> now = SignalsById(changed);
  for (auto& lanes : s->program) {
    for (Lane& lane : lanes) {
      std::erase_if(lane.ops, [&](Op& op) {
        if (op.kind != OpKind::kWait || op.peer != m.rank || op.from_lane != m.lane) return false;
        const auto id = ids.find({op.endpoint, op.value});
        if (id == ids.end()) return false;
        const auto signal = now.find(id->second);
        if (signal == now.end()) return true;
        op.endpoint = static_cast<uint16_t>(signal->second.first);
        op.value = static_cast<uint16_t>(signal->second.second);
        return false;
      });
    }
  }
}

// The wait comes half as far into its lane, so that waits in circles occur.
void AddPair(const Mutation& m, Schedule* s) {
  Op signal, wait;
  signal.kind = OpKind::kSignal;
  signal.peer = static_cast<int16_t>(m.value);
  wait.kind = OpKind::kWait;
  wait.peer = static_cast<int16_t>(m.rank);
  wait.from_lane = m.lane;
  wait.value = 1;
  signal.endpoint = wait.endpoint = s->endpoints++;
  const size_t lane = m.value == m.rank ? (m.lane + 1u) % s->lanes : m.lane;
  Insert(std::move(signal), m.index, m.rank, m.lane, s);
  Insert(std::move(wait), std::min<size_t>(m.index / 2, s->program[m.value][lane].ops.size()), m.value, lane, s);
}

void MergeSlots(const Mutation& m, Schedule* s) {
  for (auto& lanes : s->program) {
    for (Lane& lane : lanes) {
      for (Op& op : lane.ops) {
        for (auto* operands : {&op.dst, &op.src}) {
          for (Operand& o : *operands) {
            if (plan::IsSlot(o) && o.part == m.operand) o.part = static_cast<uint16_t>(m.value);
          }
        }
      }
    }
  }
}

void SetInline(const Mutation& m, Schedule* s) {
  auto& endpoints = s->inline_endpoint;
  const auto endpoint = static_cast<int16_t>(m.value);
  std::replace(endpoints.begin(), endpoints.end(), endpoint, int16_t{-1});
  endpoints[m.operand] = endpoint;
}

void ApplyToLanes(const Mutation& m, Schedule* s) {
  switch (m.change) {
    case Change::kFinishSlot:
      return FinishLater(m, s);
    case Change::kDropPair:
      return ChangeSignals(m, s, [&](Lane* lane) { lane->ops.erase(lane->ops.begin() + m.index); });
    case Change::kAddPair:
      return AddPair(m, s);
    case Change::kMergeEndpoints:
      return ChangeSignals(m, s, [&, merged = s->program[m.rank][m.lane].ops[m.index].endpoint](Lane* lane) {
        for (Op& op : lane->ops) {
          if (op.kind == OpKind::kSignal && op.endpoint == merged) op.endpoint = static_cast<uint16_t>(m.value);
        }
      });
    case Change::kMergeSlots:
      return MergeSlots(m, s);
    default:
      SetInline(m, s);
  }
}

// Those that belong to no operation.
void ListOfSlots(const Schedule& s, std::vector<Mutation>* out) {
  std::vector<bool> used(s.slots, false);
  plan::ForEachOperand(s, [&](size_t, size_t, const Operand& o) {
    if (plan::IsSlot(o) && o.part < s.slots) used[o.part] = true;
  });
  Mutation m;
  for (int slot = 0; slot < s.slots && s.inline_endpoint.size() == s.slots; ++slot) {
    m.operand = static_cast<uint16_t>(slot);
    m.change = Change::kInlineEndpoint;
    for (m.value = -1; m.value < s.endpoints; ++m.value) {
      if (m.value != s.inline_endpoint[slot]) out->push_back(m);
    }
    m.change = Change::kMergeSlots;
    for (m.value = 0; m.value < s.slots && used[slot]; ++m.value) {
      if (m.value != slot) out->push_back(m);
    }
  }
}

}  // namespace

const char* ChangeName(Change change) {
  constexpr const char* kNames[kNumChanges] = {"drop_op",
                                               "swap_ops",
                                               "signal_peer",
                                               "signal_endpoint",
                                               "wait_peer",
                                               "wait_lane",
                                               "wait_endpoint",
                                               "wait_value",
                                               "operand_buffer",
                                               "operand_rank",
                                               "operand_block",
                                               "operand_part",
                                               "operand_parts",
                                               "drop_source",
                                               "drop_destination",
                                               "duplicate_source",
                                               "duplicate_destination",
                                               "swap_sources",
                                               "flip_finish",
                                               "chunk",
                                               "notify_owner",
                                               "move_op",
                                               "duplicate_op",
                                               "insert_op",
                                               "onto_itself",
                                               "multicast",
                                               "finish_output",
                                               "finish_slot",
                                               "drop_pair",
                                               "add_pair",
                                               "merge_endpoints",
                                               "merge_slots",
                                               "inline_endpoint"};
  return kNames[static_cast<int>(change)];
}

std::string Describe(const Schedule& schedule, const Mutation& m) {
  std::string text = ChangeName(m.change);
  if (m.change == Change::kMergeSlots || m.change == Change::kInlineEndpoint)
    return text + " of slot " + std::to_string(m.operand) + " to " + std::to_string(m.value);
  text += " at " + Where(schedule, m.rank, m.lane, m.index);
  text += " (" + plan::Print(schedule.program[m.rank][m.lane].ops[m.index], m.rank, m.lane) + ")";
  switch (m.change) {
    case Change::kDropOp:
    case Change::kSwapOps:
    case Change::kFlipFinish:
    case Change::kInsertOp:
    case Change::kFinishOutput:
    case Change::kFinishSlot:
    case Change::kDropPair:
      return text;
    case Change::kChunk:
    case Change::kNotifyOwner:
    case Change::kMoveOp:
    case Change::kDuplicateOp:
    case Change::kAddPair:
    case Change::kMergeEndpoints:
    case Change::kSignalPeer:
    case Change::kSignalEndpoint:
    case Change::kWaitPeer:
    case Change::kWaitLane:
    case Change::kWaitEndpoint:
    case Change::kWaitValue:
      return text + " to " + std::to_string(m.value);
    default:
      text += m.of_source ? ", source " : ", destination ";
      return text + std::to_string(m.operand) + (m.value != 0 ? " to " + std::to_string(m.value) : "");
  }
}

std::vector<Mutation> Mutations(const Schedule& schedule) {
  std::vector<Mutation> all;
  const bool multicast = plan::UsesMulticast(schedule);
  for (size_t r = 0; r < schedule.program.size(); ++r) {
    for (size_t l = 0; l < schedule.program[r].size(); ++l) {
      for (size_t i = 0; i < schedule.program[r][l].ops.size(); ++i) {
        Lister(schedule, multicast, static_cast<int>(r), static_cast<int>(l), i, &all).List();
      }
    }
  }
  ListOfSlots(schedule, &all);
  return all;
}

void Apply(const Mutation& m, Schedule* schedule) {
  if (!ChangesOneLane(m.change)) return ApplyToLanes(m, schedule);
  Lane& lane = schedule->program[m.rank][m.lane];
  Op& op = lane.ops[m.index];
  switch (m.change) {
    case Change::kDropOp:
      lane.ops.erase(lane.ops.begin() + m.index);
      break;
    case Change::kSwapOps:
      std::swap(op, lane.ops[m.index + 1]);
      break;
    case Change::kMoveOp:
      MoveOp(m, &lane);
      break;
    case Change::kDuplicateOp:
      Insert(op, static_cast<size_t>(m.value), m.rank, m.lane, schedule);
      break;
    case Change::kInsertOp:
      Insert(schedule->program[(m.rank + 1) % schedule->program.size()][m.lane].ops[m.index], m.index, m.rank, m.lane,
             schedule);
      break;
    case Change::kOntoItself:
      CopyOntoItself(m, schedule);
      break;
    case Change::kFinishOutput:
      FinishLater(m, schedule);
      break;
    case Change::kChunk:
      op.chunk = static_cast<uint16_t>(m.value);
      break;
    case Change::kSignalPeer:
    case Change::kNotifyOwner:
    case Change::kWaitPeer:
      op.peer = static_cast<int16_t>(m.value);
      break;
    case Change::kSignalEndpoint:
    case Change::kWaitEndpoint:
      op.endpoint = static_cast<uint16_t>(m.value);
      break;
    case Change::kWaitLane:
      op.from_lane = static_cast<uint16_t>(m.value);
      break;
    case Change::kWaitValue:
      op.value = static_cast<uint16_t>(m.value);
      break;
    case Change::kFlipFinish:
      op.finish = !op.finish;
      break;
    default:
      ApplyToList(m, m.of_source ? &op.src : &op.dst);
  }
}

void Undo(const Mutation& m, const Schedule& original, Schedule* mutant) {
  if (!ChangesOneLane(m.change)) {
    *mutant = original;
  } else {
    mutant->program[m.rank][m.lane] = original.program[m.rank][m.lane];
  }
}

}  // namespace axccl::verify
