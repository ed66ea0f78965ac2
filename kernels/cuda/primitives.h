// The few pieces of PTX and CUDA that the device code is written in; all inline assembly of the project is here.
//
// If AXCCL_CUDA_FIBERS names a header, that header replaces this one: it has the same functions for threads that are
// fibers on the CPU (tests/harness/fibers). So the code above this header is compiled unmodified for both.
//
// Memory order, in the terms of PTX. Flags are stored with release and loaded with acquire at system scope, and both
// are cumulative over barriers: whatever any thread of a block has stored before a barrier precedes a release store by
// one of its threads after that barrier, and whatever one of its threads has acquired before a barrier is visible to
// all of them after it. Words of 8 bytes that contain a flag need no order: they are stored and loaded with relaxed
// accesses. So are rows of 128 bytes, if the hardware delivers the store of a row as a whole, which PTX does not
// promise. Data is loaded with relaxed accesses at system scope, because lines of the first-level cache may be old, and
// stored weakly. All accesses are of aligned words; accesses of 16 bytes may be torn.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/ring.h"
#include "kernels/cuda/switch_fold.h"

#if defined(AXCCL_CUDA_FIBERS)
#include AXCCL_CUDA_FIBERS
#else

#define AXCCL_DEVICE __device__ __forceinline__
#define AXCCL_DEVICE_CALL __device__ __noinline__  // code shared by many callers
// A variable of the block. It is not initialised.
#define AXCCL_SHARED(Type, name)                                     \
  __shared__ alignas(Type) unsigned char name##_bytes[sizeof(Type)]; \
  Type& name = *reinterpret_cast<Type*>(name##_bytes)

namespace axccl::kernels::cuda {

struct alignas(16) Raw {
  uint32_t word[4];
};

// ---- where we are ----

AXCCL_DEVICE uint32_t ThreadIndex() { return threadIdx.x; }
AXCCL_DEVICE uint32_t NumThreads() { return blockDim.x; }
AXCCL_DEVICE uint32_t BlockIndex() { return blockIdx.x; }
AXCCL_DEVICE uint32_t NumBlocks() { return gridDim.x; }

// For addresses in the block's shared memory, which functions marked AXCCL_DEVICE_CALL would otherwise treat as
// generic: loads from them are shorter, and the address takes one register.
template <class T>
AXCCL_DEVICE T& InShared(T& object) {
  __builtin_assume(__isShared(&object));
  return object;
}

// ---- barriers of a block ----

AXCCL_DEVICE void Barrier() { __syncthreads(); }
// Returns the number of threads for which `value` is true.
AXCCL_DEVICE uint32_t BarrierCount(bool value) { return static_cast<uint32_t>(__syncthreads_count(value)); }

// ---- flags ----

AXCCL_DEVICE size_t Global(const void* p) { return __cvta_generic_to_global(p); }

AXCCL_DEVICE uint64_t LoadAcquire(const uint64_t* p) {
  uint64_t value;
  asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(Global(p)) : "memory");
  return value;
}
AXCCL_DEVICE uint32_t LoadAcquire(const uint32_t* p) {
  uint32_t value;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(Global(p)) : "memory");
  return value;
}
AXCCL_DEVICE void StoreRelease(uint64_t* p, uint64_t value) {
  asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(Global(p)), "l"(value) : "memory");
}
AXCCL_DEVICE void StoreRelease(uint32_t* p, uint32_t value) {
  asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(Global(p)), "r"(value) : "memory");
}
AXCCL_DEVICE uint64_t LoadRelaxed(const uint64_t* p) {
  uint64_t value;
  asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(Global(p)) : "memory");
  return value;
}
AXCCL_DEVICE uint32_t LoadRelaxed(const uint32_t* p) {
  uint32_t value;
  asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(Global(p)) : "memory");
  return value;
}

