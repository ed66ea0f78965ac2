// CUDA threads as fibers on the CPU: runs device code that is compiled by the host compiler (see twin.h).
//
// Run() runs several streams side by side in the calling thread until all have ended: the launches of a stream one
// after the other, the blocks of a launch at the same time. A seed determines what runs next and how memory behaves, so
// a seed replays exactly. Schedules are bursty: for a while all blocks but one may be starved. A fiber may be
// interrupted at every primitive.
//
// Memory is weak: stores of data, and relaxed ones, wait in a buffer of their block and reach memory in any order, at
// random times while the block runs. Rows of bytes that neighbouring threads store together reach it as a whole.
// Threads see their own stores, and after a barrier those that their whole block made before it. A release store or an
// atomic operation first flushes what its thread sees; the end of a block flushes everything. Copies in bulk continue
// by themselves while the block runs (bulk.h), those of each thread apart. Under ThreadSanitizer memory is not weak:
// flags are atomics, data is accessed plainly, and ThreadSanitizer reports races; the thread that waits for copies in
// bulk makes them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "tests/harness/fibers/bulk.h"

namespace axccl::fibers {

struct Launch {
  uint32_t blocks = 1;
  uint32_t threads = 1;
  std::function<void()> body;  // the kernel, called by every thread
};

using Stream = std::vector<Launch>;

// Whether blocks use bulk copies where they can.
enum class Bulk : uint8_t { kNever, kAlways, kBySeed };

struct Options {
  uint64_t seed = 1;
  uint64_t most_switches = 20'000'000;  // after this many, the launches count as hung
  Bulk bulk = Bulk::kBySeed;
  // Stands in for the host: called every `host_interval` switches, between them.
  std::function<void()> host;
  uint64_t host_interval = 1000;
  // Called for every load and store except atomic and release ones, in the order of each thread; not under
  // ThreadSanitizer.
  std::function<void(uint32_t thread, const void* p, bool stores)> watch;
};

// Returns false if the streams do not end; their fibers are abandoned.
bool Run(const std::vector<Stream>& streams, const Options& options);

// ---- for twin.h: of the fiber that runs ----

struct Position {
  uint32_t thread, threads, block, blocks;
};
Position Here();
void* SharedMemory(size_t bytes);
uint32_t BarrierCount(bool value);
void Switch();       // another fiber may run
void MaybeSwitch();  // now and then
uint64_t Draw(uint64_t bound);

// Memory; `bytes` is 1, 2, 4 or 8.
uint64_t Load(const void* p, size_t bytes);
void Store(void* p, uint64_t value, size_t bytes);
void BringOut();  // flushes, as a release does

// Neighbouring threads (kRowThreads) store a row of kRowBytes aligned bytes in one instruction, one part each. Takes
// the part at `p`. The last thread gets the row, which is valid until the next barrier; the others get null. A row that
// is not complete by then, or has parts of threads that are not neighbours, ends the program.
inline constexpr size_t kRowBytes = 128, kPartBytes = 16, kRowThreads = kRowBytes / kPartBytes;
const uint8_t* Gather(void* p, const void* part);
void StoreRow(void* p, const uint8_t* row);

// Copies in bulk.
bool CopiesInBulk();  // whether the block copies in bulk
void FenceBulk();     // required before copies that start until the next barrier; also flushes
bool IsFenced();
BulkUnit& UnitOfThread();
// Shared memory for the stages: 8 of 64 bytes.
inline constexpr uint32_t kDynamicSharedBytes = 8 * 64;
uint8_t* DynamicShared();

}  // namespace axccl::fibers
