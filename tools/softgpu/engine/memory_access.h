// Translates a lane's addresses to host memory, with checks, and accesses it.
//
// Weak accesses are plain memory accesses, so that ThreadSanitizer sees races between launches in different threads.
// Strong ones are atomic in pieces of up to 8 bytes: wider ones may tear there, as on the hardware.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "tools/softgpu/engine/decoder.h"
#include "tools/softgpu/engine/execution.h"
#include "tools/softgpu/engine/machine.h"

namespace softgpu::engine {

#if defined(__SANITIZE_THREAD__)
constexpr bool kThreadSanitizer = true;
#else
constexpr bool kThreadSanitizer = false;
#endif

// How an address is turned into a pointer.
enum class Window : uint8_t { kHost, kShared, kLocal, kUnchecked };

// Checks an address in global memory, or a generic address that may be in any. Returns false if the launch has failed.
bool CheckHostAddress(Warp& w, const Instr& in, uint32_t lane, uint64_t address, uint32_t bytes);
void FailAddress(Warp& w, const Instr& in, uint32_t lane, uint64_t address, uint32_t bytes, const char* what);
// Reports an access to the race detector, if there is one. Only for global memory.
void NoteAccess(Warp& w, const Instr& in, uint32_t lane, uint64_t address, uint32_t bytes, bool write);

// Records that a thread has written shared memory (if it is that) where the unit may read it.
inline void NoteSharedWrite(Warp& w, const std::byte* to, uint32_t bytes) {
  BulkUnit& bulk = w.block->bulk;
  const auto offset = static_cast<uint64_t>(to - w.block->shared);
  if (bulk.watches_writes() && offset < w.block->shared_bytes) bulk.NoteWrite(offset, bytes);
}

// Returns null if the launch has failed.
template <Window window>
inline std::byte* HostPointer(Warp& w, const Instr& in, uint32_t lane, uint64_t address, uint32_t bytes) {
  if (window == Window::kShared) address = static_cast<uint32_t>(address);
  if ((address & (bytes - 1)) != 0) {
    FailAddress(w, in, lane, address, bytes, "is not aligned");
    return nullptr;
  }
  if constexpr (window == Window::kShared) {
    if (address + bytes > w.block->shared_bytes) {
      FailAddress(w, in, lane, address, bytes, "is outside the shared memory of the block");
      return nullptr;
    }
    return w.block->shared + address;
  }
  if constexpr (window == Window::kLocal) {
    const uint64_t begin = reinterpret_cast<uintptr_t>(w.block->local);
    if (address < begin || address + bytes > begin + w.block->local_bytes) {
      FailAddress(w, in, lane, address, bytes, "is outside the local memory of the thread");
      return nullptr;
    }
  }
  if constexpr (window == Window::kHost) {
    if (!w.execution->ranges().Holds(address, bytes, in.hint) && !CheckHostAddress(w, in, lane, address, bytes))
      return nullptr;
  }
  return reinterpret_cast<std::byte*>(address);
}

inline int LoadOrder(Order order) {
  return order >= Order::kAcquire && order != Order::kRelease ? __ATOMIC_ACQUIRE : __ATOMIC_RELAXED;
}
inline int StoreOrder(Order order) { return order >= Order::kRelease ? __ATOMIC_RELEASE : __ATOMIC_RELAXED; }

template <class T>
inline T LoadPlain(const std::byte* from) {
  using Aliased [[gnu::may_alias]] = T;
  return *reinterpret_cast<const Aliased*>(from);
}
template <class T>
inline void StorePlain(std::byte* to, T value) {
  using Aliased [[gnu::may_alias]] = T;
  *reinterpret_cast<Aliased*>(to) = value;
}

// Loads `bytes` (1, 2, 4, 8, 16 or 32) by atomic accesses of at most 8.
void LoadStrong(const std::byte* from, uint32_t bytes, Order order, void* to);
void StoreStrong(std::byte* to, uint32_t bytes, Order order, const void* from);
// Implements fence and membar.
void Fence(Warp& w, bool sequential);

// The window of a space; kHost if it may be any.
Window WindowOf(Space space);

// Modifiers that loads, stores and atomics share.
struct MemoryModifiers {
  Space space = Space::kGeneric;
  Order order = Order::kPlain;
  uint32_t vector = 1;
};
MemoryModifiers TakeMemoryModifiers(Decoder& decoder, Order strong_default);
// Takes .global, .shared::cta and so on.
Space TakeSpace(Decoder& decoder);

}  // namespace softgpu::engine
