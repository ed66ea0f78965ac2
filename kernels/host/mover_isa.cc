// The movers for one instruction set; compiled once for each (AXCCL_KERNELS_ISA names it, see CMakeLists.txt).
//
// A kernel is one (format, combination) with everything dispatched outside its loop. It walks the request in chunks
// that fit the registers: all sources of a chunk are read and combined before its destinations are written, which makes
// exact aliasing safe and reads and writes every byte once, whatever the number of sources.

#include <type_traits>

#include "kernels/host/combine.h"
#include "kernels/host/formats.h"
#include "kernels/host/isa.h"
#include "kernels/host/vector.h"

namespace axccl::kernels::AXCCL_KERNELS_ISA {
namespace {

// Small enough to stay in the first-level cache while the sources stream past, large enough to amortise the calls.
constexpr size_t kBlockBytes = 4096;

// Reduces bytes [begin, end) of every source into bytes [0, end - begin) of every destination. Takes the caller's
// request unchanged, because building another would be noticeable in the smallest calls.
using Kernel = void (*)(const ReduceRequest& request, size_t begin, size_t end);

template <class Lane>
AXCCL_INLINE Lane Quotient(Lane value, uint64_t divisor) {
  if constexpr (Lane(-1) < Lane(0)) {
    const uint64_t magnitude = value < 0 ? -static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
    const uint64_t quotient = magnitude / divisor;
    return static_cast<Lane>(value < 0 ? -quotient : quotient);
  } else {
    return static_cast<Lane>(value / divisor);
  }
}

// Divides every lane, signed ones toward zero. Powers of two, the most common group sizes, become shifts.
template <class Lane, int kBytes>
AXCCL_INLINE Vector<Lane, kBytes> Divided(Vector<Lane, kBytes> v, uint64_t divisor) {
  constexpr int kBits = 8 * sizeof(Lane);
  if ((divisor & (divisor - 1)) == 0) {
    const int shift = __builtin_ctzll(divisor);
    if (shift >= kBits) return Vector<Lane, kBytes>{};
    if constexpr (Lane(-1) < Lane(0)) v += (v >> (kBits - 1)) & static_cast<Lane>(divisor - 1);
    return v >> shift;
  }
  Lane lanes[kBytes / sizeof(Lane)];
  StoreWord(lanes, v);
#pragma GCC unroll 1
  for (Lane& lane : lanes) lane = Quotient<Lane>(lane, divisor);
  return LoadWord<Vector<Lane, kBytes>>(lanes);
}

template <class Format, class Op, bool kScaled, int kBytes>
struct Fold {
  using Lane = typename Format::Lane;
  using Acc = Pack<Lane, kBytes, Format::kPacks>;

  static AXCCL_INLINE Acc Load(const ReduceRequest& request, Raw<kBytes> raw, int k) {
    Acc acc = Format::template Up<kBytes>(raw);
    if constexpr (kScaled) {
      if (request.pre != nullptr) {
        const Lane factor = Format::FactorOf(request.pre[k]);
        for (int i = 0; i < Format::kPacks; ++i) acc.v[i] *= factor;
        if constexpr (Format::kIsFloat && Format::kPacks > 1) {
          if (request.round_factored) acc = Format::template Up<kBytes>(Format::template Down<kBytes>(acc));
        }
      }
    }
    return acc;
  }

  static AXCCL_INLINE void Add(Acc& acc, const Acc& next) {
    for (int i = 0; i < Format::kPacks; ++i) {
      acc.v[i] = Op::template Apply<Format::kIsFloat>(acc.v[i], next.v[i]);
    }
  }

