// Calls on views in the interpreter: how their operands are announced and moved, and outputs filled with zeros. Part of
// interpreter.h.
//
// A portion of the call's block is split over the operands that it covers, and each of these stretches is a move of
// boxes. The forms of the blocks are the same on all ranks; where a peer has its operands it has announced.
#pragma once

#include <cstdint>

#include "kernels/cuda/interpreter.h"

namespace axccl::kernels::cuda {

// By all threads.
AXCCL_DEVICE void Interpreter::AnnounceViews() {
  constexpr uint32_t kWords = sizeof(ViewPlace) / sizeof(uint64_t);
  const ViewOperand* const operands = task().views->operands();
  auto* const to = reinterpret_cast<uint64_t*>(channel().ViewsOf(channel().self, context().sequence));
  for (uint32_t w = ThreadIndex(); w < task().views->num_operands * kWords; w += NumThreads())
    StoreRelaxed(to + w, reinterpret_cast<const uint64_t*>(&operands[w / kWords].own)[w % kWords]);
}

// The operand whose block has byte `at` of the call's block, or the one before that byte.
AXCCL_DEVICE uint32_t Interpreter::FirstView(uint64_t at) const {
  const ViewOperand* const operands = task().views->operands();
  uint32_t first = 0, num = task().views->num_operands;
  while (num > 1) {
    const uint32_t half = num / 2;
    if (operands[first + half].at <= at) first += half;
    num -= half;
  }
  return first;
}

AXCCL_DEVICE void Interpreter::MoveViews(const Step& step, uint64_t turn, uint64_t begin, uint64_t count) {
  const ViewTable& table = *task().views;
  const uint64_t from = begin * context().element, to = from + count * context().element;
#pragma unroll 1
  for (uint32_t i = FirstView(from); i < table.num_operands; ++i) {
    const ViewOperand& view = table.operands()[i];
    if (view.at >= to) return;
    const uint64_t end = view.at + view.count * view.element;
    const uint64_t low = from > view.at ? from : view.at, high = to < end ? to : end;
    if (low >= high) continue;
    MoveView(step, turn, i, Stretch{(low - view.at) / view.element, (high - low) / view.element, low - from});
  }
}

// The operands are located by a thread each.
AXCCL_DEVICE void Interpreter::MoveView(const Step& step, uint64_t turn, uint32_t view, const Stretch& stretch) {
  const ViewOperand& form = task().views->operands()[view];
  const Operand* const operands = context().program->operands() + step.operands;
  Box& box = block_.box;
  Move& move = block_.moves[moves_++ % 2];
  Barrier();  // nobody looks at the last box any more
  if (IsFirst()) {
    box.Begin(form.num_dims, form.sizes, form.element, stretch.begin, stretch.count);
    DescribeMove(step, stretch.count, form.element, &move);
  }
  Barrier();
  bool scaled = false;
  for (uint32_t i = ThreadIndex(); i < uint32_t{step.num_dst} + step.num_src; i += NumThreads()) {
    const Operand operand = operands[i];
    move.place[i] = PutView(operand, turn, i, view, stretch.in_portion);
    scaled |= i >= step.num_dst && SetFactor(operand, i, &move);
  }
  scaled = BarrierCount(scaled) != 0;
  if (IsFirst()) {
    move.scaled = scaled;
    box.End(move.place, move.num_operands(), !move.IsCopy());
  }
  Barrier();
  MoveBox(move, box);
}

AXCCL_DEVICE uint8_t* Interpreter::PutView(const Operand& operand, uint64_t turn, uint32_t index, uint32_t view,
                                           uint64_t in_portion) {
  if (operand.space == Space::kSlot) return block_.box.Put(index, PlaceOfSlot(operand, turn) + in_portion, nullptr);
  const bool own = operand.rank == channel().self;
  const ViewPlace& place =
      own ? task().views->operands()[view].own : channel().ViewsOf(operand.rank, context().sequence)[view];
  const uint64_t* const maps = channel().members()[operand.rank].maps;
  const bool input = operand.space == Space::kInput;
  const uint64_t offset = LoadRelaxed(input ? &place.input_offset : &place.output_offset);
  const uint32_t map = LoadRelaxed(input ? &place.input_map : &place.output_map);
  const uint64_t step = LoadRelaxed(reinterpret_cast<const uint64_t*>(input ? &place.input_step : &place.output_step));
  auto* const first = reinterpret_cast<uint8_t*>(maps[map] + offset + operand.block * step);
  return block_.box.Put(index, first, input ? place.input_strides : place.output_strides);
}

// At the end, as in place the output is an input that others read.
AXCCL_DEVICE void Interpreter::FillZeros() {
  const ViewTable& table = *task().views;
#pragma unroll 1
  for (uint32_t i = 0; i < table.num_operands; ++i) {
    const ViewOperand& view = table.operands()[i];
    const uint64_t most = kVisitBytes / view.element;
    for (uint64_t at = 0; view.is_zero != 0 && at < view.count; at += most)
      FillZeros(view, at, view.count - at < most ? view.count - at : most);
  }
}

AXCCL_DEVICE void Interpreter::FillZeros(const ViewOperand& view, uint64_t begin, uint64_t count) {
  Box& box = block_.box;
  Move& move = block_.moves[moves_++ % 2];
  Barrier();
  if (IsFirst()) {
    const Step step{.num_dst = 1, .num_src = 1};
    DescribeMove(step, count, view.element, &move);
    move.scaled = false;
    box.Begin(view.num_dims, view.sizes, view.element, begin, count);
    const uint64_t map = channel().members()[channel().self].maps[view.own.output_map];
    move.place[0] = box.Put(0, reinterpret_cast<uint8_t*>(map + view.own.output_offset), view.own.output_strides);
    const auto* const none = reinterpret_cast<const int64_t*>(channel().zeros);
    move.place[1] = box.Put(1, reinterpret_cast<uint8_t*>(channel().zeros), none);
    box.End(move.place, 2, false);
  }
  Barrier();
  MoveBox(move, box);
}

}  // namespace axccl::kernels::cuda
