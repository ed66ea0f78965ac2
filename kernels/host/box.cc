#include "kernels/host/box.h"

#include "kernels/host/box_nest.h"
#include "kernels/host/box_plan.h"
#include "kernels/host/box_tiles.h"
#include "kernels/host/isa.h"

namespace axccl::kernels {
namespace {

// A copy to one destination needs no scratch memory: every piece is one nest.
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
  if (non_temporal) isa.stream_fence();
}

void MoveTiles(const IsaTable& isa, const BoxRange& range, const BoxOperands& operands, const BoxReduceRequest* reduce,
               bool non_temporal) {
  constexpr size_t kLineBits = 512;
  // How much depends on the number of operands, which has no limit.
  char* scratch = static_cast<char*>(__builtin_alloca_with_align(TiledMove::ScratchBytes(operands), kLineBits));
  const BoxPlan plan = PlanBox(range, operands);
  TiledMove move(isa, plan, operands, reduce, non_temporal, scratch);
  BoxPieces pieces(plan, range.begin, range.count);
  BoxPiece piece;
  while (pieces.Next(&piece)) move.Run(piece);
  if (non_temporal) isa.stream_fence();
}

void CopyAny(const IsaTable& isa, const BoxRange& range, const BoxOperand* dst, int num_dst, const BoxOperand& src,
             size_t element_bytes, bool non_temporal) {
  if (range.count == 0) return;
  if (num_dst == 1) {
    CopyPieces(isa, range, *dst, src, element_bytes, non_temporal);
  } else {
    MoveTiles(isa, range, {dst, num_dst, &src, 1, element_bytes}, nullptr, non_temporal);
  }
}

void ReduceAny(const IsaTable& isa, const BoxReduceRequest& r) {
  const size_t element_bytes = ElementSize(r.type);
  if (r.num_src == 1 && r.pre == nullptr && r.post_divisor <= 1 && r.post == nullptr) {
    CopyAny(isa, r.range, r.dst, r.num_dst, *r.src, element_bytes, r.non_temporal);
  } else if (r.range.count > 0) {
    MoveTiles(isa, r.range, {r.dst, r.num_dst, r.src, r.num_src, element_bytes}, &r, r.non_temporal);
  }
}

}  // namespace

void CopyBox(const BoxRange& range, const BoxOperand* dst, int num_dst, const BoxOperand& src, size_t element_bytes,
             bool non_temporal) {
  CopyAny(ActiveTable(), range, dst, num_dst, src, element_bytes, non_temporal);
}

void ReduceBox(const BoxReduceRequest& request) { ReduceAny(ActiveTable(), request); }

void CopyBoxWithIsa(int isa, const BoxRange& range, const BoxOperand* dst, int num_dst, const BoxOperand& src,
                    size_t element_bytes, bool non_temporal) {
  CopyAny(TableOf(isa), range, dst, num_dst, src, element_bytes, non_temporal);
}

void ReduceBoxWithIsa(int isa, const BoxReduceRequest& request) { ReduceAny(TableOf(isa), request); }

}  // namespace axccl::kernels
