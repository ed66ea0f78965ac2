// The ring through which a block copies in bulk (bulk.h): how it is divided, and how much shared memory a launch asks
// for it. For host and device.
//
// A copy of bytes at the rate r takes r * latency bytes that are on their way. Between ranks of one H100, each
// multiprocessor has to copy 3.35 TB/s / 2 / 132 = 13 GB/s, and over NVLink, 16 blocks 28 GB/s each. A load takes about
// 1 us from the memory and 1.5 us over NVLink, so 42 KiB have to be on their way.
//
// An H100 has 228 KiB of shared memory for a multiprocessor, on which two blocks run, and 31 KiB of each are static:
// that leaves 80 KiB, in 8 stages of 10 KiB. Two threads issue copies, each through a ring of its own of 4 stages, so
// neither waits for the other. Three of these are being loaded (60 KiB in the block) while the fourth is stored: its
// store has to read it, which takes about 0.5 us, before the next load into it may start. With some 0.3 us for issuing
// a load and a store, a block could copy 2 * 10 KiB / 0.8 us = 25 GB/s if loads took no time, so issuing is not what
// limits it. By stages of 2 KiB and one thread, it would be.
#pragma once

#include <algorithm>
#include <cstdint>

namespace axccl::kernels::cuda {

inline constexpr uint32_t kBulkIssuers = 2;
inline constexpr uint32_t kBulkStages = 4;  // of an issuer
// Of these, how many are always being loaded while there is enough to copy.
inline constexpr uint32_t kBulkAhead = 3;
static_assert(kBulkAhead < kBulkStages);

// The least copy for which the ring pays. What moves less needs none.
inline constexpr uint32_t kBulkLeastBytes = 16 << 10;

inline constexpr uint32_t kMostRingBytes = 128 << 10, kStageUnit = 1 << 10;

// How much shared memory a processor has, and how much of it the kernel has declared, in bytes.
struct SharedMemoryOf {
  uint64_t multiprocessor;  // CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR
  uint64_t block;           // the most of a block: CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
  uint64_t reserved;  // for each block, not part of the above: CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK
  uint64_t kernel;    // of a block: CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES
};

// The ring of a block, so large that two blocks still run on a multiprocessor; 0: there is no room.
constexpr uint32_t RingBytes(const SharedMemoryOf& shared) {
  constexpr uint64_t kStages = kBulkIssuers * kBulkStages;
  const uint64_t taken = shared.reserved + shared.kernel, half = shared.multiprocessor / 2;
  const uint64_t room =
      half > taken && shared.block > shared.kernel ? std::min(half - taken, shared.block - shared.kernel) : 0;
  const uint64_t bytes = std::min<uint64_t>(room, kMostRingBytes);
  return static_cast<uint32_t>(bytes / (kStages * kStageUnit) * (kStages * kStageUnit));
}

// What a block with such a ring has requested and not received.
constexpr uint32_t RingBytesInFlight(uint32_t ring_bytes) { return ring_bytes / kBulkStages * kBulkAhead; }

}  // namespace axccl::kernels::cuda
