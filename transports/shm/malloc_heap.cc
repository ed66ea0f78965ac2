#include "transports/shm/malloc_heap.h"

#include <dlfcn.h>
#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

#include "src/base/log.h"
#include "src/base/param.h"
#include "transports/shm/mapping.h"
#include "transports/shm/registered_memory.h"

namespace axccl::shm {
namespace {

constexpr size_t kLongestKept = size_t{32} << 20;
constexpr size_t kMostKept = size_t{64} << 20;
constexpr size_t kLeastReturned = size_t{1} << 20;  // less is not worth a system call when a block shrinks
constexpr size_t kFinePages = 8;  // up to so many, sizes are whole pages; then eighths of powers of two

int ShiftOf(size_t pages) { return std::bit_width(pages - 1) - 4; }

size_t RoundUp(size_t bytes) {
  const size_t pages = (std::max<size_t>(bytes, 1) + kPageBytes - 1) / kPageBytes;
  if (pages <= kFinePages) return pages * kPageBytes;
  const size_t step = size_t{1} << ShiftOf(pages);
  return (pages + step - 1) / step * step * kPageBytes;
}

// The number of a rounded size, from 0 on.
size_t SizeIndex(size_t rounded) {
  const size_t pages = rounded / kPageBytes;
  if (pages <= kFinePages) return pages - 1;
  const auto shift = static_cast<size_t>(ShiftOf(pages));
  return kFinePages * (shift + 1) + (pages >> shift) - kFinePages - 1;
}

// Functions of the malloc family keep errno unless they fail, and are no points at which a thread is cancelled; the
// heap's system calls do neither.
class Quiet {
 public:
  Quiet() { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_); }
  ~Quiet() {
    pthread_setcancelstate(cancel_, nullptr);
    errno = error_;
  }
  Quiet(const Quiet&) = delete;
  Quiet& operator=(const Quiet&) = delete;

 private:
  const int error_ = errno;
  int cancel_ = PTHREAD_CANCEL_ENABLE;
};

// Only calls that are allowed in a forked child.
void WriteLine(const char* text) {
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text, std::strlen(text));
}

// Zero, so that it is no part of the library's file.
constinit MallocHeap g_malloc_heap;
constinit AxcclMappedMemory g_table{};
constinit std::atomic<const AxcclMappedMemory*> g_started{nullptr};

using AttachFunction = int(const AxcclMappedMemory*);
AttachFunction* FindAttach() {
  return reinterpret_cast<AttachFunction*>(dlsym(RTLD_DEFAULT, AXCCL_MALLOC_ATTACH_NAME));
}

constinit std::atomic<bool> g_attached{false};   // libaxccl-malloc.so has the table, and calls its fork handlers
constinit thread_local bool t_prepared = false;  // this thread forks, and the heap is older than the fork

// Of all memory on pages of the heap, in the order of the locks.
void PrepareFork() {
  if (MallocHeap::Find() == nullptr || t_prepared) return;
  t_prepared = true;
  RegisteredMemory::Process().BeforeFork();
  g_malloc_heap.BeforeFork();
}

void FinishFork(int in_child) {
  if (MallocHeap::Find() == nullptr) return;
  g_malloc_heap.AfterFork(in_child != 0);
  if (std::exchange(t_prepared, false)) RegisteredMemory::Process().AfterFork(in_child != 0);
}

// Handlers that are registered first run last before the fork and first after it. So these are registered when the
// library is loaded: those that the program registers later hold its locks while memory is copied.
[[gnu::constructor]] void WatchForks() {
  // Fails only when memory runs out.
  (void)pthread_atfork([] { return g_attached ? void() : PrepareFork(); },
                       [] { return g_attached ? void() : FinishFork(0); },
                       [] { return g_attached ? void() : FinishFork(1); });
}

}  // namespace

// Holds mutex_, except on the thread that forks, which has it already.
class MallocHeap::Guard {
 public:
  explicit Guard(MallocHeap* heap)
      : heap_(heap), forking_(pthread_equal(heap->forking_.load(std::memory_order_relaxed), pthread_self()) != 0) {
    if (!forking_) heap_->mutex_.lock();
  }
  ~Guard() {
    if (!forking_) heap_->mutex_.unlock();
  }
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;
  // Whether this is a fork handler: parent and child may both be running, and share what is not copied yet.
  bool forking() const { return forking_; }

 private:
  MallocHeap* const heap_;
  const bool forking_;
};

const AxcclMappedMemory* MallocHeap::Find() { return g_started.load(std::memory_order_acquire); }

bool MallocHeap::IsPreloaded() { return FindAttach() != nullptr; }

size_t MallocHeap::Threshold() {
  static const auto threshold = static_cast<size_t>(param::GetInt("AXCCL_MALLOC_THRESHOLD"));
  return threshold;
}

