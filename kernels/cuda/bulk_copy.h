// The code of the copies in bulk (movers.h). Must be included only once in a program.
#pragma once

#include <cstdint>

#include "kernels/cuda/bulk.h"
#include "kernels/cuda/movers.h"

#if defined(AXCCL_CUDA_HAS_BULK)

namespace axccl::kernels::cuda {

// The data to copy, in pieces of 16 bytes: one run of memory, at offset `head` of the operands, or a box of runs.
template <bool kBox>
struct BulkPieces {
  uint32_t pieces;
  uint32_t head;
  const Box* box;

  AXCCL_DEVICE uint8_t* Address(uint32_t operand, uint8_t* place, uint32_t piece) const {
    if constexpr (kBox) return InShared(*box).Address(operand, place, piece);
    return place + head + 16 * piece;
  }
  // How many adjacent pieces from `piece` on go into one stage.
  AXCCL_DEVICE uint32_t Together(uint32_t piece) const {
    uint32_t together = pieces - piece;
    if constexpr (kBox) {
      const uint64_t left = InShared(*box).LeftOfRun(piece);
      if (left < together) together = static_cast<uint32_t>(left);
    }
    return together < kBulkStageBytes / 16 ? together : kBulkStageBytes / 16;
  }
};

// Called by the first thread.
template <bool kBox>
struct BulkCopy {
  const Move& move;
  BulkRing& ring;
  BulkPieces<kBox> all;

  AXCCL_DEVICE void Load(uint32_t use, uint32_t piece, uint32_t together) const {
    const uint32_t i = BulkRing::Index(use);
    ring.at[i] = piece;
    ring.bytes[i] = 16 * together;
    ExpectBulk(&ring.gate[i], 16 * together);
    LoadBulk(ring.stage[i], all.Address(move.num_dst, move.src()[0], piece), 16 * together, &ring.gate[i]);
  }
  AXCCL_DEVICE void Store(uint32_t use) const {
    const uint32_t i = BulkRing::Index(use), at = ring.at[i], bytes = ring.bytes[i];
    AwaitGate(&ring.gate[i], BulkRing::Parity(use));
#pragma unroll 1
    for (uint32_t d = 0; d < move.num_dst; ++d) {
      if (move.place[d] != move.src()[0]) StoreBulk(all.Address(d, move.place[d], at), ring.stage[i], bytes);
    }
    CommitBulk();
  }
  AXCCL_DEVICE void Run() const {
    const uint32_t first = ring.used;
    uint32_t loaded = 0, filled = first, emptied = first;
    BulkFence();
    do {
      if (loaded < all.pieces) {
        if (filled - first >= kBulkStages) AwaitBulkRead<kBulkStages - kBulkAhead - 1>();
        const uint32_t together = all.Together(loaded);
        Load(filled++, loaded, together);
        loaded += together;
        if (filled - emptied <= kBulkAhead && loaded < all.pieces) continue;
      }
      Store(emptied++);
    } while (emptied != filled || loaded < all.pieces);
    AwaitBulkWritten();
    ring.used = filled;
  }
};

AXCCL_DEVICE_CALL void CopyRunInBulk(const Move& in_shared, BulkRing* ring, uint32_t pieces, uint32_t head) {
  const BulkCopy<false> copy{InShared(in_shared), InShared(*ring), {pieces, head, nullptr}};
  copy.Run();
}

AXCCL_DEVICE_CALL void CopyBoxInBulk(const Move& in_shared, BulkRing* ring, const Box& box) {
  const BulkCopy<true> copy{InShared(in_shared), InShared(*ring), {static_cast<uint32_t>(box.pieces), 0, &box}};
  copy.Run();
}

}  // namespace axccl::kernels::cuda

#endif