// Two neighbouring words at an address that is a multiple of 16, loaded by one instruction, but in any order.
struct Pair {
  uint64_t first, second;
};
AXCCL_DEVICE Pair LoadPair(const uint64_t* p) {
  Pair pair;
  asm volatile("ld.relaxed.sys.global.v2.u64 {%0, %1}, [%2];"
               : "=l"(pair.first), "=l"(pair.second)
               : "l"(Global(p))
               : "memory");
  return pair;
}
AXCCL_DEVICE Pair LoadPairAcquire(const uint64_t* p) {
  Pair pair;
  asm volatile("ld.acquire.sys.global.v2.u64 {%0, %1}, [%2];"
               : "=l"(pair.first), "=l"(pair.second)
               : "l"(Global(p))
               : "memory");
  return pair;
}
// After a relaxed load of the word at `p`: what follows is ordered as after an acquire load that returned that value.
AXCCL_DEVICE void FenceAcquire(const uint64_t*) { asm volatile("fence.acq_rel.sys;" ::: "memory"); }

AXCCL_DEVICE void StoreRelaxed(uint64_t* p, uint64_t value) {
  asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(Global(p)), "l"(value) : "memory");
}
AXCCL_DEVICE void StoreRelaxed(uint32_t* p, uint32_t value) {
  asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(Global(p)), "r"(value) : "memory");
}

// On counters of this device; they return the value before. Acquire and release.
AXCCL_DEVICE uint32_t FetchAdd(uint32_t* p, uint32_t value) {
  uint32_t before;
  asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], %2;" : "=r"(before) : "l"(Global(p)), "r"(value) : "memory");
  return before;
}
AXCCL_DEVICE uint32_t Exchange(uint32_t* p, uint32_t value) {
  uint32_t before;
  asm volatile("atom.acq_rel.gpu.global.exch.b32 %0, [%1], %2;" : "=r"(before) : "l"(Global(p)), "r"(value) : "memory");
  return before;
}

// Stores `value` if *p is `expected`. For words that the host and other devices write, too. Acquire and release.
AXCCL_DEVICE void CompareExchange(uint32_t* p, uint32_t expected, uint32_t value) {
  [[maybe_unused]] uint32_t before;
  asm volatile("atom.acq_rel.sys.global.cas.b32 %0, [%1], %2, %3;"
               : "=r"(before)
               : "l"(Global(p)), "r"(expected), "r"(value)
               : "memory");
}

AXCCL_DEVICE void Backoff(uint32_t nanoseconds) { __nanosleep(nanoseconds); }

// How often a small call looks at what it waits for before it leaves the wait to the interpreter.
AXCCL_DEVICE constexpr uint32_t SmallPolls() { return 1024; }

// Words that contain a flag. They order no data. But once a load has returned its value, it cannot see anything that is
// stored because of what the block stores after a later barrier: values do not appear before their cause. So another
// rank that sees such a word may write where the block has read before.
AXCCL_DEVICE uint64_t LoadFlagged(const uint64_t* p) { return LoadRelaxed(p); }
AXCCL_DEVICE Pair LoadFlaggedPair(const uint64_t* p) { return LoadPair(p); }
AXCCL_DEVICE void StoreFlagged(uint64_t* p, uint64_t value) { StoreRelaxed(p, value); }

// ---- data ----

AXCCL_DEVICE Raw LoadRaw(const uint8_t* p) {
  Raw raw;
  asm volatile("ld.relaxed.sys.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(raw.word[0]), "=r"(raw.word[1]), "=r"(raw.word[2]), "=r"(raw.word[3])
               : "l"(Global(p))
               : "memory");
  return raw;
}
AXCCL_DEVICE void StoreRaw(uint8_t* p, const Raw& raw) {
  asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(Global(p)), "r"(raw.word[0]), "r"(raw.word[1]),
               "r"(raw.word[2]), "r"(raw.word[3])
               : "memory");
}
// Stores rows of 128 aligned bytes; eight neighbouring threads store one place each of a row. All threads of the block
// must call it, or all threads of a warp pass null. The threads of a warp pass a barrier together, so after one they
// store in one instruction.
AXCCL_DEVICE void StoreRow(uint8_t* place, const Raw& raw) {
  Barrier();
  if (place == nullptr) return;
  asm volatile("st.relaxed.sys.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(Global(place)), "r"(raw.word[0]),
               "r"(raw.word[1]), "r"(raw.word[2]), "r"(raw.word[3])
               : "memory");
}