void MallocHeap::Start(Heap* heap) {
  if (heap->file().kind() != transport::HeapKind::kMemfd) {
    AXCCL_INFO(kAlloc, "malloc is left as it is: the heap is no memfd");
    return;
  }
  g_malloc_heap.heap_ = heap;
  g_table.base = reinterpret_cast<uintptr_t>(heap->base());
  g_table.bytes = heap->bytes();
  g_table.threshold = Threshold();
  g_table.allocate = [](size_t bytes, size_t alignment, int zeroed) {
    return g_malloc_heap.Allocate(bytes, alignment, zeroed != 0);
  };
  g_table.release = [](void* memory) { g_malloc_heap.Free(memory); };
  g_table.usable = [](const void* memory) { return g_malloc_heap.Usable(memory); };
  g_table.shrink = [](void* memory, size_t bytes) { g_malloc_heap.Shrink(memory, bytes); };
  g_table.trim = [] { g_malloc_heap.Trim(); };
  g_table.before_fork = PrepareFork;
  g_table.after_fork = FinishFork;
  g_started.store(&g_table, std::memory_order_release);
  AttachFunction* const attach = FindAttach();
  if (attach == nullptr) return;
  if (attach(&g_table) != 0) {
    g_attached = true;
    AXCCL_INFO(kAlloc, "malloc gives memory of %zu bytes and more from the shared heap", Threshold());
  } else {
    AXCCL_INFO(kAlloc, "malloc gives large memory from the heap of another copy of this library");
  }
}

// ---- blocks ----

MallocHeap::Block** MallocHeap::BucketOf(const void* start) {
  constexpr int kBits = std::bit_width(kBuckets) - 1;
  const uint64_t page = static_cast<uint64_t>(static_cast<const std::byte*>(start) - heap_->base()) / kPageBytes;
  return &buckets_[(page * 0x9E3779B97F4A7C15u) >> (64 - kBits)];
}

MallocHeap::Block* MallocHeap::FindBlock(const void* start) {
  Block* block = *BucketOf(start);
  while (block != nullptr && block->start != start) block = block->next;
  return block;
}

// Returns null if there are too many.
MallocHeap::Block* MallocHeap::Reserve() {
  Block* block = unused_;
  if (block != nullptr) {
    unused_ = block->next;
  } else if (blocks_made_ < kMostBlocks) {
    block = &blocks_[blocks_made_++];
  } else {
    return nullptr;
  }
  block->state = State::kReserved;
  return block;
}

// The block has a start no more.
void MallocHeap::Remove(Block* block) {
  Block** at = BucketOf(block->start);
  while (*at != block) at = &(*at)->next;
  *at = block->next;
  block->state = State::kReserved;
}

void MallocHeap::Keep(Block* block) {
  block->state = State::kKept;
  Block*& first = kept_[SizeIndex(block->bytes)];
  block->before = nullptr;
  block->behind = first;
  if (first != nullptr) first->before = block;
  first = block;
  block->newer = nullptr;
  block->older = newest_;
  (newest_ != nullptr ? newest_->newer : oldest_) = block;
  newest_ = block;
  kept_bytes_ += block->bytes;
}

void MallocHeap::Unkeep(Block* block) {
  block->state = State::kUsed;
  (block->before != nullptr ? block->before->behind : kept_[SizeIndex(block->bytes)]) = block->behind;
  if (block->behind != nullptr) block->behind->before = block->before;
  (block->older != nullptr ? block->older->newer : oldest_) = block->newer;
  (block->newer != nullptr ? block->newer->older : newest_) = block->older;
  kept_bytes_ -= block->bytes;
}

// Returns what has been kept longest, as far as more than `most_kept` bytes are kept.
MallocHeap::Block* MallocHeap::TakeOldest(size_t most_kept) {
  Block* leaving = nullptr;
  while (kept_bytes_ > most_kept) {
    Block* const block = oldest_;
    Unkeep(block);
    Remove(block);
    block->next = std::exchange(leaving, block);
  }
  return leaving;
}

// Returns memory to the heap, outside of the lock, and then the blocks.
void MallocHeap::Return(Block* leaving) noexcept {
  if (leaving == nullptr) return;
  Quiet quiet;
  Block* last = leaving;
  for (Block* block = leaving; block != nullptr; block = block->next) {
    (void)heap_->Free(block->start).ok();
    last = block;
  }
  Guard guard(this);
  for (Block* block = leaving; block != nullptr; block = block->next) block->state = State::kUnused;
  last->next = std::exchange(unused_, leaving);
}

// ---- the malloc family ----

void* MallocHeap::Allocate(size_t bytes, size_t alignment, bool zeroed) noexcept {
  if (bytes > heap_->bytes() / 2 || !std::has_single_bit(alignment) || alignment > kHugeBytes) return nullptr;
  const size_t rounded = RoundUp(bytes);
  const size_t aligned = rounded >= kHugeBytes ? kHugeBytes : kPageBytes;  // what any block of this size is
  Block* block = nullptr;
  {
    Guard guard(this);
    if (in_child_ || guard.forking()) return nullptr;
    if (rounded <= kLongestKept && alignment <= aligned) block = kept_[SizeIndex(rounded)];
    if (block != nullptr) {
      Unkeep(block);
    } else {
      block = Reserve();
      if (block == nullptr) return nullptr;
    }
  }
  if (block->state == State::kReserved) return AllocateFresh(block, rounded, alignment);
  if (zeroed) std::memset(block->start, 0, bytes);
  return block->start;
}

