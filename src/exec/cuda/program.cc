#include "src/exec/cuda/program.h"

#include <algorithm>
#include <cstring>
#include <span>

#include "src/exec/cuda/packing.h"
#include "src/exec/cuda/slots_between.h"

namespace axccl::exec {
namespace {

namespace cuda = kernels::cuda;

static_assert(cuda::kAllPeers == plan::kAllPeers);

cuda::StepKind KindOf(plan::OpKind kind) {
  switch (kind) {
    case plan::OpKind::kCopy:
      return cuda::StepKind::kCopy;
    case plan::OpKind::kReduce:
      return cuda::StepKind::kReduce;
    case plan::OpKind::kWait:
      return cuda::StepKind::kWait;
    case plan::OpKind::kAwait:
      return cuda::StepKind::kAwait;
    case plan::OpKind::kNotify:
      return cuda::StepKind::kNotify;
    default:
      return cuda::StepKind::kSignal;  // programs have no empty operations
  }
}

cuda::Step Convert(const Step& step) {
  cuda::Step out;
  out.kind = KindOf(step.kind);
  out.finish = step.finish;
  out.peer = step.peer;
  out.from_lane = static_cast<uint8_t>(step.from_lane);
  out.endpoint = step.endpoint;
  out.value = out.kind == cuda::StepKind::kAwait || out.kind == cuda::StepKind::kNotify ? step.chunk : step.value;
  out.num_dst = step.num_dst;
  out.num_src = step.num_src;
  out.parts = step.parts;
  out.operands = step.operands;
  out.data_parts = step.data_parts;
  return out;
}

cuda::Operand Convert(const plan::Operand& operand, const Program& program) {
  cuda::Operand out;
  out.rank = operand.rank;
  if (plan::IsSlot(operand)) {
    out.space = operand.buffer == plan::Buffer::kScratch ? cuda::Space::kSlot : cuda::Space::kAllSlots;
    out.slot = operand.part;
    out.endpoint = program.inline_endpoint[operand.part];
  } else {
    out.space = operand.buffer == plan::Buffer::kInput ? cuda::Space::kInput : cuda::Space::kOutput;
    out.block = operand.block;
  }
  return out;
}

// Appends the elements of a table; the header stores their offset.
template <class T>
uint32_t Append(const std::vector<T>& table, std::vector<std::byte>* bytes) {
  const size_t at = RoundUp(bytes->size(), 16);
  bytes->resize(at + table.size() * sizeof(T));
  if (!table.empty()) std::memcpy(bytes->data() + at, table.data(), table.size() * sizeof(T));
  return static_cast<uint32_t>(at);
}

uint32_t IndexOf(const Program& program, size_t lane, const Step& step) {
  return static_cast<uint32_t>(&step - program.lanes[lane].data());
}

void AddFarSlots(std::span<const Outbound::Slot> slots, cuda::Step* signal, std::vector<cuda::FarSlot>* all) {
  signal->operands = static_cast<uint32_t>(all->size());
  signal->parts = static_cast<uint16_t>(slots.size());
  for (const Outbound::Slot& slot : slots) all->push_back({slot.reader, slot.slot, slot.data_part, slot.of_reader});
}

void MarkBetween(const Program& program, const plan::Placement& placement, std::vector<cuda::Operand>* operands) {
  const SlotsBetween between(program.plan->schedule, placement);
  for (size_t lane = 0; lane < program.lanes.size(); ++lane) {
    for (const Step& step : program.lanes[lane]) {
      const size_t end = step.operands + size_t{step.num_dst} + step.num_src;
      for (size_t i = step.operands; i < end; ++i) {
        const plan::Operand& operand = program.operands[i];
        (*operands)[i].between = operand.buffer == plan::Buffer::kScratch && between.Has(lane, operand);
      }
    }
  }
}

bool IsOfAll(const plan::Operand& operand) { return operand.buffer == plan::Buffer::kMulticast; }

// How a move uses slots of all ranks; 0: not at all.
uint8_t UseOfAll(const Program& program, const Step& step) {
  const auto first = program.operands.begin() + step.operands;
  const auto end = first + step.num_dst + step.num_src;
  if (std::any_of(first + step.num_dst, end, IsOfAll)) return cuda::Step::kFoldsOfAll;
  return std::any_of(first, end, IsOfAll) ? cuda::Step::kStoresToAll : 0;
}

// In plans with slots of all ranks, kernels reach these and the rank's own, and store one thing to all at a time.
Status CheckMulticast(const Program& program) {
  const auto is_of_peer = [&](const plan::Operand& o) {
    return o.buffer == plan::Buffer::kScratch && o.rank != program.rank;
  };
  bool runs = std::none_of(program.operands.begin(), program.operands.end(), is_of_peer);
  for (const std::vector<Step>& steps : program.lanes) {
    for (const Step& step : steps) {
      const uint8_t use = UseOfAll(program, step);
      const bool one = use == cuda::Step::kFoldsOfAll || step.num_dst == 1;
      runs &= use == 0 || (step.num_src == 1 && step.parts == 1 && one);
    }
  }
  if (runs) return Status();
  return MakeStatus(Code::kInvalidUsage,
                    "%s uses slots of all ranks in a way that CUDA devices do not run: use another algorithm",
                    program.plan->schedule.algorithm.c_str());
}

Status CheckRoom(const Program& program) {
  const char* const name = program.plan->schedule.algorithm.c_str();
  const int ranks = program.plan->schedule.contract.ranks;
  if (program.lanes.size() > cuda::kMaxLanes)
    return MakeStatus(Code::kInvalidUsage, "%s of %d ranks has %zu lanes, CUDA devices run %u at most: use fewer", name,
                      ranks, program.lanes.size(), cuda::kMaxLanes);
  if (program.max_operands > cuda::kMaxOperands)
    return MakeStatus(Code::kInvalidUsage,
                      "%s of %d ranks has steps of %zu operands, CUDA devices take %u at most: use another algorithm",
                      name, ranks, program.max_operands, cuda::kMaxOperands);
  return Status();
}

}  // namespace

Result<std::vector<std::byte>> MakeCudaProgram(const Program& program, const Outbound* outbound,
                                               const plan::Placement& placement) {
  AXCCL_RETURN_IF_ERROR(CheckRoom(program));
  if (program.multicast) AXCCL_RETURN_IF_ERROR(CheckMulticast(program));
  const plan::Plan& plan = *program.plan;
  cuda::Program header;
  header.plan_id[0] = plan.hash.high;
  header.plan_id[1] = plan.hash.low;
  header.lanes = static_cast<uint32_t>(program.lanes.size());
  header.slots = plan.schedule.slots;
  header.prologue = static_cast<uint32_t>(program.prologue);
  header.complete = plan.complete;
  const CudaPacking packing(program);
  header.packing = packing.packing();
  header.beyond_first = packing.beyond_first();
  header.multicast = program.multicast;
  header.is_barrier = plan.schedule.contract.kind == plan::Kind::kBarrier;

  std::vector<cuda::Step> steps;
  std::vector<cuda::FarSlot> far_slots;
  for (size_t lane = 0; lane < program.lanes.size(); ++lane) {
    for (const Step& step : program.lanes[lane]) {
      steps.push_back(Convert(step));
      if (outbound != nullptr && step.kind == plan::OpKind::kSignal)
        AddFarSlots(outbound->With(static_cast<uint32_t>(lane), IndexOf(program, lane, step)), &steps.back(),
                    &far_slots);
      const bool waits = step.kind == plan::OpKind::kWait;
      const auto rank = static_cast<size_t>(waits ? step.peer : program.rank);
      const size_t from = waits ? step.from_lane : lane;
      if (waits || step.kind == plan::OpKind::kSignal)
        steps.back().packed = packing.Publishes(rank, from, step.endpoint, step.value);
      if (step.kind == plan::OpKind::kCopy || step.kind == plan::OpKind::kReduce)
        steps.back().packed = UseOfAll(program, step);
    }
    header.lane_begin[lane + 1] = static_cast<uint32_t>(steps.size());
  }
  std::vector<cuda::Operand> operands;
  for (const plan::Operand& operand : program.operands) operands.push_back(Convert(operand, program));
  MarkBetween(program, placement, &operands);

  std::vector<std::byte> bytes(sizeof(header));
  header.steps_at = Append(steps, &bytes);
  header.operands_at = Append(operands, &bytes);
  header.data_parts_at = Append(program.data_parts, &bytes);
  header.far_slots_at = Append(far_slots, &bytes);
  header.bytes = static_cast<uint32_t>(bytes.size());
  std::memcpy(bytes.data(), &header, sizeof(header));
  return bytes;
}

kernels::cuda::Cut MakeCudaCut(const Prepared& prepared, kernels::cuda::Packing packing) {
  cuda::Cut cut;
  cut.partition = prepared.partition;
  cut.turns = prepared.turns;
  cut.slot_bytes = prepared.slot_bytes;
  cut.sets = prepared.sets;
  cut.packing = packing;
  cut.whole = prepared.whole;
  return cut;
}

}  // namespace axccl::exec