template <class Word>
AXCCL_DEVICE Word LoadWord(const uint8_t* p) {
  uint64_t value = 0;
  uint32_t part = 0;
  if constexpr (sizeof(Word) == 8) {
    asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(Global(p)) : "memory");
    return static_cast<Word>(value);
  } else if constexpr (sizeof(Word) == 4) {
    asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(part) : "l"(Global(p)) : "memory");
  } else if constexpr (sizeof(Word) == 2) {
    asm volatile("ld.relaxed.sys.global.u16 %0, [%1];" : "=r"(part) : "l"(Global(p)) : "memory");
  } else {
    asm volatile("ld.relaxed.sys.global.u8 %0, [%1];" : "=r"(part) : "l"(Global(p)) : "memory");
  }
  return static_cast<Word>(part);
}
template <class Word>
AXCCL_DEVICE void StoreWord(uint8_t* p, Word word) {
  if constexpr (sizeof(Word) == 8) {
    asm volatile("st.global.u64 [%0], %1;" ::"l"(Global(p)), "l"(static_cast<uint64_t>(word)) : "memory");
  } else if constexpr (sizeof(Word) == 4) {
    asm volatile("st.global.u32 [%0], %1;" ::"l"(Global(p)), "r"(static_cast<uint32_t>(word)) : "memory");
  } else if constexpr (sizeof(Word) == 2) {
    asm volatile("st.global.u16 [%0], %1;" ::"l"(Global(p)), "r"(static_cast<uint32_t>(word)) : "memory");
  } else {
    asm volatile("st.global.u8 [%0], %1;" ::"l"(Global(p)), "r"(static_cast<uint32_t>(word)) : "memory");
  }
}

// ---- copies in bulk ----

// Copies of multiples of 16 bytes between global and shared memory. A unit of the processor executes them while the
// thread that started them continues. The unit accesses memory through another path (the async proxy, in the terms of
// PTX) than threads do: it sees what precedes a copy by the order above if the thread has called BulkFence() in
// between. The other direction needs nothing: a thread that knows that a copy has ended sees what it has written, and
// passes that on.
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
#define AXCCL_CUDA_HAS_BULK 1

AXCCL_DEVICE constexpr uint32_t BulkLeast() { return kBulkLeastBytes; }
// The first thread of a warp issues copies.
inline constexpr uint32_t kIssuerThreads = 32;

// The shared memory that the launch has asked for, beyond what the kernel declares.
AXCCL_DEVICE uint8_t* DynamicShared() {
  extern __shared__ __align__(128) uint8_t axccl_dynamic_shared[];
  return axccl_dynamic_shared;
}
AXCCL_DEVICE uint32_t DynamicSharedBytes() {
  uint32_t bytes;
  asm("mov.u32 %0, %%dynamic_smem_size;" : "=r"(bytes));
  return bytes;
}

// A gate for one load at a time: it opens when the expected number of bytes has arrived, and counts how often it has
// opened. In shared memory.
struct alignas(8) BulkGate {
  uint64_t word;
};

AXCCL_DEVICE uint32_t Shared(const void* p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }

AXCCL_DEVICE void BulkFence() { asm volatile("fence.proxy.async;" ::: "memory"); }
// A BulkFence() must precede the first load.
AXCCL_DEVICE void InitGate(BulkGate* gate) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(Shared(gate)) : "memory");
}
AXCCL_DEVICE void ExpectBulk(BulkGate* gate, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(Shared(gate)), "r"(bytes) : "memory");
}
AXCCL_DEVICE void LoadBulk(uint8_t* to, const uint8_t* from, uint32_t bytes, BulkGate* gate) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(Shared(to)),
      "l"(Global(from)), "r"(bytes), "r"(Shared(gate))
      : "memory");
}
// Waits until the gate has opened; `parity` is that of how often it had opened before.
AXCCL_DEVICE void AwaitGate(BulkGate* gate, uint32_t parity) {
  uint32_t open;
  do {
    asm volatile(
        "{ .reg .pred open; mbarrier.try_wait.parity.shared::cta.b64 open, [%1], %2; selp.u32 %0, 1, 0, open; }"
        : "=r"(open)
        : "r"(Shared(gate)), "r"(parity)
        : "memory");
  } while (open == 0);
}
AXCCL_DEVICE void StoreBulk(uint8_t* to, const uint8_t* from, uint32_t bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(Global(to)), "r"(Shared(from)),
               "r"(bytes)
               : "memory");
}
// Makes a group of the thread's stores since the last call.
AXCCL_DEVICE void CommitBulk() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
// Waits until the thread's groups except the last `kBut` have read shared memory.
template <uint32_t kBut>
AXCCL_DEVICE void AwaitBulkRead() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kBut) : "memory");
}
// Waits until all of the thread's groups have written.
AXCCL_DEVICE void AwaitBulkWritten() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }
#endif

