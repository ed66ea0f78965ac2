#include "kernels/host/box.h"

#include <algorithm>
#include <memory>
#include <new>

#include "kernels/host/box_nest.h"
#include "kernels/host/box_plan.h"
#include "kernels/host/box_rows.h"
#include "kernels/host/box_tiles.h"
#include "kernels/host/box_weave.h"
#include "kernels/host/isa.h"
#include "src/base/float_mode.h"
#include "src/base/sizes.h"

namespace axccl::kernels {
namespace {

// Bytes of all copies of CopyBoxes before they alternate: fits the second-level cache.
constexpr uint64_t kTurnBytes = 65536;
// Scratch for up to 256 operands.
constexpr size_t kStackBytes = 32768;

// A copy to one destination needs no scratch memory: every piece is one nest. No fence.
void CopyPieces(const IsaTable& isa, const BoxRange& range, const BoxOperand& dst, const BoxOperand& src,
                size_t element_bytes, bool non_temporal) {
  const BoxOperands operands = {&dst, 1, &src, 1, element_bytes};
  const BoxPlan plan = PlanBox(range, operands);
  BoxPieces pieces(plan, range.begin, range.count);
  BoxPiece piece;
  while (pieces.Next(&piece)) {
    CopyNest nest;
    nest.dst = piece.Address(plan, dst, element_bytes);
    nest.src = piece.Address(plan, src, element_bytes);
    nest.run = element_bytes;
    nest.non_temporal = non_temporal;
    nest.num_dims = plan.num_dims - piece.first;
    for (int i = 0; i < nest.num_dims; ++i) {
      const int d = piece.first + i;
      nest.dim[i] = {i == 0 ? piece.extent : plan.size[d], plan.Stride(dst, d, element_bytes),
                     plan.Stride(src, d, element_bytes)};
    }
    RunNest(isa, &nest);
  }
}

// All copies of a range, alternately. Not around the cache, because the next copy writes to the same lines.
void CopyInTurns(const IsaTable& isa, const BoxRange& range, const BoxCopies& copies) {
  const uint64_t most = std::max<uint64_t>(1, kTurnBytes / copies.element_bytes / static_cast<uint64_t>(copies.num));
  BoxRange turn = range;
  for (uint64_t done = 0; done < range.count; done += turn.count) {
    turn.begin = range.begin + done;
    turn.count = std::min(most, range.count - done);
    for (int i = 0; i < copies.num; ++i)
      CopyPieces(isa, turn, copies.dst[i], copies.src[i], copies.element_bytes, false);
  }
}

void CopySeveral(const IsaTable& isa, const BoxRange& range, const BoxCopies& copies, bool non_temporal) {
  if (range.count == 0) return;
  const Weave weave(isa, range, copies);
  const uint64_t row = weave.row_elements();
  if (row == 0 && CopyRows(isa, range, copies, non_temporal)) return;
  if (row == 0) return CopyInTurns(isa, range, copies);
  const uint64_t range_end = range.begin + range.count;
  const uint64_t begin = (range.begin + row - 1) / row;
  const uint64_t end = range_end / row;
  if (begin >= end) return CopyInTurns(isa, range, copies);
  const BoxRange head = {range.num_dims, range.sizes, range.begin, begin * row - range.begin};
  const BoxRange tail = {range.num_dims, range.sizes, end * row, range_end - end * row};
  CopyInTurns(isa, head, copies);
  weave.Run(begin, end, non_temporal);
  CopyInTurns(isa, tail, copies);
  if (non_temporal) isa.stream_fence();
}

void MoveTiles(const IsaTable& isa, const BoxRange& range, const BoxOperands& operands, const BoxReduceRequest* reduce,
               bool non_temporal) {
  // The size depends on the number of operands, which is unlimited; the stack of an application's thread is limited.
  alignas(kCacheLine) char on_stack[kStackBytes];
  const size_t bytes = TiledMove::ScratchBytes(operands);
  struct Free {
    void operator()(char* p) const { ::operator delete[](p, std::align_val_t{64}); }
  };
  const std::unique_ptr<char[], Free> on_heap(bytes <= kStackBytes ? nullptr : new (std::align_val_t{64}) char[bytes]);
  char* const scratch = bytes <= kStackBytes ? on_stack : on_heap.get();
  const BoxPlan plan = PlanBox(range, operands);
  TiledMove move(isa, plan, operands, reduce, non_temporal, scratch);
  BoxPieces pieces(plan, range.begin, range.count);
  BoxPiece piece;
  while (pieces.Next(&piece)) move.Run(piece);
  if (non_temporal) isa.stream_fence();
}

// Copies a range that is packed in all operands, unless there are too many. Fences what it streams.
bool CopyPacked(const IsaTable& isa, const BoxOperand* dst, int num_dst, const BoxOperand& src, size_t bytes,
                bool non_temporal) {
  constexpr int kMost = 16;
  if (num_dst > kMost || src.strides != nullptr) return false;
  void* to[kMost];
  for (int i = 0; i < num_dst; ++i) {
    if (dst[i].strides != nullptr) return false;
    to[i] = dst[i].data;
  }
  isa.copy(to, num_dst, src.data, bytes, non_temporal);
  return true;
}

void CopyAny(const IsaTable& isa, const BoxRange& range, const BoxOperand* dst, int num_dst, const BoxOperand& src,
             size_t element_bytes, bool non_temporal) {
  if (range.count == 0 || CopyPacked(isa, dst, num_dst, src, range.count * element_bytes, non_temporal)) return;
  if (num_dst == 1) {
    CopyPieces(isa, range, *dst, src, element_bytes, non_temporal);
    if (non_temporal) isa.stream_fence();
  } else {
    MoveTiles(isa, range, {dst, num_dst, &src, 1, element_bytes}, nullptr, non_temporal);
  }
}

bool IsCopy(const BoxReduceRequest& r) {
  return r.num_src == 1 && r.pre == nullptr && r.post_divisor <= 1 && r.post == nullptr;
}

void ReduceAny(const IsaTable& isa, const BoxReduceRequest& r) {
  const size_t element_bytes = ElementSize(r.type);
  if (IsCopy(r)) {
    CopyAny(isa, r.range, r.dst, r.num_dst, *r.src, element_bytes, r.non_temporal);
  } else if (r.range.count > 0) {
    const DefaultFloatMode mode;
    MoveTiles(isa, r.range, {r.dst, r.num_dst, r.src, r.num_src, element_bytes}, &r, r.non_temporal);
  }
}

void ReduceSeveral(const IsaTable& isa, const BoxReduceRequest& requests) {
  const DefaultFloatMode mode;
  if (requests.range.count == 0 || (!IsCopy(requests) && ReduceRows(isa, requests))) return;
  BoxReduceRequest one = requests;
  one.num_dst = 1;
  for (int i = 0; i < requests.num_dst; ++i) {
    one.dst = requests.dst + i;
    one.src = requests.src + static_cast<ptrdiff_t>(i) * requests.num_src;
    ReduceAny(isa, one);
  }
}

}  // namespace

void CopyBox(const BoxRange& range, const BoxOperand* dst, int num_dst, const BoxOperand& src, size_t element_bytes,
             bool non_temporal) {
  CopyAny(ActiveTable(), range, dst, num_dst, src, element_bytes, non_temporal);
}

void CopyBoxes(const BoxRange& range, const BoxOperand* dst, const BoxOperand* src, int num, size_t element_bytes,
               bool non_temporal) {
  CopySeveral(ActiveTable(), range, {dst, src, num, element_bytes}, non_temporal);
}

void ReduceBox(const BoxReduceRequest& request) { ReduceAny(ActiveTable(), request); }

void ReduceBoxes(const BoxReduceRequest& requests) { ReduceSeveral(ActiveTable(), requests); }

void CopyBoxWithIsa(int isa, const BoxRange& range, const BoxOperand* dst, int num_dst, const BoxOperand& src,
                    size_t element_bytes, bool non_temporal) {
  CopyAny(TableOf(isa), range, dst, num_dst, src, element_bytes, non_temporal);
}

void CopyBoxesWithIsa(int isa, const BoxRange& range, const BoxOperand* dst, const BoxOperand* src, int num,
                      size_t element_bytes, bool non_temporal) {
  CopySeveral(TableOf(isa), range, {dst, src, num, element_bytes}, non_temporal);
}

void ReduceBoxWithIsa(int isa, const BoxReduceRequest& request) { ReduceAny(TableOf(isa), request); }

void ReduceBoxesWithIsa(int isa, const BoxReduceRequest& requests) { ReduceSeveral(TableOf(isa), requests); }

}  // namespace axccl::kernels
