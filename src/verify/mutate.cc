#include "src/verify/mutate.h"

#include <algorithm>
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
    if (op_.kind == OpKind::kAwait || op_.kind == OpKind::kNotify) ListChunk(static_cast<int>(ops.size()));
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

  void ListSignal() {
    AddOthers(Change::kSignalPeer, op_.peer, plan::kAllPeers, s_.contract.ranks);
    AddNeighbours(Change::kSignalEndpoint, op_.endpoint);
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
    Add(Change::kDuplicateOp, 0);
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
      }
    }
    Add(Change::kFlipFinish, 0);
  }

  void ListOperand(const Operand& o) {
    AddOthers(Change::kOperandBuffer, static_cast<int>(o.buffer), 0, multicast_ ? plan::kNumBuffers : 3);
    AddOthers(Change::kOperandRank, o.rank, 0, s_.contract.ranks);
    AddNeighbours(Change::kOperandBlock, o.block);
    AddNeighbours(Change::kOperandPart, o.part);
    AddNeighbours(Change::kOperandParts, o.parts);
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
                                               "duplicate_op"};
  return kNames[static_cast<int>(change)];
}

std::string Describe(const Schedule& schedule, const Mutation& m) {
  std::string text = ChangeName(m.change);
  text += " at " + Where(schedule, m.rank, m.lane, m.index);
  text += " (" + plan::Print(schedule.program[m.rank][m.lane].ops[m.index], m.rank, m.lane) + ")";
  switch (m.change) {
    case Change::kDropOp:
    case Change::kSwapOps:
    case Change::kFlipFinish:
    case Change::kDuplicateOp:
      return text;
    case Change::kChunk:
    case Change::kNotifyOwner:
    case Change::kMoveOp:
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
  return all;
}

void Apply(const Mutation& m, Schedule* schedule) {
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
      lane.ops.insert(lane.ops.begin() + m.index, Op(op));
      lane.ops[m.index].id = UnusedId(*schedule);
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

}  // namespace axccl::verify
