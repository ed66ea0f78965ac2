// cp.async.bulk: copies of whole pieces of memory that a unit of the block makes by itself (bulk.h).
#include <algorithm>
#include <bit>

#include "tools/softgpu/engine/bulk.h"
#include "tools/softgpu/engine/memory_access.h"

namespace softgpu::engine {
namespace {

constexpr uint32_t kMultiple = 16;  // for addresses and sizes

// kind: direction; a, b: addresses of target and source, v[0] is added to the latter; c: bytes; e, v[1]: the mbarrier
// that receives the number of bytes.
enum class Bulk : uint8_t { kGlobalToShared, kSharedToGlobal, kSharedToShared };

std::byte* SharedPointer(Warp& w, const Instr& in, uint32_t lane, uint64_t address, uint32_t bytes) {
  const Block& block = *w.block;
  const uint64_t offset = static_cast<uint32_t>(address);
  if (offset + bytes > block.shared_bytes) {
    FailAddress(w, in, lane, offset, bytes, "is outside the shared memory of the block");
    return nullptr;
  }
  return block.shared + offset;
}

std::byte* GlobalPointer(Warp& w, const Instr& in, uint32_t lane, uint64_t address, uint32_t bytes) {
  if (!w.execution->ranges().Holds(address, bytes, in.hint)) {
    FailAddress(w, in, lane, address, bytes, "is in no allocated memory");
    return nullptr;
  }
  return reinterpret_cast<std::byte*>(address);
}

// The mbarrier that receives the bytes of a copy. Null if the launch has failed.
std::byte* MbarrierOfCopy(Warp& w, const Instr& in, uint32_t lane, uint64_t address) {
  std::byte* const word = HostPointer<Window::kShared>(w, in, lane, address, sizeof(uint64_t));
  if (word == nullptr) return nullptr;
  const auto offset = static_cast<uint32_t>(address);
  if (!w.block->bulk.IsInitialised(offset)) {
    w.Fail(in, lane, "there is no mbarrier: it was not initialised");
    return nullptr;
  }
  if (!w.block->bulk.IsFenced(offset)) {
    w.Fail(in, lane, "there was no fence.mbarrier_init or fence.proxy.async since the mbarrier was initialised");
    return nullptr;
  }
  return word;
}

void BeginOne(Warp& w, const Instr& in, uint32_t lane) {
  const Bulk direction = static_cast<Bulk>(in.kind);
  const uint64_t target = w.In(in.a)[lane] + static_cast<uint64_t>(in.offset),
                 source = w.In(in.b)[lane] + static_cast<uint64_t>(int64_t{in.v[0]});
  const uint32_t bytes = static_cast<uint32_t>(w.In(in.c)[lane]);
  BulkUnit& unit = w.block->bulk;
  if ((target | source | bytes) % kMultiple != 0)
    return w.Fail(in, lane, "addresses and size of a bulk copy must be multiples of 16");
  BulkCopy copy;
  copy.warp = &w;
  copy.instr = &in;
  copy.lane = lane;
  copy.bytes = bytes;
  copy.from_global = direction == Bulk::kGlobalToShared;
  copy.to_global = direction == Bulk::kSharedToGlobal;
  copy.from = copy.from_global ? GlobalPointer(w, in, lane, source, bytes) : SharedPointer(w, in, lane, source, bytes);
  copy.to = copy.to_global ? GlobalPointer(w, in, lane, target, bytes) : SharedPointer(w, in, lane, target, bytes);
  if (copy.from == nullptr || copy.to == nullptr) return;
  if (!copy.from_global && unit.HasUnfencedWrite(static_cast<uint32_t>(source), bytes))
    return w.Fail(in, lane, "threads have written what is copied, and there was no fence.proxy.async since");
  if (copy.to_global) {
    copy.group = unit.OpenGroup(w.index * kWarpLanes + lane);
  } else {
    copy.mbarrier = MbarrierOfCopy(w, in, lane, w.In(in.e)[lane] + static_cast<uint64_t>(int64_t{in.v[1]}));
    if (copy.mbarrier == nullptr) return;
  }
  if (bytes != 0) unit.Begin(std::move(copy));
}

void RunBulk(Warp& w, const Instr& in, uint32_t lanes) {
  for (uint32_t rest = lanes; rest != 0 && !w.execution->failed(); rest &= rest - 1)
    BeginOne(w, in, static_cast<uint32_t>(std::countr_zero(rest)));
  w.progressed = true;
}

void RunCommit(Warp& w, const Instr&, uint32_t lanes) {
  ForLanes(lanes, [&](uint32_t i) { w.block->bulk.CommitGroup(w.index * kWarpLanes + i); });
}

// offset: the number of groups that may remain; flag: only their sources.
void RunWait(Warp& w, const Instr& in, uint32_t lanes) {
  ForLanes(lanes, [&](uint32_t i) {
    w.block->bulk.EndGroups(w.index * kWarpLanes + i, static_cast<uint32_t>(in.offset), in.flag);
  });
}

bool DecodeGroup(Decoder& decoder) {
  if (decoder.Take("commit_group")) {
    decoder.Emit(RunCommit);
    return true;
  }
  decoder.Take("wait_group");
  const bool read = decoder.Take("read");
  if (decoder.operand(0).kind != OperandIr::kImmediate) return false;
  Instr& in = decoder.Emit(RunWait);
  in.offset = static_cast<int64_t>(decoder.operand(0).bits);
  in.flag = read;
  return true;
}

}  // namespace

// Decodes what follows cp.async.bulk.
bool DecodeBulk(Decoder& decoder) {
  if (decoder.Take("prefetch")) {
    decoder.TakeStartingWith("");
    return true;
  }
  const auto& modifiers = decoder.statement().modifiers;
  if (std::ranges::count(modifiers, "commit_group") + std::ranges::count(modifiers, "wait_group") != 0)
    return DecodeGroup(decoder);
  if (decoder.Take("tensor")) return false;
  decoder.TakeStartingWith("L2::");  // the policy that follows has no effect here
  const bool group = decoder.Take("bulk_group");
  const bool signals = decoder.Take("mbarrier::complete_tx::bytes");
  const bool global = decoder.Take("global"), to_cluster = decoder.Take("shared::cluster");
  const bool of_block = decoder.Take("shared::cta");
  if (group == signals || decoder.operands() < (signals ? 4 : 3)) return false;
  const Bulk direction = group ? Bulk::kSharedToGlobal : global ? Bulk::kGlobalToShared : Bulk::kSharedToShared;
  if (direction == Bulk::kGlobalToShared ? to_cluster == of_block : !of_block || to_cluster == global) return false;
  Space space = Space::kGeneric;
  Instr target, source, barrier;
  decoder.Address(decoder.operand(0), &space, &target);
  decoder.Address(decoder.operand(1), &space, &source);
  if (signals) decoder.Address(decoder.operand(3), &space, &barrier);
  const ColumnId bytes = decoder.Source(2, Type::kU32);
  Instr& in = decoder.Emit(RunBulk);
  in.a = target.a;
  in.offset = target.offset;
  in.b = source.a;
  in.v[0] = static_cast<int32_t>(source.offset);
  in.e = barrier.a;
  in.v[1] = static_cast<int32_t>(barrier.offset);
  in.c = bytes;
  in.kind = static_cast<uint8_t>(direction);
  return true;
}

}  // namespace softgpu::engine