// ---- memory of all devices ----

// Accesses of addresses that stand for one address in the memory of each device of a team (NVLink SHARP), from PTX 8.1
// and sm_90 on. Such an address and those of the memory behind it are aliases, and what is accessed by both is ordered
// only if there is an alias fence on the way: "X and Y are aliases and there is an alias proxy fence along the base
// causality path from X to Y" (PTX ISA, memory consistency model, proxy-preserved base causality order). The thread
// that signals has one on the path of all threads of its block, which a barrier precedes.
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
#define AXCCL_CUDA_HAS_MULTICAST 1

AXCCL_DEVICE void AliasFence() { asm volatile("fence.proxy.alias;" ::: "memory"); }

AXCCL_DEVICE void StoreToAll(uint8_t* p, const Raw& raw) {
  asm volatile("multimem.st.relaxed.sys.global.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(Global(p)), "r"(raw.word[0]),
               "r"(raw.word[1]), "r"(raw.word[2]), "r"(raw.word[3])
               : "memory");
}

// Vectors exist for floats alone.
#define AXCCL_LOAD_VECTOR(form)                                                             \
  asm volatile("multimem.ld_reduce.relaxed.sys.global." form " {%0, %1, %2, %3}, [%4];"     \
               : "=r"(raw.word[0]), "=r"(raw.word[1]), "=r"(raw.word[2]), "=r"(raw.word[3]) \
               : "l"(Global(p))                                                             \
               : "memory")
#define AXCCL_LOAD_WORDS(form)                                            \
  for (int w = 0; w < 4; ++w)                                             \
  asm volatile("multimem.ld_reduce.relaxed.sys.global." form " %0, [%1];" \
               : "=r"(raw.word[w])                                        \
               : "l"(Global(p + 4 * w))                                   \
               : "memory")
#define AXCCL_LOAD_PAIR(form, constraint, type)                             \
  for (int h = 0; h < 2; ++h) {                                             \
    type half;                                                              \
    asm volatile("multimem.ld_reduce.relaxed.sys.global." form " %0, [%1];" \
                 : constraint(half)                                         \
                 : "l"(Global(p + 8 * h))                                   \
                 : "memory");                                               \
    uint64_t bits;                                                          \
    __builtin_memcpy(&bits, &half, sizeof(bits));                           \
    raw.word[2 * h] = static_cast<uint32_t>(bits);                          \
    raw.word[2 * h + 1] = static_cast<uint32_t>(bits >> 32);                \
  }

