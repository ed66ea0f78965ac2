// The primitives of kernels/cuda/primitives.h for threads that are fibers (fibers.h).
//
// Device code is compiled with AXCCL_CUDA_FIBERS naming this file. primitives.h defines what the functions do. Here
// stores are delayed, accesses of 16 bytes are torn, and at every access another thread may get its turn.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "tests/harness/fibers/fibers.h"
#include "tests/harness/fibers/team.h"

#define __global__
#define __grid_constant__
#define __launch_bounds__(...)
#define AXCCL_DEVICE inline
#define AXCCL_DEVICE_CALL
#define AXCCL_SHARED(Type, name) Type& name = *static_cast<Type*>(::axccl::fibers::SharedMemory(sizeof(Type)))

namespace axccl::kernels::cuda {

struct alignas(16) Raw {
  uint32_t word[4];
};

inline uint32_t ThreadIndex() { return fibers::Here().thread; }
inline uint32_t NumThreads() { return fibers::Here().threads; }
inline uint32_t BlockIndex() { return fibers::Here().block; }
inline uint32_t NumBlocks() { return fibers::Here().blocks; }

template <class T>
T& InShared(T& object) {
  return object;
}

inline uint32_t BarrierCount(bool value) { return fibers::BarrierCount(value); }
inline void Barrier() { BarrierCount(false); }
inline void Backoff(uint32_t) { fibers::Switch(); }
// Few enough that calls go both ways.
inline uint32_t SmallPolls() { return 200; }

// Misaligned accesses are faults on a device.
inline void RequireAligned(const uint8_t* p, size_t bytes) {
  if (reinterpret_cast<uintptr_t>(p) % bytes != 0) __builtin_trap();
}

// What LoadPair returns.
struct Pair {
  uint64_t first, second;
};

#if defined(__SANITIZE_THREAD__)

template <class Word>
Word LoadAcquire(const Word* p) {
  fibers::Switch();
  return __atomic_load_n(p, __ATOMIC_ACQUIRE);
}
template <class Word>
void StoreRelease(Word* p, Word value) {
  fibers::MaybeSwitch();
  __atomic_store_n(p, value, __ATOMIC_RELEASE);
}
template <class Word>
Word LoadRelaxed(const Word* p) {
  fibers::MaybeSwitch();
  return __atomic_load_n(p, __ATOMIC_RELAXED);
}
template <class Word>
void StoreRelaxed(Word* p, Word value) {
  fibers::MaybeSwitch();
  __atomic_store_n(p, value, __ATOMIC_RELAXED);
}
inline Pair LoadPair(const uint64_t* p) {
  const uint64_t second = LoadRelaxed(p + 1);
  return {LoadRelaxed(p), second};
}
inline Pair LoadPairAcquire(const uint64_t* p) {
  const uint64_t second = LoadRelaxed(p + 1);
  return {LoadAcquire(p), second};
}
// ThreadSanitizer does not model fences.
inline void FenceAcquire(const uint64_t* p) { __atomic_load_n(p, __ATOMIC_ACQUIRE); }
// Nor the order of loads alone.
inline uint64_t LoadFlagged(const uint64_t* p) { return LoadAcquire(p); }
inline Pair LoadFlaggedPair(const uint64_t* p) {
  const uint64_t second = LoadAcquire(p + 1);
  return {LoadAcquire(p), second};
}
inline void StoreFlagged(uint64_t* p, uint64_t value) { StoreRelease(p, value); }
inline uint32_t FetchAdd(uint32_t* p, uint32_t value) { return __atomic_fetch_add(p, value, __ATOMIC_ACQ_REL); }
inline uint32_t Exchange(uint32_t* p, uint32_t value) { return __atomic_exchange_n(p, value, __ATOMIC_ACQ_REL); }
inline void CompareExchange(uint32_t* p, uint32_t expected, uint32_t value) {
  __atomic_compare_exchange_n(p, &expected, value, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
}

template <class Word>
struct __attribute__((may_alias)) Plain {
  Word word;
};
template <class Word>
Word LoadWord(const uint8_t* p) {
  fibers::MaybeSwitch();
  return reinterpret_cast<const Plain<Word>*>(p)->word;
}
template <class Word>
void StoreWord(uint8_t* p, Word word) {
  fibers::MaybeSwitch();
  reinterpret_cast<Plain<Word>*>(p)->word = word;
}

#else

template <class Word>
Word LoadAcquire(const Word* p) {
  fibers::Switch();
  return static_cast<Word>(fibers::Load(p, sizeof(Word)));
}
template <class Word>
void StoreRelease(Word* p, Word value) {
  fibers::MaybeSwitch();
  fibers::BringOut();
  std::memcpy(p, &value, sizeof(value));
}
template <class Word>
Word LoadRelaxed(const Word* p) {
  return static_cast<Word>(fibers::Load(p, sizeof(Word)));
}
template <class Word>
void StoreRelaxed(Word* p, Word value) {
  fibers::Store(p, value, sizeof(Word));
}
inline Pair LoadPair(const uint64_t* p) {
  RequireAligned(reinterpret_cast<const uint8_t*>(p), 16);
  uint64_t word[2];
  const size_t first = fibers::Draw(2);
  word[first] = LoadRelaxed(p + first);
  word[1 - first] = LoadRelaxed(p + (1 - first));
  return {word[0], word[1]};
}
inline Pair LoadPairAcquire(const uint64_t* p) {
  fibers::Switch();
  return LoadPair(p);
}
inline void FenceAcquire(const uint64_t*) {}
inline uint64_t LoadFlagged(const uint64_t* p) { return LoadRelaxed(p); }
inline Pair LoadFlaggedPair(const uint64_t* p) { return LoadPair(p); }
inline void StoreFlagged(uint64_t* p, uint64_t value) { StoreRelaxed(p, value); }
inline uint32_t FetchAdd(uint32_t* p, uint32_t value) {
  fibers::MaybeSwitch();
  fibers::BringOut();
  const uint32_t before = *p;
  *p = before + value;
  return before;
}
inline uint32_t Exchange(uint32_t* p, uint32_t value) {
  fibers::MaybeSwitch();
  fibers::BringOut();
  const uint32_t before = *p;
  *p = value;
  return before;
}
inline void CompareExchange(uint32_t* p, uint32_t expected, uint32_t value) {
  fibers::MaybeSwitch();
  fibers::BringOut();
  if (*p == expected) *p = value;
}

template <class Word>
Word LoadWord(const uint8_t* p) {
  RequireAligned(p, sizeof(Word));
  return static_cast<Word>(fibers::Load(p, sizeof(Word)));
}
template <class Word>
void StoreWord(uint8_t* p, Word word) {
  RequireAligned(p, sizeof(Word));
  fibers::Store(p, word, sizeof(Word));
}

#endif

// Torn: the parts are loaded in any order.
inline Raw LoadRaw(const uint8_t* p) {
  RequireAligned(p, 16);
  uint64_t half[2];
  const size_t first = fibers::Draw(2);
  half[first] = LoadWord<uint64_t>(p + 8 * first);
  half[1 - first] = LoadWord<uint64_t>(p + 8 * (1 - first));
  Raw raw;
  std::memcpy(&raw, half, 16);
  return raw;
}
inline void StoreRaw(uint8_t* p, const Raw& raw) {
  RequireAligned(p, 16);
  const size_t first = fibers::Draw(4);
  for (size_t i = 0; i < 4; ++i) StoreWord<uint32_t>(p + 4 * (first ^ i), raw.word[first ^ i]);
}

// Arrives as a whole or not at all. The flag, in the row's last place, shows ThreadSanitizer that. Who gives the short
// way up stores the same row again while others may be reading it: stores and loads of rows are strong operations on
// the device, and such a one changes nothing.
inline void StoreRow(uint8_t* place, const Raw& raw) {
  Barrier();
  if (place == nullptr) return;
  RequireAligned(place, 16);
  const uint8_t* const row = fibers::Gather(place, &raw);
  if (row == nullptr) return;
  uint8_t* const at = place - reinterpret_cast<uintptr_t>(place) % fibers::kRowBytes;
#if defined(__SANITIZE_THREAD__)
  constexpr size_t kFlag = fibers::kRowBytes - fibers::kPartBytes;
  if (std::memcmp(at, row, fibers::kRowBytes) == 0) return;
  uint64_t word;
  for (size_t i = 0; i < kFlag; i += 8) {
    std::memcpy(&word, row + i, 8);
    StoreWord<uint64_t>(at + i, word);
  }
  for (const size_t i : {kFlag + 8, kFlag}) {
    std::memcpy(&word, row + i, 8);
    StoreFlagged(reinterpret_cast<uint64_t*>(at + i), word);
  }
#else
  fibers::StoreRow(at, row);
#endif
}

// ---- memory of all devices ----

#define AXCCL_CUDA_HAS_MULTICAST 1

inline void AliasFence() {}
// One after the other, from any device on.
inline void StoreToAll(uint8_t* p, const Raw& raw) {
  RequireAligned(p, 16);
  const auto& team = fibers::Team();
  const size_t first = fibers::Draw(team.size());
  for (size_t i = 0; i < team.size(); ++i) StoreRaw(team[(first + i) % team.size()] + fibers::OffsetInTeam(p), raw);
}
template <SwitchFold kFold>
Raw LoadOfAll(const uint8_t* p) {
  RequireAligned(p, 16);
  const auto& team = fibers::Team();
  const size_t first = fibers::Draw(team.size());
  Raw fold = LoadRaw(team[first] + fibers::OffsetInTeam(p));
  for (size_t i = 1; i < team.size(); ++i) {
    const Raw next = LoadRaw(team[(first + i) % team.size()] + fibers::OffsetInTeam(p));
    fibers::FoldPiece(kFold, fold.word, next.word);
  }
  return fold;
}

// ---- copies in bulk ----

#define AXCCL_CUDA_HAS_BULK 1

// Small, so that small calls use all stages.
inline uint32_t BulkLeast() { return 128; }
inline constexpr uint32_t kIssuerThreads = 1;
inline uint8_t* DynamicShared() { return fibers::DynamicShared(); }
inline uint32_t DynamicSharedBytes() { return fibers::CopiesInBulk() ? fibers::kDynamicSharedBytes : 0; }

using BulkGate = fibers::BulkGate;

// Copies continue while a thread waits. Here ThreadSanitizer sees them.
inline void GoOnInBulk() {
#if defined(__SANITIZE_THREAD__)
  fibers::BulkUnit& unit = fibers::UnitOfThread();
  if (!unit.idle()) {
    const fibers::BulkUnit::Piece piece = unit.Next();
    for (uint32_t at = 0; at < piece.bytes; at += 8)
      StoreWord<uint64_t>(piece.to + at, LoadWord<uint64_t>(piece.from + at));
    unit.End();
  }
#endif
  fibers::Switch();
}

inline void BulkFence() { fibers::FenceBulk(); }
inline void InitGate(BulkGate* gate) { *gate = BulkGate{}; }
inline void ExpectBulk(BulkGate* gate, uint32_t bytes) {
  fibers::MaybeSwitch();
  gate->Expect(bytes);
}
inline void LoadBulk(uint8_t* to, const uint8_t* from, uint32_t bytes, BulkGate* gate) {
  fibers::MaybeSwitch();
  fibers::UnitOfThread().Load(to, from, bytes, gate, !fibers::IsFenced());
}
inline void AwaitGate(BulkGate* gate, uint32_t parity) {
  while (!gate->HasOpened(parity)) GoOnInBulk();
}
inline void StoreBulk(uint8_t* to, const uint8_t* from, uint32_t bytes) {
  fibers::MaybeSwitch();
  fibers::UnitOfThread().Store(to, from, bytes, !fibers::IsFenced());
}
inline void CommitBulk() { fibers::UnitOfThread().Commit(); }
template <uint32_t kBut>
void AwaitBulkRead() {
  while (!fibers::UnitOfThread().HaveRead(kBut)) GoOnInBulk();
}
inline void AwaitBulkWritten() {
  while (!fibers::UnitOfThread().HaveWritten()) GoOnInBulk();
}

// ---- conversions ----

// Follows the definition of the format, independently of the library's other code.
inline float HalfToFloat(uint32_t code) {
  const uint32_t exponent = code >> 10 & 31u, mantissa = code & 1023u;
  float magnitude = std::ldexp(static_cast<float>(mantissa | (exponent != 0 ? 1024u : 0u)),
                               static_cast<int>(exponent != 0 ? exponent : 1u) - 25);
  if (exponent == 31) magnitude = mantissa != 0 ? std::nanf("") : HUGE_VALF;
  return (code & 0x8000u) != 0 ? -magnitude : magnitude;
}
inline uint32_t FloatToHalf(float value) {
  const uint32_t sign = std::signbit(value) ? 0x8000u : 0u;
  const double magnitude = std::fabs(static_cast<double>(value));
  if (magnitude >= 65520.0) return sign | 0x7c00u;
  int exponent = -14;
  if (magnitude >= 0x1p-14) exponent = std::ilogb(magnitude);
  const auto units = static_cast<uint32_t>(std::nearbyint(std::ldexp(magnitude, 10 - exponent)));
  // Carries into the exponent by itself.
  return sign | (static_cast<uint32_t>(exponent + 14) * 1024u + units);
}

}  // namespace axccl::kernels::cuda
