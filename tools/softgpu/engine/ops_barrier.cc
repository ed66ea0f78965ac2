// bar, barrier and barrier.cluster.
#include "tools/softgpu/engine/memory_access.h"

namespace softgpu::engine {

bool DecodeWarpBarrier(Decoder& decoder);  // ops_warp.cc

namespace {

// a: the barrier; b: the number of threads (flag2: given); kind: reduction; flag: waits.
void RunBarrier(Warp& w, const Instr& in, uint32_t lanes) {
  const uint32_t first = static_cast<uint32_t>(std::countr_zero(lanes));
  const uint64_t index = static_cast<uint32_t>(w.In(in.a)[first]);
  const uint32_t expected = static_cast<uint32_t>(w.In(in.b)[first]);
  if (index >= kBarriers) {
    w.Fail(in, first, "there is no barrier " + std::to_string(index));
    return;
  }
  const uint32_t yes = static_cast<uint32_t>(std::popcount(w.Predicate(in.pa) & lanes));
  w.block->Arrive(static_cast<uint32_t>(index), {&w, &in, lanes}, expected, in.kind == 0 ? 0 : yes, in.flag);
}

void RunClusterArrive(Warp& w, const Instr& in, uint32_t lanes) { w.block->ArriveCluster({&w, &in, lanes}); }
void RunClusterWait(Warp& w, const Instr& in, uint32_t lanes) { w.block->WaitCluster({&w, &in, lanes}); }

bool DecodeCluster(Decoder& decoder) {
  const bool arrive = decoder.Take("arrive");
  if (!arrive && !decoder.Take("wait")) return false;
  for (std::string_view order : {"release", "relaxed", "acquire", "aligned"}) decoder.Take(order);
  decoder.Emit(arrive ? RunClusterArrive : RunClusterWait);
  return true;
}

bool DecodeReduction(Decoder& decoder) {
  constexpr std::string_view names[] = {"popc", "and", "or"};
  const int kind = decoder.TakeOneOf(names, -1);
  decoder.TakeType();
  decoder.Take("aligned");
  if (kind < 0 || decoder.operands() < 3) return false;
  const bool counted = decoder.operands() > 3;
  const ColumnId a = decoder.Source(1, Type::kU32);
  const ColumnId b = counted ? decoder.Source(2, Type::kU32) : decoder.columns().Constant(0);
  Instr& in = decoder.Emit(RunBarrier);
  in.a = a;
  in.b = b;
  in.flag = true;
  in.kind = static_cast<uint8_t>(kind + 1);
  in.pa = decoder.SourcePredicate(counted ? 3 : 2);
  if (kind == 0) {
    in.d = decoder.Target(0);
  } else {
    in.pd = decoder.TargetPredicateOf(decoder.operand(0));
  }
  return true;
}

bool DecodeBarrier(Decoder& decoder) {
  if (decoder.Take("warp")) return decoder.Take("sync") && DecodeWarpBarrier(decoder);
  if (decoder.Take("cluster")) return DecodeCluster(decoder);
  decoder.Take("cta");
  if (decoder.Take("red")) return DecodeReduction(decoder);
  const bool sync = decoder.Take("sync");
  if (!sync && !decoder.Take("arrive")) return false;
  decoder.Take("aligned");
  const ColumnId a = decoder.Source(0, Type::kU32);
  const ColumnId b = decoder.operands() > 1 ? decoder.Source(1, Type::kU32) : decoder.columns().Constant(0);
  Instr& in = decoder.Emit(RunBarrier);
  in.a = a;
  in.b = b;
  in.flag = sync;
  return true;
}

constexpr OpcodeRow kRows[] = {{"bar", DecodeBarrier}, {"barrier", DecodeBarrier}};

}  // namespace

std::span<const OpcodeRow> BarrierOpcodes() { return kRows; }

}  // namespace softgpu::engine
