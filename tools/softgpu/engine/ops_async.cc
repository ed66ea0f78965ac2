// mbarrier objects, and asynchronous copies of a few bytes, which are done at once here, as their contracts allow.
#include <algorithm>

#include "tools/softgpu/engine/mbarrier.h"
#include "tools/softgpu/engine/memory_access.h"

namespace softgpu::engine {

bool DecodeBulk(Decoder& decoder);  // ops_bulk.cc

namespace {

enum class BarrierOp : uint8_t {
  kInit,
  kInvalidate,
  kArrive,
  kArriveNoComplete,
  kArriveDrop,
  kArriveExpect,
  kExpect,
  kComplete,
  kTest,
  kTestParity,
};

// The mbarrier at `address`. Null if the launch has failed.
template <Window window>
uint64_t* WordAt(Warp& w, const Instr& in, uint32_t lane, uint64_t address, BarrierOp op) {
  std::byte* const word = HostPointer<window>(w, in, lane, address, sizeof(uint64_t));
  if (word == nullptr) return nullptr;
  const ptrdiff_t offset = word - w.block->shared;
  if (offset < 0 || offset >= static_cast<ptrdiff_t>(w.block->shared_bytes)) {
    FailAddress(w, in, lane, address, sizeof(uint64_t), "is outside the shared memory of the block");
    return nullptr;
  }
  BulkUnit& bulk = w.block->bulk;
  if (op == BarrierOp::kInit) bulk.Initialise(static_cast<uint32_t>(offset));
  if (!bulk.IsInitialised(static_cast<uint32_t>(offset))) {
    w.Fail(in, lane, "there is no mbarrier: it was not initialised");
    return nullptr;
  }
  if (op == BarrierOp::kInvalidate) bulk.Invalidate(static_cast<uint32_t>(offset));
  return reinterpret_cast<uint64_t*>(word);
}

bool ChangeBarrier(BarrierOp op, uint64_t operand, Mbarrier* barrier) {
  switch (op) {
    case BarrierOp::kInit:
      *barrier = {operand, operand, 0, 0};
      return true;
    case BarrierOp::kInvalidate:
      return true;
    case BarrierOp::kExpect:
      barrier->bytes += static_cast<int64_t>(operand);
      return true;
    case BarrierOp::kComplete:
      barrier->bytes -= static_cast<int64_t>(operand);
      break;
    case BarrierOp::kArriveExpect:
      barrier->bytes += static_cast<int64_t>(operand);
      operand = 1;
      [[fallthrough]];
    default:
      if (operand > barrier->pending) return false;
      barrier->pending -= operand;
      if (op == BarrierOp::kArriveDrop) barrier->expected -= operand;
      if (op == BarrierOp::kArriveNoComplete) return barrier->pending != 0;
  }
  barrier->EndPhaseIfComplete();
  return true;
}

// kind: the BarrierOp; b: count, bytes, state or parity; d: the previous state, pd: whether a test was successful.
template <Window window>
void RunBarrier(Warp& w, const Instr& in, uint32_t lanes) {
  const BarrierOp op = static_cast<BarrierOp>(in.kind);
  const uint64_t *const a = w.In(in.a), *const b = w.In(in.b);
  uint64_t* const d = w.Out(in.d);
  uint32_t done = 0;
  uint64_t seen = 0;
  // A thread that waits makes copies advance.
  if ((op == BarrierOp::kTest || op == BarrierOp::kTestParity) && !w.block->bulk.idle()) {
    w.block->bulk.Advance();
    w.progressed = true;
  }
  ForLanes(lanes, [&](uint32_t i) {
    uint64_t* const word = WordAt<window>(w, in, i, a[i] + static_cast<uint64_t>(in.offset), op);
    if (word == nullptr) return;
    Mbarrier barrier = Mbarrier::Unpack(*word);
    if (op == BarrierOp::kTest || op == BarrierOp::kTestParity) {
      const uint64_t waited_for = op == BarrierOp::kTest ? b[i] >> 63 : b[i] & 1;
      done |= static_cast<uint32_t>(waited_for != barrier.phase) << i;
      seen = seen * 31 + *word;
      return;
    }
    d[i] = *word;
    if (!ChangeBarrier(op, static_cast<uint32_t>(b[i]), &barrier)) {
      w.Fail(in, i, "more arrivals than the mbarrier expects");
      return;
    }
    *word = barrier.Pack();
    w.progressed = true;
  });
  if (op != BarrierOp::kTest && op != BarrierOp::kTestParity) return;
  w.SetPredicate(in.pd, lanes, done);
  if (done == lanes) return;
  w.Poll(in, a[std::countr_zero(lanes)], seen);
  // try_wait may suspend the thread, so other warps run.
  if (in.flag) w.Yield();
}

void RunPendingCount(Warp& w, const Instr& in, uint32_t lanes) {
  uint64_t* const d = w.Out(in.d);
  const uint64_t* const a = w.In(in.a);
  ForLanes(lanes, [&](uint32_t i) { d[i] = Mbarrier::Unpack(a[i]).pending; });
}

Instr& EmitBarrier(Decoder& decoder, BarrierOp op, const OperandIr& address, Space space) {
  Instr operands;
  decoder.Address(address, &space, &operands);
  Instr& in =
      decoder.Emit(WindowOf(space) == Window::kShared ? RunBarrier<Window::kShared> : RunBarrier<Window::kHost>);
  in.a = operands.a;
  in.offset = operands.offset;
  in.kind = static_cast<uint8_t>(op);
  return in;
}

bool DecodeTest(Decoder& decoder, bool may_suspend, Space space) {
  const bool parity = decoder.Take("parity");
  const ColumnId b = decoder.Source(2, parity ? Type::kB32 : Type::kB64);
  Instr& in = EmitBarrier(decoder, parity ? BarrierOp::kTestParity : BarrierOp::kTest, decoder.operand(1), space);
  in.b = b;
  in.flag = may_suspend;
  in.pd = decoder.TargetPredicateOf(decoder.operand(0));
  return true;
}

bool DecodeArrive(Decoder& decoder, bool drop, Space space) {
  const bool expect = decoder.Take("expect_tx");
  const bool no_complete = decoder.Take("noComplete");
  // Without a state the address comes first.
  const size_t at = decoder.operand(0).kind == OperandIr::kAddress ? 0 : 1;
  const ColumnId b = decoder.operands() > at + 1 ? decoder.Source(at + 1, Type::kU32) : decoder.columns().Constant(1);
  const BarrierOp op = expect        ? BarrierOp::kArriveExpect
                       : drop        ? BarrierOp::kArriveDrop
                       : no_complete ? BarrierOp::kArriveNoComplete
                                     : BarrierOp::kArrive;
  const ColumnId d = at == 1 ? decoder.Target(0) : kSinkColumn;
  Instr& in = EmitBarrier(decoder, op, decoder.operand(at), space);
  in.b = b;
  in.d = d;
  return true;
}

bool DecodeMbarrier(Decoder& decoder) {
  const Space space = TakeSpace(decoder);
  for (std::string_view name : {"release", "relaxed", "acquire", "cta", "cluster"}) decoder.Take(name);
  decoder.TakeType();
  if (decoder.Take("test_wait")) return DecodeTest(decoder, false, space);
  if (decoder.Take("try_wait")) return DecodeTest(decoder, true, space);
  if (decoder.Take("arrive")) return DecodeArrive(decoder, false, space);
  if (decoder.Take("arrive_drop")) return DecodeArrive(decoder, true, space);
  if (decoder.Take("pending_count")) {
    const ColumnId a = decoder.Source(1, Type::kB64);
    Instr& in = decoder.Emit(RunPendingCount);
    in.a = a;
    in.d = decoder.Target(0);
    return true;
  }
  constexpr std::string_view names[] = {"init", "inval", "expect_tx", "complete_tx"};
  constexpr BarrierOp ops[] = {BarrierOp::kInit, BarrierOp::kInvalidate, BarrierOp::kExpect, BarrierOp::kComplete};
  const int which = decoder.TakeOneOf(names, -1);
  if (which < 0) return false;
  const ColumnId b = decoder.operands() > 1 ? decoder.Source(1, Type::kU32) : decoder.columns().Constant(0);
  EmitBarrier(decoder, ops[which], decoder.operand(0), space).b = b;
  return true;
}

// Plain copies, a piece at a time, so that each is checked and visible to ThreadSanitizer.
bool CopyBytes(Warp& w, const Instr& in, uint32_t lane, uint64_t target, uint64_t source, uint32_t bytes,
               uint32_t copied) {
  for (uint32_t at = 0; at < bytes; at += 4) {
    std::byte* const d = HostPointer<Window::kShared>(w, in, lane, target + at, 4);
    if (d == nullptr) return false;
    uint32_t value = 0;
    if (at < copied) {
      const std::byte* const s = HostPointer<Window::kHost>(w, in, lane, source + at, 4);
      if (s == nullptr) return false;
      value = LoadPlain<uint32_t>(s);
      if (copied - at < 4) value &= (1u << (8 * (copied - at))) - 1;
      NoteAccess(w, in, lane, source + at, 4, false);
    }
    StorePlain(d, value);
  }
  return true;
}

// cp.async: b is the source, offset2 (v[0]) the target's offset; c is the number of bytes copied, the rest are zero.
void RunCopy(Warp& w, const Instr& in, uint32_t lanes) {
  const uint64_t *const a = w.In(in.a), *const b = w.In(in.b), *const c = w.In(in.c);
  const uint32_t ignored = w.Predicate(in.pa);
  ForLanes(lanes, [&](uint32_t i) {
    const uint64_t source = b[i] + static_cast<uint64_t>(int64_t{in.v[0]});
    const uint64_t target = a[i] + static_cast<uint64_t>(in.offset);
    if ((source | target) % in.bytes != 0) {
      FailAddress(w, in, i, source % in.bytes != 0 ? source : target, in.bytes, "is not aligned");
      return;
    }
    const uint32_t copied = (ignored >> i & 1) != 0 ? 0 : std::min<uint32_t>(static_cast<uint32_t>(c[i]), in.bytes);
    CopyBytes(w, in, i, target, source, in.bytes, copied);
  });
  w.progressed = true;
}

// The thread's copies are done, so it arrives at once; without .noinc the arrival is first added to the expected ones.
bool DecodeCopyArrive(Decoder& decoder) {
  decoder.Take("arrive");
  const bool counted = decoder.Take("noinc");
  const Space space = TakeSpace(decoder);
  decoder.TakeType();
  if (!counted) return true;
  const ColumnId one = decoder.columns().Constant(1);
  EmitBarrier(decoder, BarrierOp::kArrive, decoder.operand(0), space).b = one;
  return true;
}

bool DecodeCopy(Decoder& decoder) {
  if (!decoder.Take("async")) return false;
  if (decoder.Take("bulk")) return DecodeBulk(decoder);
  if (decoder.Take("mbarrier")) return DecodeCopyArrive(decoder);
  if (decoder.Take("commit_group") || decoder.Take("wait_group") || decoder.Take("wait_all")) return true;
  if (!decoder.Take("ca") && !decoder.Take("cg")) return false;
  decoder.TakeStartingWith("shared");
  decoder.Take("global");
  decoder.TakeStartingWith("L2::");
  if (decoder.operand(2).kind != OperandIr::kImmediate) return false;
  const uint64_t bytes = decoder.operand(2).bits;
  Space space = Space::kGeneric;
  Instr target, source;
  decoder.Address(decoder.operand(0), &space, &target);
  decoder.Address(decoder.operand(1), &space, &source);
  const bool has_fourth = decoder.operands() > 3;
  const bool by_predicate = has_fourth && decoder.operand(3).type == Type::kPred;
  // A fourth operand of 64 bits is a cache policy.
  const bool sized = has_fourth && !by_predicate && decoder.operand(3).type != Type::kB64;
  const ColumnId copied = sized ? decoder.Source(3, Type::kU32) : decoder.columns().Constant(bytes);
  Instr& in = decoder.Emit(RunCopy);
  in.a = target.a;
  in.offset = target.offset;
  in.b = source.a;
  in.v[0] = static_cast<int32_t>(source.offset);
  in.c = copied;
  in.bytes = static_cast<uint8_t>(bytes);
  in.pa = by_predicate ? decoder.SourcePredicate(3) : kTrue + 1;
  return bytes == 4 || bytes == 8 || bytes == 16;
}

constexpr OpcodeRow kRows[] = {{"mbarrier", DecodeMbarrier}, {"cp", DecodeCopy}};

}  // namespace

std::span<const OpcodeRow> AsyncOpcodes() { return kRows; }

}  // namespace softgpu::engine
