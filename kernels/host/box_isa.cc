// Nested copies for one instruction set; compiled once for each (AXCCL_KERNELS_ISA names it, see CMakeLists.txt).
//
// A kernel moves runs of one size class over two nested loops; everything is dispatched outside of it. The inner loop
// is the dimension in which the destination is nearest to contiguous. If the source has another such dimension, both
// loops are cut into tiles that fit the first-level cache or, for small runs, transposed in registers.

#include "kernels/host/box_nest.h"
#include "kernels/host/isa.h"
#include "kernels/host/runs.h"
#include "kernels/host/transpose.h"
#include "kernels/host/vector.h"

namespace axccl::kernels::AXCCL_KERNELS_ISA {
namespace {

using Kernel = void (*)(char* dst, const char* src, const NestDim& outer, const NestDim& inner, size_t run);

// Copies one run of kBytes bytes; or, as two overlapping chunks, of any number of bytes up to twice that.
template <int kBytes, bool kPair>
AXCCL_INLINE void MoveRun(char* to, const char* from, size_t run) {
  if constexpr (kPair) {
    CopyPair<kBytes>(to, from, run);
  } else {
    Chunk<kBytes> chunk;
    chunk.Load(from);
    chunk.Store(to);
  }
}

// Copies small runs four at a time, because stepping from one run to the next would take longer than moving it.
template <int kBytes, bool kPair>
void Runs(char* dst, const char* src, const NestDim& outer, const NestDim& inner, size_t run) {
  constexpr int kAtOnce = kBytes <= 16 ? 4 : 1;
  const int64_t to_next = inner.dst;
  const int64_t from_next = inner.src;
  const NestDim outside = outer;
  const uint64_t num = inner.count;
  for (uint64_t o = 0; o < outside.count; ++o) {
    char* to = dst;
    const char* from = src;
    uint64_t left = num;
    for (; left >= kAtOnce; left -= kAtOnce, to += kAtOnce * to_next, from += kAtOnce * from_next) {
      for (int i = 0; i < kAtOnce; ++i) MoveRun<kBytes, kPair>(to + i * to_next, from + i * from_next, run);
    }
    if constexpr (kAtOnce > 1) {
#pragma GCC unroll 1
      for (; left > 0; --left, to += to_next, from += from_next) MoveRun<kBytes, kPair>(to, from, run);
    }
    dst += outside.dst;
    src += outside.src;
  }
}

// Packs short runs without gaps: one store for every 16 bytes, because loads are cheaper than stores.
template <int kBytes>
void PackedRuns(char* dst, const char* src, const NestDim& outer, const NestDim& inner, size_t) {
  using Word = typename WordOf<kBytes>::Type;
  constexpr int kNum = 16 / kBytes;
  const int64_t next = inner.src;
  const NestDim outside = outer;
  const uint64_t num = inner.count;
  for (uint64_t o = 0; o < outside.count; ++o) {
    char* to = dst;
    const char* from = src;
    uint64_t left = num;
    for (; left >= kNum; left -= kNum, to += 16, from += kNum * next) {
      Vector<Word, 16> words;
      for (int i = 0; i < kNum; ++i) words[i] = LoadWord<Word>(from + i * next);
      StoreWord(to, words);
    }
    for (; left > 0; --left, to += kBytes, from += next) StoreWord(to, LoadWord<Word>(from));
    dst += outside.dst;
    src += outside.src;
  }
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

AXCCL_INLINE int Log2(size_t n) { return 63 - __builtin_clzll(n); }

#if defined(__SSE4_1__)
constexpr Kernel kPacked[] = {PackedRuns<1>, PackedRuns<2>, PackedRuns<4>};
#else
constexpr Kernel kPacked[] = {Runs<1, false>, PackedRuns<2>, PackedRuns<4>};  // cannot insert single bytes
#endif

Kernel KernelFor(size_t run, bool packed, bool non_temporal) {
  if (run > kMaxShortRun) return non_temporal && run >= kMinStreamedRun ? LongRuns<true> : LongRuns<false>;
  if ((run & (run - 1)) != 0 || run == kMaxShortRun) return kBetween[Log2(run - 1)];
  return (packed && run <= 4 ? kPacked : kExact)[Log2(run)];
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

// Collects the runs of a contiguous destination in the first-level cache and streams them from there.
void RunStreamed(Kernel kernel, char* dst, const char* src, const Loops& loops, size_t run) {
  constexpr size_t kBlockBytes = 4096;
  alignas(kCacheLine) char block[kBlockBytes];
  const int64_t to_next = static_cast<int64_t>(run);
  const size_t row = loops.inner.count * run;
  // Several rows of a contiguous destination are streamed at a time; other rows in parts.
  const bool joined = loops.outer.dst == static_cast<int64_t>(row) && row <= kBlockBytes;
  const uint64_t rows = joined ? kBlockBytes / row : 1;
  const uint64_t cols = joined ? loops.inner.count : kBlockBytes / run;
  for (uint64_t o = 0; o < loops.outer.count; o += rows) {
    const uint64_t left = loops.outer.count - o;
    const NestDim outer = {left < rows ? left : rows, static_cast<int64_t>(row), loops.outer.src};
    for (uint64_t i = 0; i < loops.inner.count; i += cols) {
      const uint64_t rest = loops.inner.count - i;
      const NestDim inner = {rest < cols ? rest : cols, to_next, loops.inner.src};
      const int64_t in = static_cast<int64_t>(i);
      const int64_t out = static_cast<int64_t>(o);
      kernel(block, src + out * loops.outer.src + in * inner.src, outer, inner, run);
      Stream(dst + out * loops.outer.dst + in * to_next, block, outer.count * inner.count * run);
    }
  }
}

// Whether the destination has contiguous runs that are worth streaming and the source has not.
bool WorthStreaming(const Loops& loops, size_t run) {
  if (run >= kMinStreamedRun || loops.crossed || loops.inner.dst != static_cast<int64_t>(run)) return false;
  const uint64_t row = loops.inner.count * run;
  return row >= kMinStreamedRun ||
         (loops.outer.dst == static_cast<int64_t>(row) && row * loops.outer.count >= kMinStreamedRun);
}

// With fewer iterations than these, a loop does not pay.
constexpr uint64_t kMinInner = 4;

AXCCL_INLINE NestDim Part(const NestDim& dim, uint64_t begin, uint64_t most) {
  const uint64_t left = dim.count - begin;
  return {left < most ? left : most, dim.dst, dim.src};
}

// Longer runs are far enough apart in any order.
constexpr size_t kMaxTiledRun = 512;

// Cuts both loops into tiles that fit the first-level cache even if the source's pitch is a large power of two, which
// maps its lines to few of the sets. Inside a tile the order of the loops does not matter, so the longer one can be the
// inner.
void RunTiled(Kernel kernel, char* dst, const char* src, const Loops& loops, size_t run) {
  const uint64_t side = run <= 16 ? 16 : 8;
  const uint64_t inner_side = loops.inner.count < side ? loops.inner.count : side;
  const uint64_t outer_side = 16 * side / inner_side;
  for (uint64_t i = 0; i < loops.inner.count; i += inner_side) {
    const NestDim inner = Part(loops.inner, i, inner_side);
    for (uint64_t o = 0; o < loops.outer.count; o += outer_side) {
      const NestDim outer = Part(loops.outer, o, outer_side);
      const int64_t in = static_cast<int64_t>(i);
      const int64_t out = static_cast<int64_t>(o);
      const bool swap = loops.inner.count < kMinInner && outer.count > inner.count;
      kernel(dst + in * inner.dst + out * outer.dst, src + in * inner.src + out * outer.src, swap ? inner : outer,
             swap ? outer : inner, run);
    }
  }
}

using Transposer = void (*)(char* dst, const char* src, const NestDim& across, const NestDim& along, bool non_temporal);

template <int kElement>
void Transpose(char* dst, const char* src, const NestDim& across, const NestDim& along, bool non_temporal) {
  Transposition<kElement>::Run(dst, src, across, along, non_temporal);
}

// Returns null if a dimension is too short to gain from it.
Transposer TransposerFor(const Loops& loops, size_t run) {
  constexpr Transposer kTransposers[] = {Transpose<1>, Transpose<2>, Transpose<4>, Transpose<8>};
  if (!loops.crossed || run > 8 || (run & (run - 1)) != 0) return nullptr;
  const int64_t element = static_cast<int64_t>(run);
  if (loops.inner.dst != element || loops.outer.src != element) return nullptr;
  if (loops.inner.count < 16 / run || loops.outer.count < 16 / run) return nullptr;
  return kTransposers[Log2(run)];
}

// Takes groups of kGroup lanes alternately from the lower (or upper) halves of two vectors.
template <bool kUpper, int kGroup, class V, int... kIndex>
AXCCL_INLINE V Woven(V a, V b, Indices<kIndex...>) {
  constexpr int kLanes = sizeof...(kIndex);
  if constexpr (kGroup == kLanes) return kUpper ? b : a;
  return __builtin_shufflevector(
      a, b,
      (kIndex / kGroup / 2 * kGroup + kIndex % kGroup + (kUpper ? kLanes / 2 : 0) + kIndex / kGroup % 2 * kLanes)...);
}

template <int kElement>
constexpr int kPairStep = kElement == 1 ? 16 : kVectorBytes;  // bytes can be interleaved cheaply only 16 at a time

// Interleaves two contiguous sources run by run, in registers. The inner loop is over the two.
template <int kElement, bool kStream>
void Pair(char* dst, const char* src, const NestDim& outer, const NestDim& inner, size_t) {
  constexpr int kWord = kElement < 8 ? kElement : 8;
  constexpr int kStep = kPairStep<kElement>;
  constexpr uint64_t kRows = kStep / kElement;
  using V = Vector<typename WordOf<kWord>::Type, kStep>;
  using All = typename IndicesTo<kStep / kWord>::Type;
  auto store = [](char* to, V v) {
    if constexpr (kStream && kStep == kVectorBytes) {
      StreamWord(to, (Raw<kStep>)v);
    } else {
      StoreWord(to, v);
    }
  };
  const char* second = src + inner.src;
  uint64_t left = outer.count;
  for (; left >= kRows; left -= kRows, src += kStep, second += kStep, dst += 2 * kStep) {
    const V a = LoadWord<V>(src);
    const V b = LoadWord<V>(second);
    store(dst, Woven<false, kElement / kWord>(a, b, All{}));
    store(dst + kStep, Woven<true, kElement / kWord>(a, b, All{}));
  }
  for (; left > 0; --left, src += kElement, second += kElement, dst += 2 * kElement) {
    MoveRun<kElement, false>(dst, src, kElement);
    MoveRun<kElement, false>(dst + kElement, second, kElement);
  }
}

// Returns null if the nest is of another kind.
Kernel PairFor(const CopyNest& nest, const Loops& loops) {
  constexpr Kernel kPlain[] = {Pair<1, false>, Pair<2, false>, Pair<4, false>, Pair<8, false>, Pair<16, false>};
  constexpr Kernel kStreamed[] = {Pair<1, false>, Pair<2, true>, Pair<4, true>, Pair<8, true>, Pair<16, true>};
  const size_t run = nest.run;
  const int64_t bytes = static_cast<int64_t>(run);
  if (loops.num_rest > 0 || loops.inner.count != 2 || run > 16 || (run & (run - 1)) != 0) return nullptr;
  if (loops.inner.dst != bytes || loops.outer.dst != 2 * bytes || loops.outer.src != bytes) return nullptr;
  const bool streamed = nest.non_temporal && reinterpret_cast<uintptr_t>(nest.dst) % kCacheLine == 0;
  return (streamed ? kStreamed : kPlain)[Log2(run)];
}

// Copies runs of whole cache lines of the destination, around the cache.
void Lines(char* dst, const char* src, const NestDim& outer, const NestDim& inner, size_t run) {
  for (uint64_t o = 0; o < outer.count; ++o, dst += outer.dst, src += outer.src) {
    char* to = dst;
    const char* from = src;
    for (uint64_t i = 0; i < inner.count; ++i, to += inner.dst, from += inner.src) {
      for (size_t at = 0; at < run; at += kCacheLine) StreamLine(to + at, from + at);
    }
  }
}

bool WholeLines(const CopyNest& nest) {
  uint64_t bits = reinterpret_cast<uintptr_t>(nest.dst) | nest.run;
  for (int i = 0; i < nest.num_dims; ++i) bits |= static_cast<uint64_t>(nest.dim[i].dst);
  return bits % kCacheLine == 0;
}

}  // namespace

void MoveNest(const CopyNest& nest) {
  const Loops loops = Arrange(nest);
  const Kernel pair = PairFor(nest, loops);
  const Transposer transposer = TransposerFor(loops, nest.run);
  const bool packed = loops.inner.dst == static_cast<int64_t>(nest.run) && loops.inner.count >= kMinInner;
  const bool lines = nest.non_temporal && nest.run < kMinStreamedRun && WholeLines(nest);
  const Kernel kernel = lines ? Lines : KernelFor(nest.run, packed, nest.non_temporal);
  const bool tiled =
      loops.crossed ? nest.run <= kMaxTiledRun : loops.inner.count < kMinInner && nest.run <= kMaxShortRun;
  const bool streamed = nest.non_temporal && !lines && WorthStreaming(loops, nest.run);
  char* dst = nest.dst;
  const char* src = nest.src;
  uint64_t index[kMaxNestDims] = {};
  for (;;) {
    if (pair != nullptr) {
      pair(dst, src, loops.outer, loops.inner, nest.run);
    } else if (transposer != nullptr) {
      transposer(dst, src, loops.outer, loops.inner, nest.non_temporal);
    } else if (streamed) {
      RunStreamed(kernel, dst, src, loops, nest.run);
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
