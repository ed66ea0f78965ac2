// The few words of PTX and CUDA that the device code is written in; all inline assembly of the project is here.
//
// Where AXCCL_CUDA_FIBERS names a header, that one is taken instead: it has the same functions for threads that are
// fibers on the CPU (tests/harness/fibers). So the code above this header is compiled unmodified for both.
//
// Memory order, in the words of PTX. Flags are stored with release and loaded with acquire at system scope, and both
// are cumulative over barriers: what any thread of a block has stored before a barrier comes before a release store of
// one of its threads after that barrier, and what one of its threads has acquired before a barrier is seen by all of
// them after it. Words of 8 bytes that say of themselves whether they are there need no order: they are stored and
// loaded with relaxed accesses. So are rows of 128 bytes, where the hardware lets the store of a row arrive as a whole,
// which PTX does not promise. Data is loaded with relaxed accesses at system scope, as lines of the first-level cache
// may be old, and stored weakly. Only accesses of aligned words are made; 16 bytes may be seen torn.
#pragma once

#include <cstddef>
#include <cstdint>

#if defined(AXCCL_CUDA_FIBERS)
#include AXCCL_CUDA_FIBERS
#else

#define AXCCL_DEVICE __device__ __forceinline__
#define AXCCL_DEVICE_CALL __device__ __noinline__  // code that many places share
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

// Of something in the block's shared memory, which the functions of AXCCL_DEVICE_CALL would take for any memory: loads
// of it are shorter, and its address takes one register.
template <class T>
AXCCL_DEVICE T& InShared(T& object) {
  __builtin_assume(__isShared(&object));
  return object;
}

// ---- barriers of a block ----

AXCCL_DEVICE void Barrier() { __syncthreads(); }
// How many threads said `value`.
AXCCL_DEVICE uint32_t BarrierCount(bool value) { return static_cast<uint32_t>(__syncthreads_count(value)); }

// ---- flags ----

AXCCL_DEVICE size_t Global(const void* p) { return __cvta_generic_to_global(p); }

AXCCL_DEVICE uint64_t LoadAcquire(const uint64_t* p) {
  uint64_t value;
  asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(Global(p)) : "memory");
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
AXCCL_DEVICE void StoreRelaxed(uint64_t* p, uint64_t value) {
  asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(Global(p)), "l"(value) : "memory");
}
AXCCL_DEVICE void StoreRelaxed(uint32_t* p, uint32_t value) {
  asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(Global(p)), "r"(value) : "memory");
}

// On counters of this device; the value before. Acquire and release.
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

AXCCL_DEVICE void Backoff(uint32_t nanoseconds) { __nanosleep(nanoseconds); }

// Words that say of themselves whether they are there. They order no data. But a load that has given its value sees
// nothing that is stored because of what the block stores behind a barrier after it: no value is made up before its
// time. So who sees such a word may write where the block has read before.
AXCCL_DEVICE uint64_t LoadFlagged(const uint64_t* p) { return LoadRelaxed(p); }
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
// Stores rows of 128 aligned bytes, eight neighbouring threads one of them: each a place. By all threads of the block,
// or those of a warp have none (null). A barrier is passed by the threads of a warp together, so behind one they store
// in one instruction.
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

// Of 16 bytes and multiples of that, between global and shared memory. A unit of the processor makes them by itself,
// while the thread that has begun them goes on. It reaches memory by another way (the async proxy, in the words of PTX)
// than threads do: what comes before a copy by the order above is seen by it if the thread has made a BulkFence() in
// between. The other way round nothing is needed: who has seen that a copy has ended sees what it has written, and
// passes that on.
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
#define AXCCL_CUDA_HAS_BULK 1

// What is worth it: copies of so many bytes, by stages of so many.
AXCCL_DEVICE constexpr uint32_t BulkLeast() { return 16 << 10; }
inline constexpr uint32_t kBulkStages = 8, kBulkStageBytes = 2 << 10;

// Of one load at a time: opens when as many bytes have come as are expected, and counts how often it has. In shared
// memory.
struct alignas(8) BulkGate {
  uint64_t word;
};

AXCCL_DEVICE uint32_t Shared(const void* p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }

AXCCL_DEVICE void BulkFence() { asm volatile("fence.proxy.async;" ::: "memory"); }
// A BulkFence() comes before the first load.
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
// Until the gate has opened; `parity` of how often it had before.
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
// The thread's stores since the last time are a group.
AXCCL_DEVICE void CommitBulk() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
// Until the thread's groups but the last `kBut` ones have read shared memory.
template <uint32_t kBut>
AXCCL_DEVICE void AwaitBulkRead() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kBut) : "memory");
}
// Until all of the thread's groups have written.
AXCCL_DEVICE void AwaitBulkWritten() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }
#endif

// ---- conversions ----

// Exact; NaN keeps being one.
AXCCL_DEVICE float HalfToFloat(uint32_t code) {
  float value;
  asm("{ .reg .b16 half; cvt.u16.u32 half, %1; cvt.f32.f16 %0, half; }" : "=f"(value) : "r"(code));
  return value;
}
// To nearest even. Not for NaN.
AXCCL_DEVICE uint32_t FloatToHalf(float value) {
  uint32_t code;
  asm("{ .reg .b16 half; cvt.rn.f16.f32 half, %1; cvt.u32.u16 %0, half; }" : "=r"(code) : "f"(value));
  return code;
}

// Of fp8 where the device has them; formats.h has what is done elsewhere. The host pass of nvcc knows no device.
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
// To nearest even, saturated. Not for NaN.
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