  static AXCCL_INLINE Raw<kBytes> Finish(const ReduceRequest& request, Acc& acc) {
    if constexpr (kScaled && !Format::kIsFloat) {
      if (request.post_divisor > 1) acc.v[0] = Divided<Lane, kBytes>(acc.v[0], request.post_divisor);
    }
    if constexpr (kScaled && Format::kIsFloat) {
      if (request.post != nullptr) {
        const Lane factor = Format::FactorOf(*request.post);
        for (int i = 0; i < Format::kPacks; ++i) acc.v[i] *= factor;
      }
    }
    return Format::template Down<kBytes>(acc);
  }
};

// kStreams: destinations, aligned to cache lines, are written around the cache.
template <class Format, class Op, bool kScaled, int kNumSrc, int kNumDst, bool kStreams = false>
struct Mover {
  // Four vectors of accumulators hide the latency of the additions and amortise walking the pointer arrays.
  static constexpr int kUnroll = 4 / Format::kPacks;

  // Pointers are members if their number is fixed. The compiler must assume that stores may change the caller's arrays,
  // and would read those again for every chunk.
  const ReduceRequest& request;
  const size_t begin;
  const char* src[kNumSrc == 0 ? 1 : kNumSrc];
  char* dst[kNumDst == 0 ? 1 : kNumDst];

  AXCCL_INLINE Mover(const ReduceRequest& r, size_t from) : request(r), begin(from) {
    for (int k = 0; k < kNumSrc; ++k) src[k] = static_cast<const char*>(r.src[k]) + from;
    for (int d = 0; d < kNumDst; ++d) dst[d] = static_cast<char*>(r.dst[d]);
  }
  AXCCL_INLINE int NumSrc() const { return kNumSrc == 0 ? request.num_src : kNumSrc; }
  AXCCL_INLINE int NumDst() const { return kNumDst == 0 ? request.num_dst : kNumDst; }
  AXCCL_INLINE const char* Src(int k, size_t at) const {
    return (kNumSrc == 0 ? static_cast<const char*>(request.src[k]) + begin : src[k]) + at;
  }
  AXCCL_INLINE char* Dst(int d, size_t at) const {
    return (kNumDst == 0 ? static_cast<char*>(request.dst[d]) : dst[d]) + at;
  }

  template <int kBytes, int kCount>
  AXCCL_INLINE void Chunk(size_t at) const {
    using F = Fold<Format, Op, kScaled, kBytes>;
    typename F::Acc acc[kCount];
    for (int u = 0; u < kCount; ++u) acc[u] = F::Load(request, LoadWord<Raw<kBytes>>(Src(0, at) + u * kBytes), 0);
    for (int k = 1; k < NumSrc(); ++k) {
      const char* from = Src(k, at);
      for (int u = 0; u < kCount; ++u) F::Add(acc[u], F::Load(request, LoadWord<Raw<kBytes>>(from + u * kBytes), k));
    }
    Raw<kBytes> out[kCount];
    for (int u = 0; u < kCount; ++u) out[u] = F::Finish(request, acc[u]);
    for (int d = 0; d < NumDst(); ++d) {
      char* to = Dst(d, at);
      for (int u = 0; u < kCount; ++u) {
        if constexpr (kStreams && kCount == kUnroll) {
          StreamWord(to + u * kBytes, out[u]);
        } else {
          StoreWord(to + u * kBytes, out[u]);
        }
      }
    }
  }

  // Reduces the last bytes, up to 16 at a time. Lanes beyond the end compute on zeros and are not stored.
  AXCCL_INLINE void Rest(size_t at, size_t bytes) const {
    using F = Fold<Format, Op, kScaled, 16>;
    constexpr int kElement = sizeof(typename Format::Lane) / Format::kPacks;
    typename F::Acc acc = F::Load(request, LoadUpTo16<kElement>(Src(0, at), bytes), 0);
    for (int k = 1; k < NumSrc(); ++k) F::Add(acc, F::Load(request, LoadUpTo16<kElement>(Src(k, at), bytes), k));
    const Raw<16> out = F::Finish(request, acc);
    for (int d = 0; d < NumDst(); ++d) StoreUpTo16<kElement>(Dst(d, at), out, bytes);
  }

