// Calls on views: announcing and moving their operands, and filling outputs with zeros.
//
// A portion of the call's block is split over the operands that it covers, and each of these stretches is a move of
// boxes. The shapes of the blocks are the same on all ranks; each peer has announced where its operands are.
#pragma once

#include <cstdint>

#include "kernels/cuda/block.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/movers.h"
#include "kernels/cuda/portion.h"
#include "kernels/cuda/primitives.h"

namespace axccl::kernels::cuda {

// Called by all threads.
AXCCL_DEVICE void AnnounceViews(const Context& c) {
  constexpr uint32_t kWords = sizeof(ViewPlace) / sizeof(uint64_t);
  Channel& channel = *c.task.channel;
  const ViewOperand* const operands = c.task.views->operands();
  auto* const to = reinterpret_cast<uint64_t*>(channel.ViewsOf(channel.self, c.sequence));
  for (uint32_t w = ThreadIndex(); w < c.task.views->num_operands * kWords; w += NumThreads())
    StoreRelaxed(to + w, reinterpret_cast<const uint64_t*>(&operands[w / kWords].own)[w % kWords]);
}

// The operand whose block has byte `at` of the call's block, or the one before that byte.
AXCCL_DEVICE uint32_t FirstView(const ViewTable& table, uint64_t at) {
  const ViewOperand* const operands = table.operands();
  uint32_t first = 0, num = table.num_operands;
  while (num > 1) {
    const uint32_t half = num / 2;
    if (operands[first + half].at <= at) first += half;
    num -= half;
  }
  return first;
}

// The part of a portion that belongs to one operand.
struct Stretch {
  uint32_t view;
  uint64_t begin, count;  // elements of the operand's block
  uint64_t in_portion;    // bytes of the portion before the stretch
};

// Adds the strides of operand `index` of the move to the box, and returns the operand's address.
AXCCL_DEVICE uint8_t* PutView(const Context& c, const Operand& operand, const Portion& portion, const Stretch& stretch,
                              uint32_t index, Box* box) {
  if (operand.space == Space::kSlot)
    return box->Put(index, PlaceOfSlot(c, operand, portion) + stretch.in_portion, nullptr);
  Channel& channel = *c.task.channel;
  const bool own = operand.rank == channel.self;
  const ViewPlace& place =
      own ? c.task.views->operands()[stretch.view].own : channel.ViewsOf(operand.rank, c.sequence)[stretch.view];
  const uint64_t* const maps = channel.members()[operand.rank].maps;
  const bool input = operand.space == Space::kInput;
  const uint64_t offset = LoadRelaxed(input ? &place.input_offset : &place.output_offset);
  const uint32_t map = LoadRelaxed(input ? &place.input_map : &place.output_map);
  const uint64_t step = LoadRelaxed(reinterpret_cast<const uint64_t*>(input ? &place.input_step : &place.output_step));
  auto* const first = reinterpret_cast<uint8_t*>(maps[map] + offset + operand.block * step);
  return box->Put(index, first, input ? place.input_strides : place.output_strides);
}

// One thread for each operand locates it.
AXCCL_DEVICE void MoveView(const Step& step, const Stretch& stretch, BlockState* block) {
  const Context& c = block->context;
  const ViewOperand& form = c.task.views->operands()[stretch.view];
  const Operand* const operands = c.program->operands() + step.operands;
  Box& box = block->box;
  Move& move = block->moves[0];
  Barrier();  // no thread reads the last box and move any more
  if (IsFirst()) {
    box.Begin(form.num_dims, form.sizes, form.element, stretch.begin, stretch.count);
    DescribeMove(c, step, stretch.count, form.element, &move);
  }
  Barrier();
  bool scaled = false;
  for (uint32_t i = ThreadIndex(); i < uint32_t{step.num_dst} + step.num_src; i += NumThreads()) {
    const Operand operand = operands[i];
    move.place[i] = PutView(c, operand, block->portion, stretch, i, &box);
    scaled |= i >= step.num_dst && SetFactor(c, operand, i, &move);
  }
  scaled = BarrierCount(scaled) != 0;
  if (IsFirst()) {
    move.scaled = scaled;
    box.End(move.place, move.num_operands(), !move.IsCopy());
  }
  Barrier();
  MoveBox(move, box);
}

// Moves BlockState::portion.
AXCCL_DEVICE_CALL inline void MoveViews(const Step& step, BlockState* in_shared) {
  BlockState* const block = &InShared(*in_shared);
  const Context& c = block->context;
  const ViewTable& table = *c.task.views;
  const uint64_t from = block->portion.begin * c.element, to = from + block->portion.count * c.element;
#pragma unroll 1
  for (uint32_t i = FirstView(table, from); i < table.num_operands; ++i) {
    const ViewOperand& view = table.operands()[i];
    if (view.at >= to) return;
    const uint64_t end = view.at + view.count * view.element;
    const uint64_t low = from > view.at ? from : view.at, high = to < end ? to : end;
    if (low >= high) continue;
    const Stretch stretch{i, (low - view.at) / view.element, (high - low) / view.element, low - from};
    MoveView(step, stretch, block);
  }
}

AXCCL_DEVICE void FillZeros(const ViewOperand& view, uint64_t begin, uint64_t count, BlockState* block) {
  const Context& c = block->context;
  Channel& channel = *c.task.channel;
  Box& box = block->box;
  Move& move = block->moves[0];
  Barrier();
  if (IsFirst()) {
    const Step step{.num_dst = 1, .num_src = 1};
    DescribeMove(c, step, count, view.element, &move);
    move.scaled = false;
    box.Begin(view.num_dims, view.sizes, view.element, begin, count);
    const uint64_t map = channel.members()[channel.self].maps[view.own.output_map];
    move.place[0] = box.Put(0, reinterpret_cast<uint8_t*>(map + view.own.output_offset), view.own.output_strides);
    const auto* const none = reinterpret_cast<const int64_t*>(channel.zeros);
    move.place[1] = box.Put(1, reinterpret_cast<uint8_t*>(channel.zeros), none);
    box.End(move.place, 2, false);
  }
  Barrier();
  MoveBox(move, box);
}

// Called at the end, because in place the output is an input that others read.
AXCCL_DEVICE_CALL inline void FillZeros(BlockState* in_shared) {
  BlockState* const block = &InShared(*in_shared);
  const ViewTable& table = *block->context.task.views;
#pragma unroll 1
  for (uint32_t i = 0; i < table.num_operands; ++i) {
    const ViewOperand& view = table.operands()[i];
    const uint64_t most = kPortionBytes / view.element;
    for (uint64_t at = 0; view.is_zero != 0 && at < view.count; at += most)
      FillZeros(view, at, view.count - at < most ? view.count - at : most, block);
  }
}

}  // namespace axccl::kernels::cuda
