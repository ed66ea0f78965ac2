// mov, cvta, isspacep, mapa and the registers that change without an instruction.
#include <chrono>

#include "tools/softgpu/engine/memory_access.h"
#include "tools/softgpu/engine/special_register.h"

namespace softgpu::engine {
namespace {

void RunMove(Warp& w, const Instr& in, uint32_t lanes) {
  uint64_t* const d = w.Out(in.d);
  const uint64_t* const a = w.In(in.a);
  ForLanes(lanes, [&](uint32_t i) { d[i] = a[i]; });
}

void EmitMove(Decoder& decoder, ColumnId from, ColumnId to) {
  Instr& in = decoder.Emit(RunMove);
  in.a = from;
  in.d = to;
}

void RunMovePredicate(Warp& w, const Instr& in, uint32_t lanes) { w.SetPredicate(in.pd, lanes, w.Predicate(in.pa)); }

// Packs {a, b, ...} of `bytes` each into one value, and unpacks it.
void RunPack(Warp& w, const Instr& in, uint32_t lanes) {
  uint64_t* const d = w.Out(in.d);
  const uint32_t width = 8u * in.bytes;
  const uint64_t mask = (1ull << width) - 1;
  ForLanes(lanes, [&](uint32_t i) {
    uint64_t value = 0;
    for (uint32_t k = 0; k < in.count; ++k) value |= (w.In(in.v[k])[i] & mask) << (k * width);
    d[i] = value;
  });
}

void RunUnpack(Warp& w, const Instr& in, uint32_t lanes) {
  const uint64_t* const a = w.In(in.a);
  const uint32_t width = 8u * in.bytes;
  const uint64_t mask = (1ull << width) - 1;
  ForLanes(lanes, [&](uint32_t i) {
    const uint64_t value = a[i];
    for (uint32_t k = 0; k < in.count; ++k) w.Out(in.v[k])[i] = value >> (k * width) & mask;
  });
}

bool DecodePacking(Decoder& decoder, Type type) {
  const bool pack = decoder.operand(1).kind == OperandIr::kVector;
  const std::vector<OperandIr>& parts = decoder.operand(pack ? 1 : 0).parts;
  const auto part = [&](size_t k) {
    return pack ? decoder.SourceOf(parts[k], Type::kB64) : decoder.TargetOf(parts[k]);
  };
  if (type == Type::kB128) {
    if (parts.size() != 2) return false;
    const ColumnId whole = pack ? decoder.Target(0) : decoder.Source(1, type);
    for (size_t k = 0; k < 2; ++k) {
      const ColumnId half = whole + static_cast<ColumnId>(k * kWarpLanes);
      EmitMove(decoder, pack ? part(k) : half, pack ? half : part(k));
    }
    return true;
  }
  if (parts.empty() || parts.size() > 4) return false;
  ColumnId columns[4];
  for (size_t k = 0; k < parts.size(); ++k) columns[k] = part(k);
  const ColumnId whole = pack ? decoder.Target(0) : decoder.Source(1, type);
  Instr& in = decoder.Emit(pack ? RunPack : RunUnpack);
  in.count = static_cast<uint8_t>(parts.size());
  in.bytes = static_cast<uint8_t>(SizeOf(type) / parts.size());
  std::copy(columns, columns + parts.size(), in.v);
  (pack ? in.d : in.a) = whole;
  return true;
}

// Registers that change while a thread runs.
enum class Changing : uint8_t { kClock, kClockHigh, kClock64, kTimer, kTimerLow, kTimerHigh, kZero };
struct ChangingRow {
  std::string_view name;
  Changing which;
};
constexpr ChangingRow kChanging[] = {
    {"%clock", Changing::kClock},
    {"%clock_hi", Changing::kClockHigh},
    {"%clock64", Changing::kClock64},
    {"%globaltimer", Changing::kTimer},
    {"%globaltimer_lo", Changing::kTimerLow},
    {"%globaltimer_hi", Changing::kTimerHigh},
};

void RunChanging(Warp& w, const Instr& in, uint32_t lanes) {
  const uint64_t clock = w.execution->clock() + w.execution->burst_position(w);
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const uint64_t time = static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
  uint64_t value = 0;
  switch (static_cast<Changing>(in.kind)) {
    case Changing::kClock:
      value = static_cast<uint32_t>(clock);
      break;
    case Changing::kClockHigh:
      value = clock >> 32;
      break;
    case Changing::kClock64:
      value = clock;
      break;
    case Changing::kTimer:
      value = time;
      break;
    case Changing::kTimerLow:
      value = static_cast<uint32_t>(time);
      break;
    case Changing::kTimerHigh:
      value = time >> 32;
      break;
    case Changing::kZero:
      break;
  }
  uint64_t* const d = w.Out(in.d);
  ForLanes(lanes, [&](uint32_t i) { d[i] = value; });
}

bool DecodeMov(Decoder& decoder) {
  const Type type = decoder.TakeType();
  const OperandIr& from = decoder.operand(1);
  if (type == Type::kPred) {
    Instr& in = decoder.Emit(RunMovePredicate);
    in.pa = decoder.SourcePredicate(1);
    in.pd = decoder.TargetPredicateOf(decoder.operand(0));
    return true;
  }
  if (from.kind == OperandIr::kVector || decoder.operand(0).kind == OperandIr::kVector)
    return DecodePacking(decoder, type);
  if (from.kind == OperandIr::kSpecial) {
    for (const ChangingRow& row : kChanging) {
      if (row.name != from.name) continue;
      Instr& in = decoder.Emit(RunChanging);
      in.kind = static_cast<uint8_t>(row.which);
      in.d = decoder.Target(0);
      return true;
    }
    if (from.name.starts_with("%pm") || (from.name.starts_with("%envreg") && !SpecialNamed(from.name))) {
      EmitMove(decoder, decoder.columns().Constant(0), decoder.Target(0));
      return true;
    }
  }
  const ColumnId a = decoder.Source(1, type), d = decoder.Target(0);
  EmitMove(decoder, a, d);
  if (type == Type::kB128)
    EmitMove(decoder, a + static_cast<ColumnId>(kWarpLanes), d + static_cast<ColumnId>(kWarpLanes));
  return true;
}

// Shared addresses count from the block's base; all others are pointers already. flag: from generic.
void RunCvtaShared(Warp& w, const Instr& in, uint32_t lanes) {
  uint64_t* const d = w.Out(in.d);
  const uint64_t* const a = w.In(in.a);
  const uint64_t base = reinterpret_cast<uintptr_t>(w.block->shared);
  if (in.flag) {
    ForLanes(lanes, [&](uint32_t i) { d[i] = a[i] - base; });
  } else {
    ForLanes(lanes, [&](uint32_t i) { d[i] = static_cast<uint32_t>(a[i]) + base; });
  }
}

bool DecodeCvta(Decoder& decoder) {
  const bool from_generic = decoder.Take("to");
  const Space space = TakeSpace(decoder);
  const Type type = decoder.TakeType();
  const ColumnId a = decoder.Source(1, type);
  Instr& in = decoder.Emit(space == Space::kShared ? RunCvtaShared : RunMove);
  in.a = a;
  in.d = decoder.Target(0);
  in.flag = from_generic;
  return SizeOf(type) == 8;
}

void RunIsSpace(Warp& w, const Instr& in, uint32_t lanes) {
  const uint64_t* const a = w.In(in.a);
  const Block& block = *w.block;
  const auto inside = [](uint64_t address, const std::byte* begin, uint64_t bytes) {
    return address - reinterpret_cast<uintptr_t>(begin) < bytes;
  };
  const std::vector<std::byte>& parameters = w.execution->config().parameters;
  uint32_t bits = 0;
  ForLanes(lanes, [&](uint32_t i) {
    const bool shared = inside(a[i], block.shared, block.shared_bytes);
    const bool local = inside(a[i], block.local, block.local_bytes);
    const bool constant = a[i] >= w.program->const_begin && a[i] < w.program->const_end;
    const bool parameter = inside(a[i], parameters.data(), parameters.size());
    bool result = !shared && !local && !constant;
    if (in.space == Space::kShared) result = shared;
    if (in.space == Space::kLocal) result = local;
    if (in.space == Space::kConst) result = constant;
    if (in.space == Space::kParam) result = parameter;
    bits |= static_cast<uint32_t>(result) << i;
  });
  w.SetPredicate(in.pd, lanes, bits);
}

bool DecodeIsSpace(Decoder& decoder) {
  const Space space = TakeSpace(decoder);
  const ColumnId a = decoder.Source(1, Type::kB64);
  Instr& in = decoder.Emit(RunIsSpace);
  in.a = a;
  in.space = space;
  in.pd = decoder.TargetPredicateOf(decoder.operand(0));
  return space != Space::kGeneric;
}

// In a cluster of one block every address is the block's own.
bool DecodeMapa(Decoder& decoder) {
  TakeSpace(decoder);
  const Type type = decoder.TakeType();
  EmitMove(decoder, decoder.Source(1, type), decoder.Target(0));
  return true;
}

bool DecodeGetCtaRank(Decoder& decoder) {
  TakeSpace(decoder);
  decoder.TakeType();
  EmitMove(decoder, decoder.columns().Constant(0), decoder.Target(0));
  return true;
}

// Policies of caches are values that are never read.
bool DecodeCreatePolicy(Decoder& decoder) {
  decoder.TakeStartingWith("");
  EmitMove(decoder, decoder.columns().Constant(0), decoder.Target(0));
  return true;
}

constexpr OpcodeRow kRows[] = {
    {"mov", DecodeMov},
    {"cvta", DecodeCvta},
    {"isspacep", DecodeIsSpace},
    {"mapa", DecodeMapa},
    {"getctarank", DecodeGetCtaRank},
    {"createpolicy", DecodeCreatePolicy},
};

}  // namespace

std::span<const OpcodeRow> MoveOpcodes() { return kRows; }

}  // namespace softgpu::engine
