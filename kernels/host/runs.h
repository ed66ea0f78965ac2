// Runs of bytes through registers: a fixed number of bytes as one value, and copies of medium length without a call.
// Internal to the per-ISA compilations, see vector.h. Pure functions.
#pragma once

#include "kernels/host/vector.h"

namespace axccl::kernels::AXCCL_KERNELS_ISA {

template <int kElement>
struct WordOf;
template <>
struct WordOf<1> {
  using Type = uint8_t;
};
template <>
struct WordOf<2> {
  using Type = uint16_t;
};
template <>
struct WordOf<4> {
  using Type = uint32_t;
};
template <>
struct WordOf<8> {
  using Type = uint64_t;
};

// kBytes bytes in as many vectors as needed.
template <int kBytes>
struct Chunk {
  static constexpr int kWord = kBytes < kVectorBytes ? kBytes : kVectorBytes;
  static constexpr int kNum = kBytes / kWord;
  using Word = Raw<kWord>;
  Word word[kNum];

  AXCCL_INLINE void Load(const char* from) {
    for (int i = 0; i < kNum; ++i) word[i] = LoadWord<Word>(from + i * kWord);
  }
  AXCCL_INLINE void Store(char* to) const {
    for (int i = 0; i < kNum; ++i) StoreWord(to + i * kWord, word[i]);
  }
};

template <int kBytes>
requires(kBytes <= 8) struct Chunk<kBytes> {
  typename WordOf<kBytes>::Type word;
  AXCCL_INLINE void Load(const char* from) { word = LoadWord<decltype(word)>(from); }
  AXCCL_INLINE void Store(char* to) const { StoreWord(to, word); }
};

template <int kBytes>
AXCCL_INLINE void CopyPair(char* to, const char* from, size_t bytes) {
  Chunk<kBytes> head;
  Chunk<kBytes> tail;
  head.Load(from);
  tail.Load(from + bytes - kBytes);
  head.Store(to);
  tail.Store(to + bytes - kBytes);
}

// From this length on, the C library's copy is as good.
constexpr size_t kMaxInlineRun = 1024;

AXCCL_INLINE void CopyRun(char* to, const char* from, size_t bytes) {
  if (bytes > kMaxInlineRun) {
    __builtin_memcpy(to, from, bytes);
  } else if (bytes >= 64) {
    for (; bytes > 128; bytes -= 64, to += 64, from += 64) {
      Chunk<64> chunk;
      chunk.Load(from);
      chunk.Store(to);
    }
    CopyPair<64>(to, from, bytes);
  } else if (bytes >= 16) {
    bytes >= 32 ? CopyPair<32>(to, from, bytes) : CopyPair<16>(to, from, bytes);
  } else if (bytes >= 4) {
    bytes >= 8 ? CopyPair<8>(to, from, bytes) : CopyPair<4>(to, from, bytes);
  } else if (bytes > 0) {
    bytes >= 2 ? CopyPair<2>(to, from, bytes) : CopyPair<1>(to, from, bytes);
  }
}

// Streaming splits a run at the lines of the destination, which does not pay for a few of them.
constexpr size_t kMinStreamedRun = 256;

}  // namespace axccl::kernels::AXCCL_KERNELS_ISA
