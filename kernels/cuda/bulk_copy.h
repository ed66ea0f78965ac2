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
  uint32_t most;  // pieces of a stage

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
    return together < most ? together : most;
  }
  // The piece that is `stages` stages behind `piece`.
  AXCCL_DEVICE uint32_t Behind(uint32_t piece, uint32_t stages) const {
#pragma unroll 1
    for (; stages != 0 && piece < pieces; --stages) piece += Together(piece);
    return piece;
  }
};

// Called by an issuer.
template <bool kBox>
struct BulkCopy {
  const Move& move;
  const BulkRing& all_rings;
  BulkPieces<kBox> all;
  uint32_t issuer;
  IssuerRing& ring;

  AXCCL_DEVICE void Load(uint32_t use, uint32_t piece, uint32_t together) const {
    const uint32_t i = IssuerRing::Index(use);
    ring.at[i] = piece;
    ring.bytes[i] = 16 * together;
    ExpectBulk(&ring.gate[i], 16 * together);
    LoadBulk(all_rings.Stage(issuer, i), all.Address(move.num_dst, move.src()[0], piece), 16 * together, &ring.gate[i]);
  }
  AXCCL_DEVICE void Store(uint32_t use) const {
    const uint32_t i = IssuerRing::Index(use), at = ring.at[i], bytes = ring.bytes[i];
    AwaitGate(&ring.gate[i], IssuerRing::Parity(use));
#pragma unroll 1
    for (uint32_t d = 0; d < move.num_dst; ++d) {
      if (move.place[d] != move.src()[0])
        StoreBulk(all.Address(d, move.place[d], at), all_rings.Stage(issuer, i), bytes);
    }
    CommitBulk();
  }
  AXCCL_DEVICE void Run() const {
    const uint32_t first = ring.used, issuers = NumBulkIssuers();
    uint32_t next = all.Behind(0, issuer), filled = first, emptied = first;
    BulkFence();
    while (next < all.pieces || emptied != filled) {
      if (next < all.pieces) {
        if (filled - first >= kBulkStages) AwaitBulkRead<kBulkStages - kBulkAhead - 1>();
        const uint32_t together = all.Together(next);
        Load(filled++, next, together);
        next = all.Behind(next + together, issuers - 1);
        if (filled - emptied <= kBulkAhead && next < all.pieces) continue;
      }
      Store(emptied++);
    }
    AwaitBulkWritten();
    ring.used = filled;
  }
};

template <bool kBox>
AXCCL_DEVICE void CopyInBulk(const Move& move, BulkRing& ring, uint32_t pieces, uint32_t head, const Box* box) {
  const uint32_t issuer = ThreadIndex() / kIssuerThreads;
  const BulkCopy<kBox> copy{move, ring, {pieces, head, box, ring.stage_bytes / 16}, issuer, ring.of_issuer[issuer]};
  copy.Run();
}

AXCCL_DEVICE_CALL void CopyRunInBulk(const Move& in_shared, BulkRing* ring, uint32_t pieces, uint32_t head) {
  CopyInBulk<false>(InShared(in_shared), InShared(*ring), pieces, head, nullptr);
}

AXCCL_DEVICE_CALL void CopyBoxInBulk(const Move& in_shared, BulkRing* ring, const Box& box) {
  CopyInBulk<true>(InShared(in_shared), InShared(*ring), static_cast<uint32_t>(box.pieces), 0, &box);
}

}  // namespace axccl::kernels::cuda

#endif