void* MallocHeap::AllocateFresh(Block* block, size_t bytes, size_t alignment) noexcept {
  Quiet quiet;
  void* memory = nullptr;
  try {
    if (Result<void*> made = heap_->Allocate(bytes, alignment); made.ok()) memory = made.value();
  } catch (const std::bad_alloc&) {
    // Memory from elsewhere may do.
  }
  Guard guard(this);
  if (memory == nullptr) {
    block->state = State::kUnused;
    block->next = std::exchange(unused_, block);
    return nullptr;
  }
  block->start = static_cast<std::byte*>(memory);
  block->bytes = bytes;
  block->state = State::kUsed;
  Block** const bucket = BucketOf(memory);
  block->next = std::exchange(*bucket, block);
  return memory;
}

void MallocHeap::Free(void* memory) noexcept {
  Block* leaving = nullptr;
  {
    Guard guard(this);
    Block* const block = FindBlock(memory);
    if (block == nullptr || block->state != State::kUsed) {
      WriteLine("axccl: free(): not the start of memory in use: freed twice, or memory of ncclMemAlloc?\n");
      std::abort();
    }
    if (guard.forking()) return;  // parent and child must not both return it
    if (in_child_) {
      Quiet quiet;
      (void)madvise(block->start, block->bytes, MADV_DONTNEED);
      Remove(block);  // its address space is not used again
    } else if (block->bytes > kLongestKept || heap_->TakenBack(memory, block->bytes)) {
      Remove(block);
      block->next = nullptr;
      leaving = block;
    } else {
      Keep(block);
      leaving = TakeOldest(kMostKept);
    }
  }
  Return(leaving);
}

size_t MallocHeap::Usable(const void* memory) noexcept {
  Guard guard(this);
  const Block* const block = FindBlock(memory);
  return block != nullptr && block->state == State::kUsed ? block->bytes : 0;
}

void MallocHeap::Shrink(void* memory, size_t bytes) noexcept {
  const size_t needed = (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
  Guard guard(this);
  const Block* const block = FindBlock(memory);
  if (block == nullptr || block->bytes < needed + kLeastReturned || guard.forking() || in_child_) return;
  Quiet quiet;
  // Pages that were taken back are not the file's; they stay until the block is freed.
  (void)madvise(block->start + needed, block->bytes - needed, MADV_REMOVE);
}

void MallocHeap::Trim() noexcept {
  Block* leaving = nullptr;
  {
    Guard guard(this);
    if (!guard.forking() && !in_child_) leaving = TakeOldest(0);
  }
  Return(leaving);
}

// ---- forks ----

// Returns null if memory runs out.
std::byte* MallocHeap::Copy(const Block& block) const {
  auto* const copy = static_cast<std::byte*>(MapPrivate(block.bytes));
  if (copy == nullptr) return nullptr;
  if (heap_->TakenBack(block.start, block.bytes)) {  // the file does not have all
    std::memcpy(copy, block.start, block.bytes);
    return copy;
  }
  const auto start = static_cast<uint64_t>(block.start - heap_->base()), end = start + block.bytes;
  for (uint64_t at = start; at < end;) {
    const auto [begin, until] = heap_->file().Touched(at, end);
    std::memcpy(copy + (begin - start), heap_->base() + begin, until - begin);
    at = until;
  }
  return copy;
}

// The copies are made here, and not by the child while its parent waits: the child could not report that it is done to
// a parent without descriptors, and it might be killed.
void MallocHeap::BeforeFork() noexcept {
  Quiet quiet;
  mutex_.lock();
  forking_.store(pthread_self(), std::memory_order_relaxed);
  if (in_child_) return;
  for (size_t i = 0; i < blocks_made_; ++i) {
    if (blocks_[i].state == State::kUsed) blocks_[i].copy = Copy(blocks_[i]);
  }
}

void MallocHeap::AfterFork(bool in_child) noexcept {
  Quiet quiet;
  const bool prepared = pthread_equal(forking_.load(std::memory_order_relaxed), pthread_self()) != 0;
  if (!prepared) {  // the heap is newer than the fork
    if (!in_child) return;
    new (&mutex_) std::mutex;  // a thread that the child does not have may hold it
    mutex_.lock();
  }
  for (size_t i = 0; i < blocks_made_ && !in_child_; ++i) {
    Block& block = blocks_[i];
    std::byte* const copy = std::exchange(block.copy, nullptr);
    if (in_child && block.state == State::kUsed) {
      PutInPlace(block.start, block.bytes, copy);
    } else if (copy != nullptr) {
      munmap(copy, block.bytes);
    }
  }
  if (in_child) in_child_ = true;
  forking_.store(pthread_t{}, std::memory_order_relaxed);
  mutex_.unlock();
}

}  // namespace axccl::shm
