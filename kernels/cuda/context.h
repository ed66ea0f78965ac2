// The context of a strand: its task, its place in the channel's order, and the steps of its lane.
#pragma once

#include <cstdint>

#include "kernels/cuda/block.h"
#include "kernels/cuda/factors.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/primitives.h"

namespace axccl::kernels::cuda {

AXCCL_DEVICE bool Differ(const Strand& a, const Strand& b) {
  return a.step != b.step || a.turn != b.turn || a.offset != b.offset || a.part != b.part || a.stage != b.stage;
}

AXCCL_DEVICE plan::Run RunOf(const Program& program, uint64_t slot_bytes) {
  return {{program.plan_id[0], program.plan_id[1]}, slot_bytes, program.complete, program.is_barrier};
}

AXCCL_DEVICE void DescribeScaling(Context* context) {
  Context& c = *context;
  const DataType type = c.task.type;
  const bool floats = IsFloat(ScalarType(type)), averages = c.task.scaling == Scaling::kAverage;
  c.element = ElementBytes(type);
  c.scales = (averages && floats) || c.task.scaling == Scaling::kPreMultiply;
  c.one = One(type);
  c.own_factor = averages && floats ? Mean(type, c.task.channel->size) : OwnFactor(c.task, c.element);
  c.divisor = averages && !floats ? c.task.channel->size : 0;
  c.scales_result = c.task.scaling == Scaling::kResult;
  c.post.u64 = c.task.scalar;
}

// Called by a thread before it publishes what the block has done by both addresses of a slot (primitives.h).
AXCCL_DEVICE void FenceAliases([[maybe_unused]] const Context& c) {
#if defined(AXCCL_CUDA_HAS_MULTICAST)
  if (c.multicast) AliasFence();
#endif
}

// All threads copy the task, a word each: the loads of one thread would wait for each other.
AXCCL_DEVICE void CopyTask(const Launch& launch, uint32_t index, Task* to) {
  constexpr size_t kWord = sizeof(uint64_t);
  for (uint32_t w = ThreadIndex(); w < sizeof(Task) / kWord; w += NumThreads()) {
    void* const word = __builtin_assume_aligned(reinterpret_cast<uint8_t*>(to) + kWord * w, kWord);
    if (launch.more != nullptr) {
      const auto* const from = reinterpret_cast<const uint8_t*>(launch.more + index);
      __builtin_memcpy(word, __builtin_assume_aligned(from + kWord * w, kWord), kWord);
    } else {
      const auto* const from = reinterpret_cast<const uint8_t*>(launch.tasks + index);
      __builtin_memcpy(word, __builtin_assume_aligned(from + kWord * w, kWord), kWord);
    }
  }
}

// The program of an operation for which there are several.
AXCCL_DEVICE void UseTaken(uint32_t taken, Context* context) {
  Context& c = *context;
  if (taken == State::kFirst) return;
  c.grown = taken == State::kGrown;
  c.program = c.grown ? c.task.grown : c.task.staged;
  c.task.cut = c.grown ? c.task.grown_cut : c.task.staged_cut;
}

// Called by one thread at the end of such an operation.
AXCCL_DEVICE void CountTaken(const Task& task) {
  State& state = task.channel->state;
  Wait* const wait = task.channel->wait;
  if (state.taken == State::kFirst) {
    StoreRelaxed(&wait->mapped, ++state.mapped);
  } else if (state.taken == State::kGrown) {
    StoreRelaxed(&wait->grown, ++state.grown);
  } else if (task.grown != nullptr) {
    StoreRelaxed(&wait->cramped, ++state.cramped);
  }
}

// Makes the context of a strand at the start of a stage; its task is there already. Called by one thread. The counters
// of the channel stay as they are until the last strand of the task has ended.
AXCCL_DEVICE_CALL inline void Describe(uint32_t lane, Stage stage, Context* in_shared) {
  Context& c = InShared(*in_shared);
  c.lane = lane;
  c.program = c.task.program;
  const bool offers_several = c.task.staged != nullptr;
  c.strands = c.program->lanes;
  if (offers_several && c.task.staged->lanes > c.strands) c.strands = c.task.staged->lanes;
  if (c.task.grown != nullptr && c.task.grown->lanes > c.strands) c.strands = c.task.grown->lanes;
  c.has_steps = c.lane < c.strands;
  if (!c.has_steps) return;
  const State& state = c.task.channel->state;
  c.broken = LoadRelaxed(&state.broken) != 0;
  // Another strand of the operation may have copied the members' addresses already.
  c.unmet = c.task.channel->meeting != nullptr && LoadAcquire(&state.unmet) != 0;
  c.sequence = state.sequence;
  c.turn = state.turn;
  c.grown = false;
  if (offers_several && stage == Stage::kMain) UseTaken(LoadRelaxed(&state.taken), &c);
  c.turns = c.task.cut.turns;
  c.signature = c.next_signature = c.task.signature;
  c.barriers = 0;
  if (offers_several || NeedsBarrier(state.last, RunOf(*c.program, c.task.cut.slot_bytes))) {
    c.barriers = state.turn + 1;
    if (stage == Stage::kMain) {
      c.turn += 1;
    } else {
      // The barrier's signature is the same for all calls.
      c.program = c.task.channel->barrier;
      c.turns = 1;
      c.signature = static_cast<uint32_t>(c.program->plan_id[1]);
    }
  }
  c.multicast = c.program->multicast != 0;
  c.packing = c.task.cut.packing <= c.program->packing ? c.task.cut.packing : Packing::kNone;
  // No flag may be 0.
  if (c.packing == Packing::kWords && PackedFlag(c.turn) == 0) c.packing = Packing::kNone;
  DescribeScaling(&c);
  c.num_steps = 0;
  c.window_begin = c.window_size = 0;
  if (c.lane >= c.program->lanes) return;  // lanes that the barrier, or a program of fewer lanes, does not have
  const uint32_t begin = c.program->lane_begin[c.lane];
  c.steps = c.program->steps() + begin;
  c.num_steps = c.program->lane_begin[c.lane + 1] - begin;
}

}  // namespace axccl::kernels::cuda
