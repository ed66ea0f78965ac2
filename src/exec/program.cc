#include "src/exec/program.h"

#include <algorithm>
#include <map>
#include <utility>

namespace axccl::exec {
namespace {

using plan::Buffer;
using plan::Op;
using plan::OpKind;
using plan::Operand;
using plan::Schedule;

// Follows which part of the data every slot holds, by running the schedule symbolically in any order its signals allow (a
// verified schedule leaves no race, so any order gives the same), and notes it for the moves of one rank.
class SlotTracker {
 public:
  SlotTracker(const Schedule& schedule, Program* program) : schedule_(schedule), program_(program) {
    const size_t places = schedule.program.size() * schedule.lanes;
    next_.resize(places);
    signalled_.resize(places * schedule.endpoints);
    slot_part_.resize(places * schedule.slots);
  }

  Status Run() {
    bool moved = true;
    while (moved) {
      moved = false;
      for (size_t rank = 0; rank < schedule_.program.size(); ++rank) {
        for (size_t lane = 0; lane < schedule_.lanes; ++lane) moved |= RunLane(rank, lane);
      }
    }
    for (size_t rank = 0; rank < schedule_.program.size(); ++rank) {
      for (size_t lane = 0; lane < schedule_.lanes; ++lane) {
        if (next_[Place(rank, lane)] != schedule_.program[rank][lane].ops.size())
          return MakeStatus(Code::kInternalError, "plan %s: rank %zu lane %zu never ends", schedule_.algorithm.c_str(), rank,
                            lane);
      }
    }
    return Status();
  }

 private:
  size_t Place(size_t rank, size_t lane) const { return rank * schedule_.lanes + lane; }

  bool RunLane(size_t rank, size_t lane) {
    const std::vector<Op>& ops = schedule_.program[rank][lane].ops;
    size_t& next = next_[Place(rank, lane)];
    const size_t first = next;
    for (; next < ops.size(); ++next) {
      const Op& op = ops[next];
      if (op.kind == OpKind::kWait) {
        const size_t source = Place(static_cast<size_t>(op.peer), op.from_lane);
        if (signalled_[source * schedule_.endpoints + op.endpoint] < op.value) break;
      } else if (op.kind == OpKind::kSignal) {
        ++signalled_[Place(rank, lane) * schedule_.endpoints + op.endpoint];
      } else if (op.kind != OpKind::kNop) {
        Move(rank, lane, op);
      }
    }
    return next != first;
  }

  uint16_t& SlotPart(size_t lane, const Operand& operand, size_t i) {
    return slot_part_[Place(operand.rank, lane) * schedule_.slots + operand.part + i];
  }

  void Move(size_t rank, size_t lane, const Op& op) {
    const Operand& lead = op.dst[0].buffer != Buffer::kScratch ? op.dst[0] : op.src[0];
    for (size_t i = 0; i < op.dst[0].parts; ++i) {
      const uint16_t part = lead.buffer == Buffer::kScratch ? SlotPart(lane, lead, i)
                                                            : static_cast<uint16_t>(lead.part + i);
      for (const Operand& dst : op.dst) {
        if (dst.buffer == Buffer::kScratch) SlotPart(lane, dst, i) = part;
      }
      if (static_cast<int>(rank) == program_->rank) program_->data_parts.push_back(part);
    }
    if (static_cast<int>(rank) == program_->rank) order_.push_back(&op);
  }

 public:
  // The moves of the own rank in the order their entries were appended to data_parts.
  const std::vector<const Op*>& order() const { return order_; }

 private:
  const Schedule& schedule_;
  Program* const program_;
  std::vector<size_t> next_;
  std::vector<uint32_t> signalled_;
  std::vector<uint16_t> slot_part_;
  std::vector<const Op*> order_;
};

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

// Copies, or reductions, that follow each other without signals may be made in any order.
void FindTogether(const Program& program, std::vector<Step>* steps) {
  auto alone = [&program](const Step& step) {
    if (step.kind != OpKind::kCopy && step.kind != OpKind::kReduce) return true;
    if (step.num_dst != 1 || step.parts != 1) return true;
    const Operand* operand = &program.operands[step.operands];
    if (step.kind == OpKind::kCopy)
      return operand[0].buffer == Buffer::kScratch || operand[1].buffer == Buffer::kScratch;
    auto input = [](const Operand& source) { return source.buffer == Buffer::kInput; };
    return operand[0].buffer == Buffer::kScratch || !std::all_of(operand + 1, operand + 1 + step.num_src, input);
  };
  auto alike = [&program](const Step& a, const Step& b) {
    if (a.kind != b.kind || a.finish != b.finish || a.num_src != b.num_src) return false;
    if (program.data_parts[a.data_parts] != program.data_parts[b.data_parts]) return false;
    const Operand* sources = &program.operands[a.operands + 1];
    auto same_rank = [](const Operand& x, const Operand& y) { return x.rank == y.rank; };
    return a.kind == OpKind::kCopy ||
           std::equal(sources, sources + a.num_src, &program.operands[b.operands + 1], same_rank);
  };
  for (size_t i = steps->size(); i-- > 1;) {
    Step& before = (*steps)[i - 1];
    const Step& step = (*steps)[i];
    if (alone(before) || alone(step) || !alike(before, step)) continue;
    before.together = static_cast<uint16_t>(step.together + 1);
  }
}

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

// Lines are not side by side as slots are, and each holds one.
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
  program->rank = rank;
  SlotTracker tracker(schedule, program.get());
  AXCCL_RETURN_IF_ERROR(tracker.Run());

  std::map<const Op*, uint32_t> first_part;
  uint32_t at = 0;
  for (const Op* op : tracker.order()) {
    first_part[op] = at;
    at += op->dst[0].parts;
  }
  for (const plan::Lane& lane : schedule.program[static_cast<size_t>(rank)]) {
    std::vector<uint16_t> signals(schedule.endpoints);
    std::vector<Step> steps;
    steps.reserve(lane.ops.size());
    for (const Op& op : lane.ops) {
      if (op.kind == OpKind::kNop) continue;
      steps.push_back(MakeStep(op, &signals, program.get()));
      if (const auto it = first_part.find(&op); it != first_part.end()) steps.back().data_parts = it->second;
    }
    FindTogether(*program, &steps);
    program->lanes.push_back(std::move(steps));
  }
  if (schedule.direct) program->prologue = schedule.program.size();  // one signal, ranks - 1 waits
  program->inline_endpoint = InlineEndpoints(schedule);
  ForEachOperand(schedule, [&](const Operand&) { ++program->plan_operands; });
  program->plan = std::move(plan);
  return std::shared_ptr<const Program>(std::move(program));
}

}  // namespace axccl::exec
