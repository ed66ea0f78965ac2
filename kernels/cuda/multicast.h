// Moves of programs with slots of all ranks (NVLink SHARP).
//
// Slots of all ranks are read and written in whole pieces of 16 bytes, also the last one: a slot begins and ends with a
// cache line, and what is beyond its data is never read as data. Destinations that are no such slots get the data
// alone.
#pragma once

#include "kernels/cuda/block.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/movers.h"
#include "kernels/cuda/packed.h"
#include "kernels/cuda/pieces.h"
#include "kernels/cuda/portion.h"
#include "kernels/cuda/primitives.h"

#if defined(AXCCL_CUDA_HAS_MULTICAST)
namespace axccl::kernels::cuda {

// The bytes of the words in which operands that are no slots of all ranks are read and written.
AXCCL_DEVICE uint32_t WordBesides(const Move& move) {
  uint64_t misaligned = 0;
  for (uint32_t i = 0; i < move.num_operands(); ++i)
    misaligned |= IsOfAll(move.place[i]) ? 0 : reinterpret_cast<uint64_t>(move.place[i]);
  return misaligned % 16 == 0 ? 16 : misaligned % 4 == 0 ? 4 : misaligned % 2 == 0 ? 2 : 1;
}

// Sources of pieces, `size` bytes from byte `at` on.
struct LoadsOwn {
  static AXCCL_DEVICE Raw Load(const uint8_t* from, uint32_t at, uint32_t size, uint32_t word) {
    return word == 16 && size == 16 ? LoadRaw(from + at) : LoadPart(from + at, size, word < 4 ? word : 4);
  }
};
template <SwitchFold kFold>
struct LoadsFold {
  static AXCCL_DEVICE Raw Load(const uint8_t* from, uint32_t at, uint32_t, uint32_t) {
    return LoadOfAll<kFold>(AddressOfAll(from) + at);
  }
};

AXCCL_DEVICE void StoreToAny(uint8_t* to, uint32_t at, const Raw& raw, uint32_t size, uint32_t word) {
  if (IsOfAll(to)) return StoreToAll(AddressOfAll(to) + at, raw);
  if (word == 16 && size == 16) return StoreRaw(to + at, raw);
  StorePart(to + at, raw, size, word < 4 ? word : 4, 0);
}

template <class Source>
AXCCL_DEVICE_CALL inline void MovePieces(const Move& in_shared) {
  constexpr uint32_t kTogether = 4;  // loads of a thread in flight
  const Move& move = InShared(in_shared);
  const auto bytes = static_cast<uint32_t>(move.count) * move.element;
  const uint32_t pieces = (bytes + 15) / 16, word = WordBesides(move), step = NumThreads();
  const uint8_t* const from = move.src()[0];
  const auto size_of = [&](uint32_t piece) { return bytes - 16 * piece < 16 ? bytes - 16 * piece : 16; };
#pragma unroll 1
  for (uint32_t first = ThreadIndex(); first < pieces; first += kTogether * step) {
    Raw raw[kTogether];
#pragma unroll
    for (uint32_t u = 0; u < kTogether; ++u) {
      const uint32_t piece = first + u * step;
      if (piece < pieces) raw[u] = Source::Load(from, 16 * piece, size_of(piece), word);
    }
#pragma unroll 1
    for (uint32_t d = 0; d < move.num_dst; ++d) {
#pragma unroll
      for (uint32_t u = 0; u < kTogether; ++u) {
        const uint32_t piece = first + u * step;
        if (piece < pieces) StoreToAny(move.place[d], 16 * piece, raw[u], size_of(piece), word);
      }
    }
  }
}

// Stores a source to destinations some of which are slots of all ranks, or the fold of the slots of all ranks to any
// destinations; scales nothing.
AXCCL_DEVICE void MoveToOrFromAll(const Move& move) {
  if (!IsOfAll(move.src()[0])) return MovePieces<LoadsOwn>(move);
  switch (SwitchFoldOf(move.type, move.combine)) {
#define AXCCL_FOLD(fold) \
  case SwitchFold::fold: \
    return MovePieces<LoadsFold<SwitchFold::fold>>(move)
    AXCCL_FOLD(kSumFloat32);
    AXCCL_FOLD(kSumFloat64);
    AXCCL_FOLD(kSumFloat16);
    AXCCL_FOLD(kSumBfloat16);
    AXCCL_FOLD(kSum32);
    AXCCL_FOLD(kSum64);
    AXCCL_FOLD(kMinInt32);
    AXCCL_FOLD(kMinUint32);
    AXCCL_FOLD(kMinInt64);
    AXCCL_FOLD(kMinUint64);
    AXCCL_FOLD(kMaxInt32);
    AXCCL_FOLD(kMaxUint32);
    AXCCL_FOLD(kMaxInt64);
    AXCCL_FOLD(kMaxUint64);
    AXCCL_FOLD(kAnd);
    AXCCL_FOLD(kOr);
    AXCCL_FOLD(kXor);
#undef AXCCL_FOLD
    default:
      return;  // the host makes no such task
  }
}

AXCCL_DEVICE uint8_t* MulticastPlace(const Context& c, const Operand& operand, const Portion& portion) {
  if (operand.space < Space::kSlot) return Place(c, operand, portion);
  const MulticastArea& area = c.task.channel->multicast;
  const uint64_t slot = uint64_t{operand.slot} + portion.part;
  const uint64_t at = OffsetOfSlot(c, area.half_bytes, slot, portion.turn) + portion.offset * c.element;
  return operand.space == Space::kAllSlots ? OfAll(area.all + at) : area.own + at;
}

// Moves a portion. The switch stores what it gets, and folds only what it loads itself: anything else is first made in
// the rank's own slot, which then goes to all.
AXCCL_DEVICE void MoveByMulticast(const Step& step, const Portion& portion, const Context& c, Move* to) {
  Move& move = *to;
  const MulticastArea& area = c.task.channel->multicast;
  const Operand* const operands = c.program->operands() + step.operands;
  bool scaled = false;
  for (uint32_t i = ThreadIndex(); i < uint32_t{step.num_dst} + step.num_src; i += NumThreads()) {
    const Operand operand = operands[i];
    move.place[i] = MulticastPlace(c, operand, portion);
    scaled |= i >= step.num_dst && SetFactor(c, operand, i, &move);
  }
  if (IsFirst()) DescribeMove(c, step, portion.count, c.element, &move);
  scaled = BarrierCount(scaled) != 0;
  if (IsFirst()) move.scaled = scaled;
  Barrier();
  if (step.packed == 0) return MoveElements(move);
  if (step.packed == Step::kFoldsOfAll || move.IsCopy()) return MoveToOrFromAll(move);
  if (IsFirst()) move.place[0] = AddressOfAll(move.place[0]) - area.all + area.own;
  Barrier();
  ReduceElements(move);
  Barrier();  // all of it has been stored
  if (IsFirst()) {
    move.place[1] = move.place[0];
    move.place[0] = OfAll(move.place[1] - area.own + area.all);
    move.num_src = 1;
  }
  Barrier();
  MovePieces<LoadsOwn>(move);
}

AXCCL_DEVICE void RunProbe(const MulticastProbe& probe) {
  const uint32_t at = 16 * ThreadIndex();
  StoreToAll(probe.pattern_of_all + at, LoadRaw(probe.pattern + at));
  StoreRaw(probe.sums + at, LoadOfAll<SwitchFold::kSumFloat32>(probe.numbers_of_all + at));
}

}  // namespace axccl::kernels::cuda
#endif