  AXCCL_INLINE void Run(size_t bytes) const {
    size_t at = 0;
    if (bytes > 16) {  // the smallest requests do not even prepare for vectors
      for (; at + kUnroll * kVectorBytes <= bytes; at += kUnroll * kVectorBytes) Chunk<kVectorBytes, kUnroll>(at);
      if constexpr (kUnroll > 1) {
        for (; at + kVectorBytes <= bytes; at += kVectorBytes) Chunk<kVectorBytes, 1>(at);
      }
    }
    for (; at < bytes; at += 16) Rest(at, bytes - at);
  }
};

template <class Format, class Op, bool kScaled, int kNumSrc, int kNumDst, bool kStreams = false>
void Run(const ReduceRequest& request, size_t begin, size_t end) {
  Mover<Format, Op, kScaled, kNumSrc, kNumDst, kStreams>(request, begin).Run(end - begin);
}

// The kernels of one (type, combination).
struct Kernels {
  Kernel two_to_one;           // 2 sources, 1 destination, no scaling: the common reduction between two ranks
  Kernel two_to_two;           // the same for both ranks at once
  Kernel two_to_one_streamed;  // around the cache, to aligned destinations
  Kernel two_to_two_streamed;
  Kernel many;    // any numbers, no scaling
  Kernel scaled;  // any numbers, factors, divisor; of sums only
};

// `Plain` is the format for requests without scaling.
template <class Plain, class Format, class Op>
constexpr Kernels KernelsOf() {
  Kernel scaled = nullptr;
  if constexpr (std::is_same_v<Op, Sum>) scaled = Run<Format, Op, true, 0, 0>;
  return {Run<Plain, Op, false, 2, 1>,       Run<Plain, Op, false, 2, 2>, Run<Plain, Op, false, 2, 1, true>,
          Run<Plain, Op, false, 2, 2, true>, Run<Plain, Op, false, 0, 0>, scaled};
}

// For rare combinations whose cost is dominated by the loads: fewer instances, and no scaling.
template <class Format, class Op>
constexpr Kernels FewKernelsOf() {
  constexpr Kernel kMany = Run<Format, Op, false, 0, 0>;
  return {Run<Format, Op, false, 2, 1>, kMany, Run<Format, Op, false, 2, 1, true>, kMany, kMany, nullptr};
}

struct TypeKernels {
  Kernels of[kNumCombines];  // in the order of Combine; empty where there is no such combination
  int size_shift;
};

// Sums and products of integers use the unsigned types, because the sign does not matter and this halves the instances.
// Max and min of small floats need no arithmetic, see Ordered.
template <class Format, class PlainSum = Format, class PlainMax = Format, class PlainMin = PlainMax>
constexpr TypeKernels TypeKernelsOf(int size_shift) {
  return {{KernelsOf<PlainSum, Format, Sum>(), KernelsOf<PlainSum, Format, Prod>(), KernelsOf<PlainMax, Format, Max>(),
           KernelsOf<PlainMin, Format, Min>()},
          size_shift};
}

// Bitwise operations are independent of the width: one set of kernels for all integers.
template <class Op>
constexpr Kernels BitKernelsOf() {
  return KernelsOf<Integer<uint8_t>, Integer<uint8_t>, Op>();
}

template <class Format, class Unsigned>
constexpr TypeKernels IntegerKernelsOf(int size_shift) {
  TypeKernels kernels = TypeKernelsOf<Format, Integer<Unsigned>, Format>(size_shift);
  kernels.of[static_cast<int>(Combine::kAnd)] = BitKernelsOf<And>();
  kernels.of[static_cast<int>(Combine::kOr)] = BitKernelsOf<Or>();
  kernels.of[static_cast<int>(Combine::kXor)] = BitKernelsOf<Xor>();
  kernels.of[static_cast<int>(Combine::kLogicalAnd)] = FewKernelsOf<Truth<Unsigned>, And>();
  kernels.of[static_cast<int>(Combine::kLogicalOr)] = FewKernelsOf<Truth<Unsigned>, Or>();
  return kernels;
}

// StableHLO's definition: the sum and the maximum are "or", the product and the minimum are "and".
constexpr TypeKernels BoolKernels() {
  using Bool = Truth<uint8_t>;
  constexpr Kernels kAll = FewKernelsOf<Bool, And>();
  constexpr Kernels kAny = FewKernelsOf<Bool, Or>();
  return {{kAny, kAll, kAny, kAll, kAll, kAny, FewKernelsOf<Bool, Xor>(), kAll, kAny}, 0};
}

// The sum of complex numbers is the sum of their parts.
template <class Part>
constexpr TypeKernels ComplexKernelsOf(int size_shift) {
  return {{KernelsOf<Part, Part, Sum>(), FewKernelsOf<Part, ComplexProd>()}, size_shift};
}

// Indexed by DataType.
constexpr TypeKernels kKernels[kNumArithmeticTypes] = {
    IntegerKernelsOf<Integer<int8_t>, uint8_t>(0),
    IntegerKernelsOf<Integer<uint8_t>, uint8_t>(0),
    IntegerKernelsOf<Integer<int32_t>, uint32_t>(2),
    IntegerKernelsOf<Integer<uint32_t>, uint32_t>(2),
    IntegerKernelsOf<Integer<int64_t>, uint64_t>(3),
    IntegerKernelsOf<Integer<uint64_t>, uint64_t>(3),
    TypeKernelsOf<Float16, Float16, OrderedFloat16<true>, OrderedFloat16<false>>(1),
    TypeKernelsOf<Float32>(2),
    TypeKernelsOf<Float64>(3),
    TypeKernelsOf<Bfloat16, Bfloat16, OrderedBfloat16<true>, OrderedBfloat16<false>>(1),
    TypeKernelsOf<Float8<E4M3>, Float8<E4M3>, OrderedE4M3<true>, OrderedE4M3<false>>(0),
    TypeKernelsOf<Float8<E5M2>, Float8<E5M2>, OrderedE5M2<true>, OrderedE5M2<false>>(0),
    IntegerKernelsOf<Integer<int16_t>, uint16_t>(1),
    IntegerKernelsOf<Integer<uint16_t>, uint16_t>(1),
    BoolKernels(),
    ComplexKernelsOf<Float32>(3),
    ComplexKernelsOf<Float64>(4),
};

bool OnLines(const void* p) { return reinterpret_cast<uintptr_t>(p) % kCacheLine == 0; }

// The first block of a streamed output ends where a cache line of the destination begins, so that all other blocks
// consist of whole lines.
size_t FirstBlock(const void* dst, size_t bytes) {
  const size_t block = kBlockBytes - reinterpret_cast<uintptr_t>(dst) % kCacheLine;
  return block < bytes ? block : bytes;
}

// What to prefetch while a block is streamed, from byte `at` of every source; null: nothing.
struct Fetch {
  const void* const* src;
  size_t at;
};

// Streams a block and meanwhile prefetches the sources of the next one, `soon` to the first-level cache, `later` to the
// second: the stores alone would leave the memory idle, and the loads of the next block would have to wait afterwards.
void StreamAndFetch(char* to, const char* block, size_t bytes, int num_src, const Fetch& soon, const Fetch& later) {
  for (size_t line = 0; line < bytes; line += kCacheLine) {
    for (int k = 0; soon.src != nullptr && k < num_src; ++k)
      __builtin_prefetch(static_cast<const char*>(soon.src[k]) + soon.at + line);
    for (int k = 0; later.src != nullptr && k < num_src; ++k)
      __builtin_prefetch(static_cast<const char*>(later.src[k]) + later.at + line, 0, 2);
    Stream(to + line, block + line, bytes - line < kCacheLine ? bytes - line : kCacheLine);
  }
}

// Reduces block by block into the first-level cache and streams from there: this needs no kernels of its own, and
// destinations may have different alignments. The rows are those of isa.h. No fence.
[[gnu::noinline]] void ReduceStreamed(Kernel kernel, const ReduceRequest& request, size_t bytes,
                                      const void* const* next_row, const void* const* later_row) {
  alignas(kCacheLine) char block[kBlockBytes];
  void* const to_block[1] = {block};
  ReduceRequest part = request;
  part.dst = to_block;
  part.num_dst = 1;
  size_t at = 0;
  size_t end = FirstBlock(request.dst[0], bytes);
  while (at < bytes) {
    kernel(part, at, end);
    // Do not prefetch beyond the sources' ends.
    const Fetch soon = end == bytes              ? Fetch{next_row, 0}
                       : bytes - end >= end - at ? Fetch{request.src, end}
                                                 : Fetch{nullptr, 0};
    StreamAndFetch(static_cast<char*>(request.dst[0]) + at, block, end - at, request.num_src, soon, {later_row, at});
    for (int d = 1; d < request.num_dst; ++d) Stream(static_cast<char*>(request.dst[d]) + at, block, end - at);
    at = end;
    end = bytes - at < kBlockBytes ? bytes : at + kBlockBytes;
  }
}

[[gnu::noinline]] void CopyStreamed(void* const* dst, int num_dst, const void* src, size_t bytes) {
  const char* from = static_cast<const char*>(src);
  size_t at = 0;
  size_t end = FirstBlock(dst[0], bytes);
  while (at < bytes) {
    for (int d = 0; d < num_dst; ++d) {
      char* to = static_cast<char*>(dst[d]) + at;
      if (to != from + at) Stream(to, from + at, end - at);
    }
    at = end;
    end = bytes - at < kBlockBytes ? bytes : at + kBlockBytes;
  }
  StreamFence();
}

// A block that is copied several times stays in the first-level cache, and is long enough for memcpy to take whole
// lines without fetching them.
constexpr size_t kCopyBlockBytes = 16384;

// Stores each vector twice while it is in a register: a fifth faster than one after the other, where memcpy stores
// vectors, too.
[[gnu::noinline]] void CopyToTwo(char* first, char* second, const char* from, size_t bytes) {
  using V = Raw<kVectorBytes>;
  constexpr size_t kStep = 4 * kVectorBytes;
  size_t at = 0;
  for (; at + kStep <= bytes; at += kStep) {
    V v[4];
    for (size_t u = 0; u < 4; ++u) v[u] = LoadWord<V>(from + at + u * kVectorBytes);
    for (size_t u = 0; u < 4; ++u) StoreWord(first + at + u * kVectorBytes, v[u]);
    for (size_t u = 0; u < 4; ++u) StoreWord(second + at + u * kVectorBytes, v[u]);
  }
  __builtin_memmove(first + at, from + at, bytes - at);  // either may be the source itself
  __builtin_memmove(second + at, from + at, bytes - at);
}

void Copy(void* const* dst, int num_dst, const void* src, size_t bytes, bool non_temporal) {
  if (non_temporal) return CopyStreamed(dst, num_dst, src, bytes);
  const char* from = static_cast<const char*>(src);
  if (num_dst == 1) {
    if (dst[0] != src) __builtin_memcpy(dst[0], src, bytes);
    return;
  }
  size_t at = 0;
  for (; bytes - at >= kCopyBlockBytes; at += kCopyBlockBytes) {
    for (int d = 0; d < num_dst; ++d) {
      if (dst[d] != src) __builtin_memcpy(static_cast<char*>(dst[d]) + at, from + at, kCopyBlockBytes);
    }
  }
  // Writes two at a time, block by block, so that the source is read again from the first-level cache only.
  size_t step = num_dst == 2 ? bytes - at : kBlockBytes;
  for (; at < bytes; at += step) {
    if (step > bytes - at) step = bytes - at;
    int d = 0;
    for (; d + 2 <= num_dst; d += 2)
      CopyToTwo(static_cast<char*>(dst[d]) + at, static_cast<char*>(dst[d + 1]) + at, from + at, step);
    if (d < num_dst && dst[d] != src) __builtin_memcpy(static_cast<char*>(dst[d]) + at, from + at, step);
  }
}

void StreamAndFetchUpcoming(char* to, const char* from, size_t bytes, const Upcoming& upcoming) {
  int k = 0;
  size_t next = 0;
  Stream(to, from, bytes, [&](size_t) {
    if (next >= upcoming.bytes) return;
    __builtin_prefetch(upcoming.place[k] + next);
    if (++k < upcoming.num) return;
    k = 0;
    next += kCacheLine;
  });
}

void Fence() { StreamFence(); }

bool Scales(const ReduceRequest& request) {
  return request.pre != nullptr || request.post_divisor > 1 || request.post != nullptr;
}

Kernel KernelToOne(const Kernels& kernels, const ReduceRequest& request) {
  if (Scales(request)) return kernels.scaled;
  return request.num_src == 2 ? kernels.two_to_one : kernels.many;
}

void ReduceRow(const ReduceRequest& request, const void* const* next_row, const void* const* later_row) {
  const TypeKernels& type = kKernels[static_cast<size_t>(request.type)];
  const Kernels& kernels = type.of[static_cast<size_t>(request.combine)];
  const size_t bytes = request.count << type.size_shift;
  // If the hardware prefetches, and the destination consists of whole lines, no block is needed.
  const bool two_to_one = request.num_src == 2 && request.num_dst == 1 && !Scales(request);
  if (two_to_one && later_row == nullptr && OnLines(request.dst[0]))
    return kernels.two_to_one_streamed(request, 0, bytes);
  ReduceStreamed(KernelToOne(kernels, request), request, bytes, next_row, later_row);
}

void ReduceUnscaled(const ReduceRequest& request) {
  const TypeKernels& type = kKernels[static_cast<size_t>(request.type)];
  const Kernels& kernels = type.of[static_cast<size_t>(request.combine)];
  const size_t bytes = request.count << type.size_shift;
  if (request.num_src == 2 && request.num_dst == 1) return kernels.two_to_one(request, 0, bytes);
  if (request.num_src == 2 && request.num_dst == 2) return kernels.two_to_two(request, 0, bytes);
  if (request.num_src == 1) return Copy(request.dst, request.num_dst, request.src[0], bytes, false);
  kernels.many(request, 0, bytes);
}

void Reduce(const ReduceRequest& request) {
  const TypeKernels& type = kKernels[static_cast<size_t>(request.type)];
  const Kernels& kernels = type.of[static_cast<size_t>(request.combine)];
  const size_t bytes = request.count << type.size_shift;
  const bool scaled = Scales(request);
  const bool two = request.num_src == 2 && !scaled;
  if (request.non_temporal) {
    if (two && request.num_dst <= 2 && OnLines(request.dst[0]) && OnLines(request.dst[request.num_dst - 1])) {
      (request.num_dst == 1 ? kernels.two_to_one_streamed : kernels.two_to_two_streamed)(request, 0, bytes);
      StreamFence();
    } else if (request.num_src > 1 || scaled) {
      ReduceStreamed(KernelToOne(kernels, request), request, bytes, nullptr, nullptr);
      StreamFence();
    } else {
      CopyStreamed(request.dst, request.num_dst, request.src[0], bytes);
    }
  } else if (two && request.num_dst <= 2) {
    (request.num_dst == 1 ? kernels.two_to_one : kernels.two_to_two)(request, 0, bytes);
  } else if (scaled) {
    kernels.scaled(request, 0, bytes);
  } else if (request.num_src == 1) {
    Copy(request.dst, request.num_dst, request.src[0], bytes, false);
  } else {
    kernels.many(request, 0, bytes);
  }
}

}  // namespace

constinit const IsaTable kTable = {Reduce, ReduceUnscaled, Copy, MoveNest, StreamAndFetchUpcoming, ReduceRow, Fence};

}  // namespace axccl::kernels::AXCCL_KERNELS_ISA
