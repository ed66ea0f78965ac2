// What the forms of operands share when they move data: a step is cut into chunks, a chunk's operands are gathered in
// the workspace, and a mover of kernels/ is called for it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "src/exec/host/factors.h"
#include "src/exec/host/operands.h"

namespace axccl::exec {

// Bytes of one mover call: long enough to stream, short enough to notice aborts in time.
inline constexpr uint64_t kMoveBytes = 512u << 10;

// The data of one call of the movers: elements of a part of a step's operands.
struct Chunk {
  uint64_t turn;      // of the channel
  uint32_t part;      // of the operands
  uint64_t in_block;  // bytes from the start of the block in a buffer
  uint64_t in_part;   // bytes from the start of the part in a slot of the first set
  uint64_t count;     // elements
};

// The operands of a chunk that have been gathered, and their common properties. A copy onto itself is left out.
struct Gathered {
  int num_dst = 0, num_src = 0;
  int num_slots = 0;         // calls without views: destinations in scratch, which come first
  bool scaled = false;       // some sources are multiplied as they are read
  bool to_user_only = true;  // no destination is in scratch
};

// The address of an operand of the call's buffers or of scratch.
inline std::byte* AddressOf(const Binding& binding, uint32_t operand, const Chunk& chunk) {
  const OperandPlace& place = binding.prepared->places[operand];
  const uint64_t inside = place.part_bytes != 0 ? chunk.part * place.part_bytes + chunk.in_part : chunk.in_block;
  return *place.base + place.offset[chunk.turn % plan::kRotation] + inside;
}

// Whether nothing is computed.
inline bool IsPlainCopy(const Binding& binding, const Step& step, bool scaled) {
  const Scales& scales = binding.scales;
  return step.kind == plan::OpKind::kCopy && !scaled && !(step.finish && (scales.divisor != 0 || scales.result));
}

// Calls move(chunk) for the rest of a step, in chunks of at most `most` bytes; it returns a Status. clip(range) is the
// part of a block's range that the step's block has.
template <class Clip, class Move>
Moved MoveInChunks(const Binding& binding, const Step& step, uint32_t lane, uint64_t turn, uint32_t together,
                   uint64_t most, MoveProgress* progress, int64_t* budget, Status* status, const Clip& clip,
                   const Move& move) {
  const Prepared& prepared = *binding.prepared;
  const uint64_t size = ElementSize(binding.call.type);
  const uint64_t channel_turn = binding.host->turns().next() + turn;
  const uint64_t set = prepared.sets.OffsetOf(channel_turn);
  for (; progress->part < step.parts; ++progress->part, progress->offset = 0) {
    const uint32_t data_part = prepared.program->data_parts[step.data_parts + progress->part];
    const plan::Range range =
        clip(prepared.whole                 ? plan::Range{0, binding.call.count}
             : prepared.slicing.slices != 0 ? plan::Resolve(prepared.slicing, data_part)
                                            : plan::Resolve(prepared.partition, lane, turn, data_part));
    while (progress->offset < range.count) {
      if (*budget <= 0) return Moved::kSome;
      uint64_t count = range.count - progress->offset;
      if (count * size > most) count = most / size;
      const uint64_t begin = range.begin + progress->offset;
      const Chunk chunk{channel_turn, progress->part, begin * size, set + progress->offset * size, count};
      if (Status moved = move(chunk); !moved.ok()) {
        *status = std::move(moved);
        return Moved::kFailed;
      }
      progress->offset += count;
      *budget -= static_cast<int64_t>(count * size * together);
    }
  }
  progress->part = 0;
  return Moved::kAll;
}

}  // namespace axccl::exec
