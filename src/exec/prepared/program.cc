#include "src/exec/prepared/program.h"

#include <algorithm>
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
  step.chunk = op.chunk;
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

// Collects the data parts of all moves.
struct PartFinder {
  struct Carried {};
  Carried Signal(size_t, const Op&) { return {}; }
  void Pass(size_t, const Op&, Carried) {}
  void Move(size_t strand, const Op& op) {
    const std::vector<uint16_t>& parts = slots.Move(strand, op);
    (*found)[strand].insert((*found)[strand].end(), parts.begin(), parts.end());
  }

  SlotParts slots;
  std::vector<std::vector<uint16_t>>* found;  // [strand]
};

// Lines are not side by side as slots are, and each holds one slot.
std::vector<int16_t> InlineEndpoints(const Schedule& schedule) {
  std::vector<int16_t> endpoints = schedule.inline_endpoint;
  endpoints.resize(schedule.slots, -1);
  bool together = false;
  plan::ForEachOperand(
      schedule, [&](size_t, size_t, const Operand& o) { together |= o.buffer == Buffer::kScratch && o.parts > 1; });
  if (together) std::fill(endpoints.begin(), endpoints.end(), int16_t{-1});
  for (int16_t& endpoint : endpoints) {
    if (std::count(schedule.inline_endpoint.begin(), schedule.inline_endpoint.end(), endpoint) > 1) endpoint = -1;
  }
  return endpoints;
}

}  // namespace

Result<ProgramMaker> ProgramMaker::Of(std::shared_ptr<const plan::Plan> plan) {
  ProgramMaker maker;
  const Schedule& schedule = plan->schedule;
  maker.data_parts_.resize(schedule.program.size() * schedule.lanes);
  PartFinder finder{SlotParts(schedule), &maker.data_parts_};
  AXCCL_RETURN_IF_ERROR(FollowTurn(schedule, &finder));
  maker.inline_endpoint_ = InlineEndpoints(schedule);
  for (const plan::Lane* lane : plan::StrandsOf(schedule)) maker.plan_ops_ += lane->ops.size();
  maker.for_others_.resize(schedule.program.size());
  plan::ForEachOperand(schedule, [&](size_t rank, size_t, const Operand& o) {
    ++maker.plan_operands_;
    if (o.rank == rank) return;
    maker.for_others_[o.rank].input |= o.buffer == Buffer::kInput;
    maker.for_others_[o.rank].output |= o.buffer == Buffer::kOutput;
  });
  maker.plan_ = std::move(plan);
  return maker;
}

std::shared_ptr<Program> ProgramMaker::Make(int rank) const {
  auto program = std::make_shared<Program>();
  const Schedule& schedule = plan_->schedule;
  program->algorithm = tune::AlgorithmOf(tune::NumberOf(schedule.algorithm)).data();
  program->rank = rank;
  for (size_t l = 0; l < schedule.lanes; ++l) {
    const plan::Lane& lane = schedule.program[static_cast<size_t>(rank)][l];
    std::vector<uint16_t> signals(schedule.endpoints);
    std::vector<Step> steps;
    steps.reserve(lane.ops.size());
    const std::vector<uint16_t> together = plan::FindTogether(lane);
    auto parts = static_cast<uint32_t>(program->data_parts.size());
    for (size_t i = 0; i < lane.ops.size(); ++i) {
      const Op& op = lane.ops[i];
      if (op.kind == OpKind::kNop) continue;
      Step& step = steps.emplace_back(MakeStep(op, &signals, program.get()));
      step.together = together[i];
      step.data_parts = std::exchange(parts, parts + step.parts);
    }
    const std::vector<uint16_t>& found = data_parts_[static_cast<size_t>(rank) * schedule.lanes + l];
    program->data_parts.insert(program->data_parts.end(), found.begin(), found.end());
    program->lanes.push_back(std::move(steps));
  }
  program->multicast = std::any_of(program->operands.begin(), program->operands.end(),
                                   [](const Operand& o) { return o.buffer == Buffer::kMulticast; });
  if (schedule.direct && schedule.slices == 0)
    program->prologue = schedule.program.size();  // one signal, ranks - 1 waits
  program->inline_endpoint = inline_endpoint_;
  program->for_others = for_others_[static_cast<size_t>(rank)];
  program->plan_ops = plan_ops_;
  program->plan_operands = plan_operands_;
  return program;
}

size_t ProgramMaker::bytes() const {
  size_t bytes =
      sizeof(*this) + inline_endpoint_.size() * sizeof(int16_t) + for_others_.size() * sizeof(BuffersForOthers);
  for (const auto& parts : data_parts_) bytes += sizeof(parts) + parts.size() * sizeof(uint16_t);
  return bytes;
}

Result<std::shared_ptr<const Program>> Program::Make(std::shared_ptr<const plan::Plan> plan, int rank) {
  AXCCL_ASSIGN_OR_RETURN(const ProgramMaker maker, ProgramMaker::Of(std::move(plan)));
  std::shared_ptr<Program> program = maker.Make(rank);
  program->plan = maker.plan();
  return std::shared_ptr<const Program>(std::move(program));
}

size_t Program::bytes() const {
  size_t bytes = sizeof(Program) + operands.size() * sizeof(Operand) + data_parts.size() * sizeof(uint16_t) +
                 inline_endpoint.size() * sizeof(int16_t) + (outbound != nullptr ? outbound->bytes() : 0);
  for (const std::vector<Step>& steps : lanes) bytes += sizeof(steps) + steps.size() * sizeof(Step);
  return bytes;
}

}  // namespace axccl::exec
