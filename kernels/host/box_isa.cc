// Nested copies for one instruction set; compiled once for each (AXCCL_KERNELS_ISA names it, see CMakeLists.txt).
//
// A kernel moves runs of one size class over two nested loops; everything is dispatched outside of it. The inner loop is
// the dimension in which the destination is nearest to contiguous. Where the source has another such dimension, both
// loops are cut into tiles that fit the first-level cache, or, for small runs, transposed through registers.

#include "kernels/host/box_nest.h"
#include "kernels/host/isa.h"
#include "kernels/host/transpose.h"
#include "kernels/host/vector.h"

namespace axccl::kernels::AXCCL_KERNELS_ISA {
namespace {

using Kernel = void (*)(char* dst, const char* src, const NestDim& outer, const NestDim& inner, size_t run);

// kBytes bytes in as many vectors as it takes.
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
  requires(kBytes <= 8)
struct Chunk<kBytes> {
  typename WordOf<kBytes>::Type word;
  AXCCL_INLINE void Load(const char* from) { word = LoadWord<decltype(word)>(from); }
  AXCCL_INLINE void Store(char* to) const { StoreWord(to, word); }
};

// Runs of kBytes bytes; or, as two chunks that overlap, of any number between that and its double.
template <int kBytes, bool kPair>
void Runs(char* dst, const char* src, const NestDim& outer, const NestDim& inner, size_t run) {
  const int64_t to_next = inner.dst;
  const int64_t from_next = inner.src;
  const uint64_t num = inner.count;
  for (uint64_t o = outer.count; o > 0; --o) {
    char* to = dst;
    const char* from = src;
#pragma GCC unroll 4
    for (uint64_t i = 0; i < num; ++i) {
      Chunk<kBytes> head;
      head.Load(from);
      if constexpr (kPair) {
        Chunk<kBytes> tail;
        tail.Load(from + run - kBytes);
        tail.Store(to + run - kBytes);
      }
      head.Store(to);
      to += to_next;
      from += from_next;
    }
    dst += outer.dst;
    src += outer.src;
  }
}

// Beyond this the C library's copy is as good and knows more tricks.
constexpr size_t kMaxInlineRun = 1024;

AXCCL_INLINE void CopyRun(char* to, const char* from, size_t bytes) {
  if (bytes > kMaxInlineRun) {
    __builtin_memcpy(to, from, bytes);
    return;
  }
  size_t at = 0;
  for (; at + 64 < bytes; at += 64) {
    Chunk<64> chunk;
    chunk.Load(from + at);
    chunk.Store(to + at);
  }
  Chunk<64> tail;
  tail.Load(from + bytes - 64);
  tail.Store(to + bytes - 64);
}

template <bool kStream>
void LongRuns(char* dst, const char* src, const NestDim& outer, const NestDim& inner, size_t run) {
  for (uint64_t o = 0; o < outer.count; ++o) {
    char* to = dst;
    const char* from = src;
    for (uint64_t i = 0; i < inner.count; ++i) {
      kStream ? Stream(to, from, run) : CopyRun(to, from, run);
      to += inner.dst;
      from += inner.src;
    }
    dst += outer.dst;
    src += outer.src;
  }
}

// Indexed by the logarithm of the run, or of the largest power of two below it.
constexpr int kNumClasses = 7;
constexpr size_t kMaxShortRun = 128;
constexpr Kernel kExact[kNumClasses] = {Runs<1, false>,  Runs<2, false>,  Runs<4, false>, Runs<8, false>,
                                        Runs<16, false>, Runs<32, false>, Runs<64, false>};
constexpr Kernel kBetween[kNumClasses] = {nullptr,        Runs<2, true>,  Runs<4, true>, Runs<8, true>,
                                          Runs<16, true>, Runs<32, true>, Runs<64, true>};

// Streaming breaks a run at the lines of the destination: not worth it for a few of them.
constexpr size_t kMinStreamedRun = 256;

AXCCL_INLINE int Log2(size_t n) { return 63 - __builtin_clzll(n); }

Kernel KernelFor(size_t run, bool non_temporal) {
  if (run > kMaxShortRun) return non_temporal && run >= kMinStreamedRun ? LongRuns<true> : LongRuns<false>;
  if ((run & (run - 1)) == 0 && run < kMaxShortRun) return kExact[Log2(run)];
  return kBetween[Log2(run - 1)];
}

// The two loops of the kernel and those around them.
struct Loops {
  NestDim inner;
  NestDim outer;
  bool crossed;  // the outer loop is the one in which the source is nearest to contiguous
  int num_rest;
  NestDim rest[kMaxNestDims];
};

AXCCL_INLINE uint64_t Distance(int64_t stride) {
  return stride < 0 ? -static_cast<uint64_t>(stride) : static_cast<uint64_t>(stride);
}

Loops Arrange(const CopyNest& nest) {
  const int last = nest.num_dims - 1;
  int outer = last - 1;
  Loops loops;
  loops.inner = nest.dim[last];
  loops.outer = {1, 0, 0};
  loops.crossed = false;
  uint64_t nearest = Distance(loops.inner.src);
  for (int i = 0; i < last; ++i) {
    const uint64_t distance = Distance(nest.dim[i].src);
    if (distance == 0 || distance >= nearest) continue;
    nearest = distance;
    outer = i;
    loops.crossed = true;
  }
  if (outer >= 0) loops.outer = nest.dim[outer];
  loops.num_rest = 0;
  for (int i = 0; i < last; ++i) {
    if (i != outer) loops.rest[loops.num_rest++] = nest.dim[i];
  }
  return loops;
}

// Both loops in tiles of as many cache lines as fit half of the first-level cache.
void RunTiled(Kernel kernel, char* dst, const char* src, const Loops& loops, size_t run) {
  const uint64_t side = run <= 16 ? 32 : (run <= 64 ? 16 : 8);
  for (uint64_t i = 0; i < loops.inner.count; i += side) {
    NestDim inner = loops.inner;
    inner.count = inner.count - i < side ? inner.count - i : side;
    for (uint64_t o = 0; o < loops.outer.count; o += side) {
      NestDim outer = loops.outer;
      outer.count = outer.count - o < side ? outer.count - o : side;
      const int64_t in = static_cast<int64_t>(i);
      const int64_t out = static_cast<int64_t>(o);
      kernel(dst + in * inner.dst + out * outer.dst, src + in * inner.src + out * outer.src, outer, inner, run);
    }
  }
}

using Transposer = void (*)(char* dst, const char* src, const NestDim& across, const NestDim& along, bool non_temporal);

template <int kElement>
void Transpose(char* dst, const char* src, const NestDim& across, const NestDim& along, bool non_temporal) {
  Transposition<kElement>::Run(dst, src, across, along, non_temporal);
}

// Null where a dimension is too short to gain from it.
Transposer TransposerFor(const Loops& loops, size_t run) {
  constexpr Transposer kTransposers[] = {Transpose<1>, Transpose<2>, Transpose<4>, Transpose<8>};
  if (!loops.crossed || run > 8 || (run & (run - 1)) != 0) return nullptr;
  const int64_t element = static_cast<int64_t>(run);
  if (loops.inner.dst != element || loops.outer.src != element) return nullptr;
  if (loops.inner.count < 16 / run || loops.outer.count < 16 / run) return nullptr;
  return kTransposers[Log2(run)];
}

}  // namespace

void MoveNest(const CopyNest& nest) {
  const Loops loops = Arrange(nest);
  const Transposer transposer = TransposerFor(loops, nest.run);
  const Kernel kernel = KernelFor(nest.run, nest.non_temporal);
  const bool tiled = loops.crossed && nest.run <= kMaxShortRun;
  char* dst = nest.dst;
  const char* src = nest.src;
  uint64_t index[kMaxNestDims] = {};
  for (;;) {
    if (transposer != nullptr) {
      transposer(dst, src, loops.outer, loops.inner, nest.non_temporal);
    } else if (tiled) {
      RunTiled(kernel, dst, src, loops, nest.run);
    } else {
      kernel(dst, src, loops.outer, loops.inner, nest.run);
    }
    int i = loops.num_rest - 1;
    for (; i >= 0; --i) {
      const NestDim& dim = loops.rest[i];
      dst += dim.dst;
      src += dim.src;
      if (++index[i] < dim.count) break;
      index[i] = 0;
      dst -= static_cast<int64_t>(dim.count) * dim.dst;
      src -= static_cast<int64_t>(dim.count) * dim.src;
    }
    if (i < 0) break;
  }
}

}  // namespace axccl::kernels::AXCCL_KERNELS_ISA
