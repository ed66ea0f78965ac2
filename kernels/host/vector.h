// Vectors of a fixed number of bytes, based on the compiler's vector types, and functions to move them.
//
// Internal to the per-ISA compilations: everything is in a namespace named after the instruction set, so that no two
// compilations share a symbol (see isa.h), and nothing of the standard library is instantiated here. All functions are
// pure or touch only the bytes named by their arguments; no alignment is required unless stated.
#pragma once

#include <cstddef>
#include <cstdint>

#if defined(__SSE2__)
#include <immintrin.h>

#include "src/base/sizes.h"
#endif

#if !defined(AXCCL_KERNELS_ISA)
#define AXCCL_KERNELS_ISA baseline
#endif

#define AXCCL_INLINE inline __attribute__((always_inline))

namespace axccl::kernels::AXCCL_KERNELS_ISA {

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "partial vectors are assembled in little-endian order");

#if defined(__AVX512BW__)
inline constexpr int kVectorBytes = 64;
#elif defined(__AVX2__)
inline constexpr int kVectorBytes = 32;
#else
inline constexpr int kVectorBytes = 16;
#endif

template <class Lane, int kBytes>
struct VectorOf {
  typedef Lane Type __attribute__((vector_size(kBytes)));
};
template <class Lane, int kBytes>
using Vector = typename VectorOf<Lane, kBytes>::Type;

// Bits as they lie in memory, before a format gives them meaning.
template <int kBytes>
using Raw = Vector<uint32_t, kBytes>;

// A word or vector at any address, whatever the type of the memory is. Not memcpy, which GCC turns into two integer
// moves through the stack if a vector of 16 bytes is stored twice.
template <class Word>
struct __attribute__((packed, may_alias)) Unaligned {
  Word word;
};

template <class Word>
AXCCL_INLINE Word LoadWord(const void* from) {
  return static_cast<const Unaligned<Word>*>(from)->word;
}

template <class Word>
AXCCL_INLINE void StoreWord(void* to, Word word) {
  static_cast<Unaligned<Word>*>(to)->word = word;
}

// The first `bytes` (at least 1, 16 at most are taken) bytes of a 16-byte vector, the rest zero. Reads nothing outside
// [from, from + bytes). `bytes` is a multiple of kElement.
template <int kElement>
AXCCL_INLINE Raw<16> LoadUpTo16(const char* from, size_t bytes) {
  if (bytes >= 16) return LoadWord<Raw<16>>(from);
  uint64_t low = 0;
  uint64_t high = 0;
  if (kElement == 8 || bytes >= 8) {
    low = LoadWord<uint64_t>(from);
    if (kElement < 8 && bytes > 8) high = LoadWord<uint64_t>(from + bytes - 8) >> (8 * (16 - bytes));
  } else if (kElement == 4 || bytes >= 4) {
    low = LoadWord<uint32_t>(from);
    if (kElement < 4) low |= uint64_t{LoadWord<uint32_t>(from + bytes - 4)} << (8 * (bytes - 4));
  } else if (kElement == 2) {
    low = LoadWord<uint16_t>(from);
  } else {
    const size_t middle = bytes / 2;
    const size_t last = bytes - 1;
    low = uint64_t{LoadWord<uint8_t>(from)} | uint64_t{LoadWord<uint8_t>(from + middle)} << (8 * middle) |
          uint64_t{LoadWord<uint8_t>(from + last)} << (8 * last);
  }
  return (Raw<16>)(Vector<uint64_t, 16>{low, high});
}

// Writes the first `bytes` (at most 16 are written) bytes of `raw` and nothing else. `bytes` is a multiple of kElement.
template <int kElement>
AXCCL_INLINE void StoreUpTo16(char* to, Raw<16> raw, size_t bytes) {
  if (bytes >= 16) {
    StoreWord(to, raw);
    return;
  }
  const Vector<uint64_t, 16> halves = (Vector<uint64_t, 16>)raw;
  uint64_t word = halves[0];
  if (kElement == 8 || (bytes & 8)) {
    StoreWord(to, word);
    word = halves[1];
    to += 8;
  }
  if (kElement <= 4 && (bytes & 4)) {
    StoreWord(to, static_cast<uint32_t>(word));
    word >>= 32;
    to += 4;
  }
  if (kElement <= 2 && (bytes & 2)) {
    StoreWord(to, static_cast<uint16_t>(word));
    word >>= 16;
    to += 2;
  }
  if (kElement == 1 && (bytes & 1)) StoreWord(to, static_cast<uint8_t>(word));
}

// Sanitizers do not see non-temporal stores, so sanitized builds use plain ones: otherwise a race or an overflow of a
// streamed output would stay unnoticed.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define AXCCL_PLAIN_STREAM 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define AXCCL_PLAIN_STREAM 1
#endif
#endif

// Stores a word of kVectorBytes around the cache. `to` is aligned to that.
AXCCL_INLINE void StreamWord(char* to, Raw<kVectorBytes> word) {
#if defined(AXCCL_PLAIN_STREAM) || !defined(__SSE2__)
  StoreWord(to, word);
#elif defined(__AVX512BW__)
  _mm512_stream_si512(reinterpret_cast<__m512i*>(to), (__m512i)word);
#elif defined(__AVX2__)
  _mm256_stream_si256(reinterpret_cast<__m256i*>(to), (__m256i)word);
#else
  _mm_stream_si128(reinterpret_cast<__m128i*>(to), (__m128i)word);
#endif
}

// Stores one cache line around the cache. `to` is aligned to kCacheLine.
AXCCL_INLINE void StreamLine(char* to, const char* from) {
  for (size_t at = 0; at < kCacheLine; at += kVectorBytes) StreamWord(to + at, LoadWord<Raw<kVectorBytes>>(from + at));
}

// Orders the preceding non-temporal stores before a later release store, which would not do so by itself.
AXCCL_INLINE void StreamFence() {
#if defined(__SSE2__)
  _mm_sfence();
#endif
}

// Writes [from, from + bytes) to `to` around the cache: whole lines are streamed, the partial lines at both ends stored
// plainly, because a partial non-temporal line costs a read-modify-write in memory. No fence. Calls before(at) before
// it streams the line at byte `at`.
template <class Before>
AXCCL_INLINE void Stream(char* to, const char* from, size_t bytes, Before before) {
  size_t head = -reinterpret_cast<uintptr_t>(to) % kCacheLine;
  if (head > bytes) head = bytes;
  __builtin_memcpy(to, from, head);
  size_t at = head;
  for (; at + kCacheLine <= bytes; at += kCacheLine) {
    before(at);
    StreamLine(to + at, from + at);
  }
  __builtin_memcpy(to + at, from + at, bytes - at);
}

AXCCL_INLINE void Stream(char* to, const char* from, size_t bytes) {
  Stream(to, from, bytes, [](size_t) {});
}

}  // namespace axccl::kernels::AXCCL_KERNELS_ISA
