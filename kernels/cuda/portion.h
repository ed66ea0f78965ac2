// A portion of a step's data: the addresses of its move's operands, and the factors that they are multiplied by.
//
// The code here and in views.h uses the strand's context, but not the interpreter.
#pragma once

#include <cstdint>

#include "kernels/cuda/block.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/movers.h"
#include "kernels/cuda/packed.h"
#include "kernels/cuda/primitives.h"

namespace axccl::kernels::cuda {

inline constexpr uint64_t kPortionBytes = 4 << 20;  // limit; a visit of a strand moves little more

// Where slot `slot` of the lane is in its rank's scratch, in that turn. `half`: bytes that turns of one parity use.
AXCCL_DEVICE uint64_t OffsetOfSlot(const Context& c, uint64_t half, uint64_t slot, uint64_t turn) {
  const Cut& cut = c.task.cut;
  const uint64_t set = turn % kRotation * half + cut.sets.OffsetOf(turn);
  return set + (uint64_t{c.lane} * c.program->slots + slot) * cut.slot_bytes;
}

// A slot holds one part, from its start.
AXCCL_DEVICE uint8_t* PlaceOfSlot(const Context& c, const Operand& operand, const Portion& portion) {
  Channel& channel = *c.task.channel;
  if (c.packing != Packing::kNone) {
    const bool rows = c.packing == Packing::kRows;
    const auto endpoint = static_cast<uint32_t>(operand.endpoint);
    return Tagged(PackedSlot(channel, operand.rank, endpoint, portion.turn, rows), rows);
  }
  uint8_t* const scratch =
      channel.members()[operand.rank].scratch[c.grown ? Member::kGrown : operand.between * c.task.cut.between];
  const uint64_t half = c.grown ? channel.grown_half_bytes : channel.half_bytes;
  const uint64_t slot = uint64_t{operand.slot} + portion.part;
  return scratch + OffsetOfSlot(c, half, slot, portion.turn) + portion.offset * c.element;
}

// The address of an operand. The addresses of other ranks' buffers come from their announcements.
AXCCL_DEVICE uint8_t* Place(const Context& c, const Operand& operand, const Portion& portion) {
  if (operand.space == Space::kSlot) return PlaceOfSlot(c, operand, portion);
  const Task& task = c.task;
  const bool own = operand.rank == task.channel->self;
  const Binding& binding = task.channel->bindings()[operand.rank];
  uint8_t* base;
  if (operand.space == Space::kInput) {
    base = own ? static_cast<uint8_t*>(const_cast<void*>(task.input)) : binding.input;
  } else {
    base = own ? static_cast<uint8_t*>(task.output) : binding.output;
  }
  return base + (operand.block * task.cut.partition.count + portion.begin) * c.element;
}

AXCCL_DEVICE Factor InputFactor(const Context& c, const Operand& operand) {
  const bool own = operand.rank == c.task.channel->self || c.task.scaling != Scaling::kPreMultiply;
  return own ? c.own_factor : c.task.channel->bindings()[operand.rank].factor;
}

// Sets the factor of source `index`; returns whether the source is multiplied by it.
AXCCL_DEVICE bool SetFactor(const Context& c, const Operand& operand, uint32_t index, Move* move) {
  if (!c.scales) return false;
  const bool raw = operand.space == Space::kInput;
  move->factor[index] = raw ? InputFactor(c, operand) : c.one;
  return raw;
}

// Fills in everything but the operands.
AXCCL_DEVICE void DescribeMove(const Context& c, const Step& step, uint64_t count, uint32_t element, Move* move) {
  move->count = count;
  move->packing = Packing::kNone;
  move->divisor = step.finish != 0 ? c.divisor : 0;
  move->post = c.post;
  move->element = element;
  move->num_dst = step.num_dst;
  move->num_src = step.num_src;
  move->type = c.task.type;
  move->combine = c.task.combine;
  move->round_factored = c.task.group_order != 0;
  move->scales_result = step.finish != 0 && c.scales_result;
}

// One thread for each operand locates it.
AXCCL_DEVICE void MovePortion(const Step& step, const Portion& portion, const Context& c, Move* to) {
  Move& move = *to;
  const Operand* const operands = c.program->operands() + step.operands;
  bool scaled = false;  // some source is a raw input, which is multiplied
  for (uint32_t i = ThreadIndex(); i < uint32_t{step.num_dst} + step.num_src; i += NumThreads()) {
    const Operand operand = operands[i];
    move.place[i] = Place(c, operand, portion);
    scaled |= i >= step.num_dst && SetFactor(c, operand, i, &move);
  }
  if (IsFirst()) DescribeMove(c, step, portion.count, c.element, &move);
  if (c.scales) scaled = BarrierCount(scaled) != 0;
  if (IsFirst()) {
    move.scaled = scaled;
    move.packing = c.packing;
    move.flag = c.packing == Packing::kRows ? RowFlag(portion.turn) : PackedFlag(portion.turn);
  }
  Barrier();
  MoveElements(move);
}

}  // namespace axccl::kernels::cuda
