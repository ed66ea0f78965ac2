#include "src/exec/prepared/program.h"

#include <algorithm>
#include <map>
#include <utility>

#include "src/exec/prepared/follow.h"
#include "src/plan/together.h"
#include "src/tune/tune.h"

namespace axccl::exec {
namespace {

using plan::Buffer;
using plan::Op;
using plan::Operand;
using plan::OpKind;
using plan::Schedule;

Step MakeStep(const Op& op, std::vector<uint16_t>* signals, Program* program) {
  Step step;
  step.kind = op.kind;
  step.finish = op.finish;
  step.peer = op.peer;
  step.from_lane = op.from_lane;
  step.endpoint = op.endpoint;
  step.value = op.kind == OpKind::kSignal ? ++(*signals)[op.endpoint] : op.value;
  if (op.kind == OpKind::kCopy || op.kind == OpKind::kReduce) {
    step.num_dst = static_cast<uint16_t>(op.dst.size());
    step.num_src = static_cast<uint16_t>(op.src.size());
    step.parts = op.dst[0].parts;
    step.operands = static_cast<uint32_t>(program->operands.size());
    program->operands.insert(program->operands.end(), op.dst.begin(), op.dst.end());
    program->operands.insert(program->operands.end(), op.src.begin(), op.src.end());
    program->max_operands = std::max(program->max_operands, op.dst.size() + op.src.size());
  }
  return step;
}

// Collects the data parts of a rank's moves.
struct PartFinder {
  struct Carried {};
  Carried Signal(size_t, const Op&) { return {}; }
  void Pass(size_t, const Op&, Carried) {}
  void Move(size_t strand, const Op& op) {
    const std::vector<uint16_t>& parts = slots.Move(strand, op);
    if (strand / lanes != rank) return;
    first[&op] = static_cast<uint32_t>(found->size());
    found->insert(found->end(), parts.begin(), parts.end());
  }

  SlotParts slots;
  size_t rank, lanes;
  std::vector<uint16_t>* found;
  std::map<const Op*, uint32_t> first;  // first part of a move in `found`
};

// Calls `visit` with every operand of the schedule.
template <class Visit>
void ForEachOperand(const Schedule& schedule, Visit visit) {
  for (const auto& lanes : schedule.program) {
    for (const plan::Lane& lane : lanes) {
      for (const Op& op : lane.ops) {
        for (const Operand& o : op.dst) visit(o);
        for (const Operand& o : op.src) visit(o);
      }
    }
  }
}

// Lines are not side by side as slots are, and each holds one slot.
std::vector<int16_t> InlineEndpoints(const Schedule& schedule) {
  std::vector<int16_t> endpoints = schedule.inline_endpoint;
  endpoints.resize(schedule.slots, -1);
  bool together = false;
  ForEachOperand(schedule, [&](const Operand& o) { together |= o.buffer == Buffer::kScratch && o.parts > 1; });
  if (together) std::fill(endpoints.begin(), endpoints.end(), int16_t{-1});
  for (int16_t& endpoint : endpoints) {
    if (std::count(schedule.inline_endpoint.begin(), schedule.inline_endpoint.end(), endpoint) > 1) endpoint = -1;
  }
  return endpoints;
}

}  // namespace

Result<std::shared_ptr<const Program>> Program::Make(std::shared_ptr<const plan::Plan> plan, int rank) {
  auto program = std::make_shared<Program>();
  const Schedule& schedule = plan->schedule;
  program->algorithm = tune::AlgorithmOf(tune::NumberOf(schedule.algorithm)).data();
  program->rank = rank;
  PartFinder finder{SlotParts(schedule), static_cast<size_t>(rank), schedule.lanes, &program->data_parts, {}};
  AXCCL_RETURN_IF_ERROR(FollowTurn(schedule, &finder));

  for (const plan::Lane& lane : schedule.program[static_cast<size_t>(rank)]) {
    std::vector<uint16_t> signals(schedule.endpoints);
    std::vector<Step> steps;
    steps.reserve(lane.ops.size());
    const std::vector<uint16_t> together = plan::FindTogether(lane);
    for (size_t i = 0; i < lane.ops.size(); ++i) {
      const Op& op = lane.ops[i];
      if (op.kind == OpKind::kNop) continue;
      steps.push_back(MakeStep(op, &signals, program.get()));
      steps.back().together = together[i];
      if (const auto it = finder.first.find(&op); it != finder.first.end()) steps.back().data_parts = it->second;
    }
    program->lanes.push_back(std::move(steps));
  }
  if (schedule.direct) program->prologue = schedule.program.size();  // one signal, ranks - 1 waits
  program->inline_endpoint = InlineEndpoints(schedule);
  ForEachOperand(schedule, [&](const Operand&) { ++program->plan_operands; });
  program->plan = std::move(plan);
  return std::shared_ptr<const Program>(std::move(program));
}

size_t Program::bytes() const {
  size_t bytes = sizeof(Program) + operands.size() * sizeof(Operand) + data_parts.size() * sizeof(uint16_t) +
                 inline_endpoint.size() * sizeof(int16_t) + (outbound != nullptr ? outbound->bytes() : 0);
  for (const std::vector<Step>& steps : lanes) bytes += sizeof(steps) + steps.size() * sizeof(Step);
  return bytes;
}

}  // namespace axccl::exec
