#include "src/plan/together.h"

#include <algorithm>
#include <limits>

namespace axccl::plan {
namespace {

// Whether the operation can be part of a group.
bool MayJoin(const Op& op) {
  if (op.kind != OpKind::kCopy && op.kind != OpKind::kReduce) return false;
  if (op.dst.size() != 1 || op.dst[0].parts != 1 || IsSlot(op.dst[0])) return false;
  if (op.kind == OpKind::kCopy) return !IsSlot(op.src[0]);
  return std::all_of(op.src.begin(), op.src.end(), [](const Operand& src) { return src.buffer == Buffer::kInput; });
}

bool Alike(const Op& a, const Op& b) {
  if (a.kind != b.kind || a.finish != b.finish || a.src.size() != b.src.size() || a.dst[0].part != b.dst[0].part)
    return false;
  const auto same_rank = [](const Operand& x, const Operand& y) { return x.rank == y.rank; };
  return a.kind == OpKind::kCopy || std::equal(a.src.begin(), a.src.end(), b.src.begin(), same_rank);
}

}  // namespace

std::vector<uint16_t> FindTogether(const Lane& lane) {
  std::vector<uint16_t> together(lane.ops.size(), 1);
  size_t after = lane.ops.size();  // the operation that follows
  for (size_t i = lane.ops.size(); i-- > 0;) {
    const Op& op = lane.ops[i];
    if (op.kind == OpKind::kNop) continue;
    const bool joins = after < lane.ops.size() && MayJoin(op) && MayJoin(lane.ops[after]) && Alike(op, lane.ops[after]);
    if (joins && together[after] < std::numeric_limits<uint16_t>::max())
      together[i] = static_cast<uint16_t>(together[after] + 1);
    after = i;
  }
  return together;
}

}  // namespace axccl::plan
