#include "tools/softgpu/engine/memory_access.h"

#include <atomic>
#include <cstdio>

namespace softgpu::engine {
namespace {

bool InWindow(uint64_t address, uint32_t bytes, const std::byte* begin, uint64_t size) {
  const uint64_t first = reinterpret_cast<uintptr_t>(begin);
  return address >= first && address - first < size && bytes <= size - (address - first);
}

}  // namespace

void FailAddress(Warp& w, const Instr& in, uint32_t lane, uint64_t address, uint32_t bytes, const char* what) {
  char text[40];
  std::snprintf(text, sizeof text, "address 0x%llx", static_cast<unsigned long long>(address));
  w.Fail(in, lane, std::string(text) + " of " + std::to_string(bytes) + " bytes " + what);
}

bool CheckHostAddress(Warp& w, const Instr& in, uint32_t lane, uint64_t address, uint32_t bytes) {
  const Block& block = *w.block;
  if (InWindow(address, bytes, block.shared, block.shared_bytes)) return true;
  if (InWindow(address, bytes, block.local, block.local_bytes)) return true;
  FailAddress(w, in, lane, address, bytes, "is in no allocated memory");
  return false;
}

void NoteAccess(Warp& w, const Instr& in, uint32_t lane, uint64_t address, uint32_t bytes, bool write) {
  RaceDetector* const races = w.execution->races();
  if (races == nullptr || InWindow(address, bytes, w.block->shared, w.block->shared_bytes) ||
      InWindow(address, bytes, w.block->local, w.block->local_bytes))
    return;
  const uint32_t block = static_cast<uint32_t>(w.block->linear);
  const auto access = write ? RaceDetector::Access::kWrite : RaceDetector::Access::kRead;
  const int64_t other = in.order == Order::kPlain
                            ? races->Weak(block, address, bytes, access)
                            : races->Strong(block, address, bytes, access, LoadOrder(in.order) == __ATOMIC_ACQUIRE,
                                            StoreOrder(in.order) == __ATOMIC_RELEASE);
  if (other < 0) return;
  char text[120];
  std::snprintf(text, sizeof text, "races with an access of block %lld to the %u bytes at 0x%llx",
                static_cast<long long>(other), bytes, static_cast<unsigned long long>(address));
  w.Fail(in, lane, text);
}

void LoadStrong(const std::byte* from, uint32_t bytes, Order order, void* to) {
  const int how = LoadOrder(order);
  switch (bytes) {
    case 1: {
      const uint8_t value = __atomic_load_n(reinterpret_cast<const uint8_t*>(from), how);
      std::memcpy(to, &value, 1);
      return;
    }
    case 2: {
      const uint16_t value = __atomic_load_n(reinterpret_cast<const uint16_t*>(from), how);
      std::memcpy(to, &value, 2);
      return;
    }
    case 4: {
      const uint32_t value = __atomic_load_n(reinterpret_cast<const uint32_t*>(from), how);
      std::memcpy(to, &value, 4);
      return;
    }
    default:
      for (uint32_t at = 0; at < bytes; at += 8) {
        const uint64_t value = __atomic_load_n(reinterpret_cast<const uint64_t*>(from + at), how);
        std::memcpy(static_cast<std::byte*>(to) + at, &value, 8);
      }
  }
}

void StoreStrong(std::byte* to, uint32_t bytes, Order order, const void* from) {
  const int how = StoreOrder(order);
  switch (bytes) {
    case 1: {
      uint8_t value;
      std::memcpy(&value, from, 1);
      __atomic_store_n(reinterpret_cast<uint8_t*>(to), value, how);
      return;
    }
    case 2: {
      uint16_t value;
      std::memcpy(&value, from, 2);
      __atomic_store_n(reinterpret_cast<uint16_t*>(to), value, how);
      return;
    }
    case 4: {
      uint32_t value;
      std::memcpy(&value, from, 4);
      __atomic_store_n(reinterpret_cast<uint32_t*>(to), value, how);
      return;
    }
    default:
      for (uint32_t at = 0; at < bytes; at += 8) {
        uint64_t value;
        std::memcpy(&value, static_cast<const std::byte*>(from) + at, 8);
        __atomic_store_n(reinterpret_cast<uint64_t*>(to + at), value, how);
      }
  }
}

void Fence(Warp& w, bool sequential) {
  w.fenced = true;
  if (w.execution->races() != nullptr) w.execution->races()->Fence(static_cast<uint32_t>(w.block->linear));
  if constexpr (kThreadSanitizer) {
    // ThreadSanitizer does not know fences: relaxed loads before one become acquiring here, relaxed stores behind one
    // releasing.
    for (const void* poll : w.recent_polls) {
      if (poll != nullptr) (void)__atomic_load_n(static_cast<const uint8_t*>(poll), __ATOMIC_ACQUIRE);
    }
  } else if (sequential) {
    std::atomic_thread_fence(std::memory_order_seq_cst);
  } else {
    std::atomic_thread_fence(std::memory_order_acq_rel);
  }
}

Window WindowOf(Space space) {
  switch (space) {
    case Space::kShared:
      return Window::kShared;
    case Space::kLocal:
      return Window::kLocal;
    default:
      return Window::kHost;
  }
}

Space TakeSpace(Decoder& decoder) {
  constexpr std::string_view names[] = {"global", "const",        "shared",      "shared::cta", "shared::cluster",
                                        "local",  "param::entry", "param::func", "param"};
  constexpr Space spaces[] = {Space::kGlobal, Space::kConst, Space::kShared, Space::kShared, Space::kShared,
                              Space::kLocal,  Space::kParam, Space::kParam,  Space::kParam};
  const int found = decoder.TakeOneOf(names, -1);
  return found < 0 ? Space::kGeneric : spaces[found];
}

MemoryModifiers TakeMemoryModifiers(Decoder& decoder, Order strong_default) {
  MemoryModifiers modifiers;
  modifiers.space = TakeSpace(decoder);
  modifiers.order = strong_default;
  if (decoder.Take("volatile") || decoder.Take("relaxed")) modifiers.order = Order::kRelaxed;
  if (decoder.Take("acquire")) modifiers.order = Order::kAcquire;
  if (decoder.Take("release")) modifiers.order = Order::kRelease;
  if (decoder.Take("acq_rel")) modifiers.order = Order::kAcqRel;
  for (std::string_view hint :
       {"weak", "mmio", "cta", "cluster", "gpu", "sys", "ca", "cg", "cs", "lu", "cv", "wb", "wt", "nc"})
    decoder.Take(hint);
  decoder.TakeStartingWith("L1::");
  decoder.TakeStartingWith("L2::");
  if (decoder.Take("v2")) modifiers.vector = 2;
  if (decoder.Take("v4")) modifiers.vector = 4;
  if (decoder.Take("v8")) modifiers.vector = 8;
  return modifiers;
}

}  // namespace softgpu::engine
