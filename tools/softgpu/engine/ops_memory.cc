// ld, st, fences, and instructions that only advise the caches.
#include <algorithm>
#include <type_traits>

#include "tools/softgpu/engine/memory_access.h"

namespace softgpu::engine {
namespace {

// Narrow signed values are sign-extended to the width of their register.
template <class T>
uint64_t Extend(T value) {
  return std::is_signed_v<T> ? static_cast<uint64_t>(static_cast<int64_t>(value)) : static_cast<uint64_t>(value);
}

uint64_t Hash(uint64_t seed, uint64_t value) { return (seed ^ value) * 0x9e3779b97f4a7c15 + (seed >> 29); }

template <class T, Window window>
void LoadWeak(Warp& w, const Instr& in, uint32_t lanes) {
  const uint64_t* const a = w.In(in.a);
  const uint32_t bytes = sizeof(T) * in.count;
  const bool watched = window == Window::kHost && w.execution->races() != nullptr;
  if (in.count == 1) {
    uint64_t* const d = w.Out(in.v[0]);
    ForLanes(lanes, [&](uint32_t i) {
      const std::byte* const from = HostPointer<window>(w, in, i, a[i] + static_cast<uint64_t>(in.offset), bytes);
      if (from == nullptr) return;
      d[i] = Extend(LoadPlain<T>(from));
      if (watched) NoteAccess(w, in, i, reinterpret_cast<uintptr_t>(from), bytes, false);
    });
    return;
  }
  ForLanes(lanes, [&](uint32_t i) {
    const std::byte* const from = HostPointer<window>(w, in, i, a[i] + static_cast<uint64_t>(in.offset), bytes);
    if (from == nullptr) return;
    for (uint32_t k = 0; k < in.count; ++k) w.Out(in.v[k])[i] = Extend(LoadPlain<T>(from + k * sizeof(T)));
    if (watched) NoteAccess(w, in, i, reinterpret_cast<uintptr_t>(from), bytes, false);
  });
}

template <class T, Window window>
void LoadOrdered(Warp& w, const Instr& in, uint32_t lanes) {
  const uint64_t* const a = w.In(in.a);
  const uint32_t bytes = sizeof(T) * in.count;
  uint64_t addresses = 0, values = 0;
  ForLanes(lanes, [&](uint32_t i) {
    const std::byte* const from = HostPointer<window>(w, in, i, a[i] + static_cast<uint64_t>(in.offset), bytes);
    if (from == nullptr) return;
    T elements[32 / sizeof(T)];
    LoadStrong(from, bytes, in.order, elements);
    addresses = Hash(addresses, reinterpret_cast<uintptr_t>(from));
    for (uint32_t k = 0; k < in.count; ++k) {
      w.Out(in.v[k])[i] = Extend(elements[k]);
      values = Hash(values, Extend(elements[k]));
    }
    if (kThreadSanitizer && window == Window::kHost) w.recent_polls[w.recent_poll++ % 4] = from;
    if (window == Window::kHost) NoteAccess(w, in, i, reinterpret_cast<uintptr_t>(from), bytes, false);
  });
  w.Poll(in, addresses, values);
}

template <class T, Window window>
void StoreWeak(Warp& w, const Instr& in, uint32_t lanes) {
  const uint64_t* const a = w.In(in.a);
  const uint32_t bytes = sizeof(T) * in.count;
  const bool watched = window == Window::kHost && w.execution->races() != nullptr;
  bool changed = window == Window::kHost;
  ForLanes(lanes, [&](uint32_t i) {
    std::byte* const to = HostPointer<window>(w, in, i, a[i] + static_cast<uint64_t>(in.offset), bytes);
    if (to == nullptr) return;
    for (uint32_t k = 0; k < in.count; ++k) {
      const T value = static_cast<T>(w.In(in.v[k])[i]);
      // A block that polls writes the same value for its threads again and again.
      if (window == Window::kShared) changed |= LoadPlain<T>(to + k * sizeof(T)) != value;
      StorePlain<T>(to + k * sizeof(T), value);
    }
    if (watched) NoteAccess(w, in, i, reinterpret_cast<uintptr_t>(to), bytes, true);
    if (window != Window::kLocal) NoteSharedWrite(w, to, bytes);
  });
  w.progressed |= changed;
}

template <class T, Window window>
void StoreOrdered(Warp& w, const Instr& in, uint32_t lanes) {
  const uint64_t* const a = w.In(in.a);
  const uint32_t bytes = sizeof(T) * in.count;
  const Order order = kThreadSanitizer && w.fenced ? Order::kRelease : in.order;
  ForLanes(lanes, [&](uint32_t i) {
    std::byte* const to = HostPointer<window>(w, in, i, a[i] + static_cast<uint64_t>(in.offset), bytes);
    if (to == nullptr) return;
    T elements[32 / sizeof(T)];
    for (uint32_t k = 0; k < in.count; ++k) elements[k] = static_cast<T>(w.In(in.v[k])[i]);
    StoreStrong(to, bytes, order, elements);
    if (window == Window::kHost) NoteAccess(w, in, i, reinterpret_cast<uintptr_t>(to), bytes, true);
    if (window != Window::kLocal) NoteSharedWrite(w, to, bytes);
  });
  w.progressed = true;
}

struct Handlers {
  Handler load_weak, load_ordered, store_weak, store_ordered;
};
template <class T, Window window>
constexpr Handlers kOf = {LoadWeak<T, window>, LoadOrdered<T, window>, StoreWeak<T, window>, StoreOrdered<T, window>};

template <class T>
Handlers ByWindow(Window window) {
  switch (window) {
    case Window::kHost:
      return kOf<T, Window::kHost>;
    case Window::kShared:
      return kOf<T, Window::kShared>;
    case Window::kLocal:
      return kOf<T, Window::kLocal>;
    case Window::kUnchecked:
      return kOf<T, Window::kUnchecked>;
  }
  return {};
}

Handlers HandlersOf(Type type, Window window) {
  switch (SizeOf(type)) {
    case 1:
      return type == Type::kS8 ? ByWindow<int8_t>(window) : ByWindow<uint8_t>(window);
    case 2:
      return type == Type::kS16 ? ByWindow<int16_t>(window) : ByWindow<uint16_t>(window);
    case 4:
      return type == Type::kS32 ? ByWindow<int32_t>(window) : ByWindow<uint32_t>(window);
    case 8:
    case 16:
      return ByWindow<uint64_t>(window);
    default:
      return {};
  }
}

// The columns that are loaded or stored: a vector, one register, or one of 128 bits, which is two columns.
bool TakeElements(Decoder& decoder, const OperandIr& operand, Type type, uint32_t vector, bool load, Instr* in) {
  const auto column = [&](const OperandIr& part) {
    return load ? decoder.TargetOf(part) : decoder.SourceOf(part, type);
  };
  if (type == Type::kB128) {
    if (vector != 1 || operand.kind != OperandIr::kRegister) return false;
    in->count = 2;
    in->v[0] = column(operand);
    in->v[1] = in->v[0] + static_cast<ColumnId>(kWarpLanes);
    return true;
  }
  in->count = static_cast<uint8_t>(vector);
  if (operand.kind != OperandIr::kVector) {
    in->v[0] = column(operand);
    return vector == 1;
  }
  if (operand.parts.size() != vector || vector > 8) return decoder.Fail("the vector does not match");
  for (uint32_t k = 0; k < vector; ++k) in->v[k] = column(operand.parts[k]);
  return true;
}

bool DecodeAccess(Decoder& decoder, bool load) {
  MemoryModifiers modifiers = TakeMemoryModifiers(decoder, Order::kPlain);
  const Type type = decoder.TakeType();
  if (SizeOf(type) == 0) return false;
  Instr operands;
  decoder.Address(decoder.operand(load ? 1 : 0), &modifiers.space, &operands);
  if (!TakeElements(decoder, decoder.operand(load ? 0 : 1), type, modifiers.vector, load, &operands)) return false;
  if (modifiers.vector * SizeOf(type) > 32) return false;
  const OperandIr& address = decoder.operand(load ? 1 : 0);
  const bool fixed_parameter =
      modifiers.space == Space::kParam && !address.parts.empty() && address.parts[0].kind == OperandIr::kVariable;
  const Handlers handlers = HandlersOf(type, fixed_parameter ? Window::kUnchecked : WindowOf(modifiers.space));
  const bool weak = modifiers.order == Order::kPlain;
  Instr& in = decoder.Emit(load ? (weak ? handlers.load_weak : handlers.load_ordered)
                                : (weak ? handlers.store_weak : handlers.store_ordered));
  in.a = operands.a;
  in.offset = operands.offset;
  in.count = operands.count;
  std::copy(std::begin(operands.v), std::end(operands.v), std::begin(in.v));
  in.order = modifiers.order;
  in.space = modifiers.space;
  return in.run != nullptr;
}

bool DecodeLoad(Decoder& decoder) { return DecodeAccess(decoder, true); }
bool DecodeStore(Decoder& decoder) { return DecodeAccess(decoder, false); }

void RunFence(Warp& w, const Instr& in, uint32_t) { Fence(w, in.flag); }

// A fence between threads and the unit that copies in bulk. flag: for shared memory too, not only for mbarriers.
void RunProxyFence(Warp& w, const Instr& in, uint32_t) {
  if (in.flag) {
    w.block->bulk.FenceShared();
  } else {
    w.block->bulk.FenceMbarriers();
  }
}

// fence.proxy.async, with or without a space, and fence.mbarrier_init.
bool DecodeProxyFence(Decoder& decoder) {
  for (std::string_view name : {"proxy", "async", "mbarrier_init", "release", "cluster"}) decoder.Take(name);
  const bool global = decoder.Take("global");
  decoder.TakeStartingWith("shared::");
  const auto& modifiers = decoder.statement().modifiers;
  const bool of_mbarriers = std::ranges::count(modifiers, "mbarrier_init") != 0;
  if (global) return true;  // the unit reads that memory like threads
  decoder.Emit(RunProxyFence).flag = !of_mbarriers;
  return true;
}

bool DecodeFence(Decoder& decoder) {
  constexpr std::string_view known[] = {"cta",           "cluster", "gpu",       "gl",     "sys",
                                        "acq_rel",       "acquire", "release",   "proxy",  "async",
                                        "mbarrier_init", "alias",   "tensormap", "generic"};
  const auto& modifiers = decoder.statement().modifiers;
  if (std::ranges::count(modifiers, "async") + std::ranges::count(modifiers, "mbarrier_init") != 0)
    return DecodeProxyFence(decoder);
  const bool weaker = decoder.statement().opcode == "fence" && !decoder.Take("sc");
  for (std::string_view name : known) decoder.Take(name);
  for (std::string_view prefix : {"async::", "proxy::", "sync_restrict::", "generic::", "async.", "tensormap::"})
    decoder.TakeStartingWith(prefix);
  decoder.Take("global");
  decoder.TakeStartingWith("shared::");
  decoder.Emit(RunFence).flag = !weaker;
  return true;
}

bool DecodeNothing(Decoder& decoder) {
  decoder.TakeStartingWith("");
  return true;
}

constexpr OpcodeRow kRows[] = {
    {"ld", DecodeLoad},           {"ldu", DecodeLoad},        {"st", DecodeStore},
    {"fence", DecodeFence},       {"membar", DecodeFence},    {"prefetch", DecodeNothing},
    {"prefetchu", DecodeNothing}, {"discard", DecodeNothing}, {"applypriority", DecodeNothing},
};

}  // namespace

std::span<const OpcodeRow> MemoryOpcodes() { return kRows; }

}  // namespace softgpu::engine