// Returns the fold of the 16 bytes that all devices have there.
template <SwitchFold kFold>
AXCCL_DEVICE Raw LoadOfAll(const uint8_t* p) {
  Raw raw;
  if constexpr (kFold == SwitchFold::kSumFloat32) {
    AXCCL_LOAD_VECTOR("add.v4.f32");
  } else if constexpr (kFold == SwitchFold::kSumFloat16) {
    AXCCL_LOAD_VECTOR("add.acc::f32.v4.f16x2");
  } else if constexpr (kFold == SwitchFold::kSumBfloat16) {
    AXCCL_LOAD_VECTOR("add.acc::f32.v4.bf16x2");
  } else if constexpr (kFold == SwitchFold::kSumFloat64) {
    AXCCL_LOAD_PAIR("add.f64", "=d", double);
  } else if constexpr (kFold == SwitchFold::kSum32) {
    AXCCL_LOAD_WORDS("add.u32");
  } else if constexpr (kFold == SwitchFold::kMinInt32) {
    AXCCL_LOAD_WORDS("min.s32");
  } else if constexpr (kFold == SwitchFold::kMinUint32) {
    AXCCL_LOAD_WORDS("min.u32");
  } else if constexpr (kFold == SwitchFold::kMaxInt32) {
    AXCCL_LOAD_WORDS("max.s32");
  } else if constexpr (kFold == SwitchFold::kMaxUint32) {
    AXCCL_LOAD_WORDS("max.u32");
  } else if constexpr (kFold == SwitchFold::kAnd) {
    AXCCL_LOAD_WORDS("and.b32");
  } else if constexpr (kFold == SwitchFold::kOr) {
    AXCCL_LOAD_WORDS("or.b32");
  } else if constexpr (kFold == SwitchFold::kXor) {
    AXCCL_LOAD_WORDS("xor.b32");
  } else if constexpr (kFold == SwitchFold::kSum64) {
    AXCCL_LOAD_PAIR("add.u64", "=l", uint64_t);
  } else if constexpr (kFold == SwitchFold::kMinInt64) {
    AXCCL_LOAD_PAIR("min.s64", "=l", uint64_t);
  } else if constexpr (kFold == SwitchFold::kMinUint64) {
    AXCCL_LOAD_PAIR("min.u64", "=l", uint64_t);
  } else if constexpr (kFold == SwitchFold::kMaxInt64) {
    AXCCL_LOAD_PAIR("max.s64", "=l", uint64_t);
  } else {
    static_assert(kFold == SwitchFold::kMaxUint64);
    AXCCL_LOAD_PAIR("max.u64", "=l", uint64_t);
  }
  return raw;
}
#undef AXCCL_LOAD_VECTOR
#undef AXCCL_LOAD_WORDS
#undef AXCCL_LOAD_PAIR
#endif

// ---- conversions ----

// Exact; NaN stays NaN.
AXCCL_DEVICE float HalfToFloat(uint32_t code) {
  float value;
  asm("{ .reg .b16 half; cvt.u16.u32 half, %1; cvt.f32.f16 %0, half; }" : "=f"(value) : "r"(code));
  return value;
}
// Rounds to nearest even. Not for NaN.
AXCCL_DEVICE uint32_t FloatToHalf(float value) {
  uint32_t code;
  asm("{ .reg .b16 half; cvt.rn.f16.f32 half, %1; cvt.u32.u16 %0, half; }" : "=r"(code) : "f"(value));
  return code;
}

// For fp8, on devices that support it; formats.h has the replacement. The host pass of nvcc has no device architecture.
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 890
#define AXCCL_CUDA_HAS_FLOAT8 1
template <bool kE4M3>
AXCCL_DEVICE float Float8ToFloat(uint32_t code) {
  float value;
  if constexpr (kE4M3) {
    asm("{ .reg .b16 pair, low, high; .reg .b32 halves; cvt.u16.u32 pair, %1; cvt.rn.f16x2.e4m3x2 halves, pair; "
        "mov.b32 {low, high}, halves; cvt.f32.f16 %0, low; }"
        : "=f"(value)
        : "r"(code));
  } else {
    asm("{ .reg .b16 pair, low, high; .reg .b32 halves; cvt.u16.u32 pair, %1; cvt.rn.f16x2.e5m2x2 halves, pair; "
        "mov.b32 {low, high}, halves; cvt.f32.f16 %0, low; }"
        : "=f"(value)
        : "r"(code));
  }
  return value;
}
// Rounds to nearest even, saturated. Not for NaN.
template <bool kE4M3>
AXCCL_DEVICE uint32_t FloatToFloat8(float value) {
  uint32_t code;
  const float zero = 0;
  if constexpr (kE4M3) {
    asm("{ .reg .b16 pair; cvt.rn.satfinite.e4m3x2.f32 pair, %2, %1; cvt.u32.u16 %0, pair; }"
        : "=r"(code)
        : "f"(value), "f"(zero));
  } else {
    asm("{ .reg .b16 pair; cvt.rn.satfinite.e5m2x2.f32 pair, %2, %1; cvt.u32.u16 %0, pair; }"
        : "=r"(code)
        : "f"(value), "f"(zero));
  }
  return code;
}
#endif

}  // namespace axccl::kernels::cuda

#endif  // AXCCL_CUDA_FIBERS
