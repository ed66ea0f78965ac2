#include "transports/shm/heap.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <iterator>
#include <memory>
#include <new>
#include <utility>

#include "src/base/log.h"
#include "src/base/param.h"
#include "transports/shm/malloc_heap.h"
#include "transports/shm/mapping.h"

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define AXCCL_SANITIZED 1
#endif

namespace axccl::shm {
namespace {

using transport::ProcessPage;

constexpr size_t kMinBytes = size_t{1} << 20;          // least explicit size
constexpr size_t kMinDefaultBytes = size_t{64} << 20;  // a smaller default heap would be useless
#ifdef AXCCL_SANITIZED
constexpr size_t kMaxDefaultBytes = size_t{16} << 30;  // because shadow memory is a multiple of the heap
constexpr size_t kUsualBytes = kMaxDefaultBytes;
#else
constexpr size_t kMaxDefaultBytes = size_t{1} << 40;
constexpr size_t kUsualBytes = size_t{256} << 30;  // thousands of communicators, with a few MiB for each of their ranks
#endif
constexpr uint64_t kPagesPerWord = 64;

size_t DefaultBytes() {
  const long pages = sysconf(_SC_PHYS_PAGES);
  const size_t physical = static_cast<size_t>(std::max(pages, 1L)) * static_cast<size_t>(sysconf(_SC_PAGESIZE));
  size_t bytes = std::clamp(4 * std::bit_ceil(physical), kUsualBytes, kMaxDefaultBytes);
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
    // The application and the heaps of peers need address space, too.
    bytes = std::clamp(std::bit_floor(static_cast<size_t>(limit.rlim_cur / 16)), kMinDefaultBytes, bytes);
  }
  return bytes;
}

// The bytes of an allocation that huge pages can cover; it begins at a boundary of theirs.
size_t HugePart(size_t bytes) { return bytes / kHugeBytes * kHugeBytes; }

// Unmaps the heap unless its object takes it over.
struct Unmap {
  size_t bytes;
  void operator()(std::byte* mapped) const { UnmapHeap(mapped, bytes); }
};
using Mapped = std::unique_ptr<std::byte, Unmap>;

Status InitLiveness(pthread_mutex_t* mutex) {
  pthread_mutexattr_t attributes;
  pthread_mutexattr_init(&attributes);
  pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
  const int error = pthread_mutex_init(mutex, &attributes);
  pthread_mutexattr_destroy(&attributes);
  if (error != 0) return SystemError(error, "shared heap: robust mutex");
  return Status();
}

}  // namespace

Result<Heap*> Heap::Get() {
  static auto* mutex = new std::mutex;
  static std::atomic<Heap*> heap{nullptr};
  AXCCL_RETURN_IF_ERROR(service::CheckNotForked("shared heap"));
  if (Heap* const found = heap.load(std::memory_order_acquire)) return found;
  std::lock_guard lock(*mutex);
  if (Heap* const found = heap.load(std::memory_order_relaxed)) return found;
  AXCCL_ASSIGN_OR_RETURN(Heap* const fresh, Create());
  heap.store(fresh, std::memory_order_release);
  MallocHeap::Start(fresh);
  return fresh;
}

Result<Heap*> Heap::Create() {
  service::BindToProcess();
  const int64_t wanted = param::GetInt("AXCCL_HEAP_BYTES");
  if (wanted > 0) {
    if (static_cast<size_t>(wanted) < kMinBytes) {
      return MakeStatus(Code::kInvalidArgument,
                        "AXCCL_HEAP_BYTES=%lld: at least 1M is needed; unset it for the default",
                        static_cast<long long>(wanted));
    }
    const size_t bytes = (static_cast<size_t>(wanted) + kHugeBytes - 1) / kHugeBytes * kHugeBytes;
    return CreateWith(bytes, bytes);
  }
  for (size_t bytes = DefaultBytes();; bytes /= 2) {
    Result<Heap*> heap = CreateWith(kMinDefaultBytes, bytes);
    if (heap.ok() || bytes / 2 < kMinDefaultBytes) return heap;
  }
}

Result<Heap*> Heap::CreateWith(size_t least, size_t wanted) {
  AXCCL_ASSIGN_OR_RETURN(HeapFile file, HeapFile::Create(least, wanted));
  const size_t bytes = file.bytes();
  AXCCL_ASSIGN_OR_RETURN(std::byte* const mapped, MapHeap(file.fd(), bytes));
  Mapped base(mapped, Unmap{bytes});
  const size_t live_bytes = (bytes / kPageBytes / kPagesPerWord + 1) * sizeof(uint64_t);
  AXCCL_ASSIGN_OR_RETURN(std::byte* const live_mapped, MapHeap(-1, live_bytes));
  Mapped live(live_mapped, Unmap{live_bytes});
  AXCCL_RETURN_IF_ERROR(file.Commit(0, sizeof(ProcessPage)));
  auto* const page = new (mapped) ProcessPage();
  AXCCL_RETURN_IF_ERROR(InitLiveness(&page->liveness));
  page->version = ProcessPage::kVersion;
  page->pid = static_cast<uint32_t>(getpid());
  page->magic = ProcessPage::kMagic;
  AXCCL_INFO(kAlloc, "shared heap: %zu MiB of address space at %p", bytes >> 20, static_cast<void*>(mapped));
  auto* const heap = new Heap(std::move(file), mapped, reinterpret_cast<std::atomic<uint64_t>*>(live_mapped));
  (void)base.release();
  (void)live.release();
  return heap;
}

Heap::Heap(HeapFile file, std::byte* base, std::atomic<uint64_t>* live)
    : file_(std::move(file)), base_(base), bytes_(file_.bytes()), live_(live), free_(sizeof(ProcessPage), bytes_) {}

Result<void*> Heap::Allocate(size_t bytes, size_t alignment, Pages pages) {
  AXCCL_RETURN_IF_ERROR(service::CheckNotForked("allocating shared memory"));
  if (!std::has_single_bit(alignment) || alignment > kHugeBytes) {
    return MakeStatus(Code::kInvalidArgument,
                      "allocating shared memory: alignment %zu is not a power of two up to 2 MiB", alignment);
  }
  const size_t boundary = bytes > kHugeBytes - kPageBytes ? kHugeBytes : std::max(alignment, kPageBytes);
  if (bytes <= bytes_) {
    const size_t rounded = (std::max<size_t>(bytes, 1) + kPageBytes - 1) / kPageBytes * kPageBytes;
    std::set<uint64_t> huge;  // allocated first: nothing may fail once the range is taken
    if (pages == Pages::kHuge && rounded >= kHugeBytes) huge.insert(0);
    std::lock_guard lock(mutex_);
    if (FreeList::Range range = free_.Take(rounded, boundary)) {
      const uint64_t offset = range.key();
      if (Status status = file_.Commit(offset, rounded); !status.ok()) {
        Zero(offset, rounded);
        free_.Give(std::move(range));
        return status;
      }
      allocations_.insert(std::move(range));
      allocated_.fetch_add(rounded, std::memory_order_relaxed);
      Mark(offset, rounded, true);
      if (!huge.empty() && madvise(base_ + offset, HugePart(rounded), MADV_HUGEPAGE) == 0) {
        auto node = huge.extract(huge.begin());
        node.value() = offset;
        huge_.insert(std::move(node));
      }
      return static_cast<void*>(base_ + offset);
    }
  }
  std::lock_guard lock(mutex_);
  return MakeStatus(Code::kSystemError,
                    "allocating shared memory: need %zu bytes at a boundary of %zu, the longest free range of the heap "
                    "has %llu (heap "
                    "%zu, in use %llu); raise AXCCL_HEAP_BYTES",
                    bytes, boundary, static_cast<unsigned long long>(free_.Largest()), bytes_,
                    static_cast<unsigned long long>(allocated_bytes()));
}

Status Heap::Free(void* p) {
  AXCCL_RETURN_IF_ERROR(service::CheckNotForked("freeing shared memory"));
  const uint64_t offset = reinterpret_cast<uintptr_t>(p) - reinterpret_cast<uintptr_t>(base_);
  FreeList::Range range;
  {
    std::lock_guard lock(mutex_);
    range = allocations_.extract(offset);
    if (!range) {
      return MakeStatus(
          Code::kInvalidArgument,
          "freeing shared memory: %p is not the start of a live allocation; freed twice, or not from here?", p);
    }
    Mark(offset, range.mapped(), false);
    // The next allocation here may be of memory that is hardly used.
    if (huge_.erase(offset) != 0) (void)madvise(p, HugePart(range.mapped()), MADV_NOHUGEPAGE);
    allocated_.fetch_sub(range.mapped(), std::memory_order_relaxed);
  }
  // Between the two locks no list contains the range, so the slow part needs no lock.
  Zero(offset, range.mapped());
  if (TakenBack(p, range.mapped())) {
    (void)madvise(base_ + offset, range.mapped(), MADV_DONTNEED);
    return Status();
  }
  std::lock_guard lock(mutex_);
  free_.Give(std::move(range));
  return Status();
}

// Replaces the shared mapping by a private one of the same file, atomically, and then makes the kernel copy each page
// by writing to it. Threads that write to a page at the same time wait for the copy, so none of their writes is lost.
Status Heap::TakeBack(const void* p, size_t bytes) {
  AXCCL_RETURN_IF_ERROR(service::CheckNotForked("taking shared memory back"));
  const uint64_t distance = reinterpret_cast<uintptr_t>(p) - reinterpret_cast<uintptr_t>(base_);
  if (file_.kind() == transport::HeapKind::kPrivate || bytes == 0 || distance >= bytes_ || bytes > bytes_ - distance)
    return Status();
  const uint64_t end = (distance + bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
  std::lock_guard lock(mutex_);
  for (uint64_t at = distance / kPageBytes * kPageBytes; at < end;) {
    // Finds the next run of pages that are all shared, or all not.
    const bool shared = AllLive(at, kPageBytes);
    uint64_t until = at + kPageBytes;
    while (until < end && AllLive(until, kPageBytes) == shared) until += kPageBytes;
    if (shared) AXCCL_RETURN_IF_ERROR(MapPrivately(at, until - at));
    at = until;
  }
  return Status();
}

// Called under mutex_.
Status Heap::MapPrivately(uint64_t offset, uint64_t bytes) {
  AXCCL_RETURN_IF_ERROR(file_.Check());
  taken_back_.emplace(offset, offset + bytes);
  any_taken_back_.store(true, std::memory_order_seq_cst);
  Mark(offset, bytes, false);
  std::byte* const at = base_ + offset;
  if (mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE, fd(),
           static_cast<off_t>(offset)) == MAP_FAILED)
    return SystemError(errno, "taking %llu bytes of shared memory back", static_cast<unsigned long long>(bytes));
  for (uint64_t page = 0; page < bytes; page += kPageBytes)
    reinterpret_cast<std::atomic<uint8_t>*>(at + page)->fetch_or(0, std::memory_order_relaxed);
  return Status();
}

bool Heap::AnyTakenBack(const void* p, size_t bytes) const {
  const uint64_t distance = reinterpret_cast<uintptr_t>(p) - reinterpret_cast<uintptr_t>(base_);
  if (bytes == 0 || distance >= bytes_) return false;
  std::lock_guard lock(mutex_);
  const auto next = taken_back_.lower_bound(distance + bytes);
  return next != taken_back_.begin() && std::prev(next)->second > distance;
}

// Memory that is returned to the system comes back as zeros. The first way needs no descriptor, but works neither for
// locked memory nor for pages that were taken back. If both ways are forbidden (by a system call filter), the memory is
// overwritten, because its content must not remain.
void Heap::Zero(uint64_t offset, uint64_t bytes) {
  if (madvise(base_ + offset, bytes, MADV_REMOVE) == 0 || file_.PunchHole(offset, bytes)) return;
  // Skips pages that were never touched. The file knows which ones; without a file that is unknown (mincore does not
  // cover swapped-out pages).
  const uint64_t end = offset + bytes;
  for (uint64_t at = offset; at < end;) {
    const auto [begin, until] = file_.Touched(at, end);
    std::memset(base_ + begin, 0, until - begin);
    at = until;
  }
}

bool Heap::AllLive(uint64_t offset, uint64_t bytes) const {
  const uint64_t first = offset / kPageBytes;
  const uint64_t last = (offset + std::max<uint64_t>(bytes, 1) - 1) / kPageBytes;
  for (uint64_t page = first; page <= last;) {
    const uint64_t bit = page % kPagesPerWord;
    const uint64_t count = std::min(kPagesPerWord - bit, last - page + 1);
    const uint64_t mask = (~uint64_t{0} >> (kPagesPerWord - count)) << bit;
    if ((live_[page / kPagesPerWord].load(std::memory_order_relaxed) & mask) != mask) return false;
    page += count;
  }
  return true;
}

// Called under mutex_, so plain read-modify-write of a word is enough; atomics only for the lock-free readers.
void Heap::Mark(uint64_t offset, uint64_t bytes, bool live) {
  const uint64_t end = (offset + bytes) / kPageBytes;
  for (uint64_t page = offset / kPageBytes; page < end;) {
    const uint64_t bit = page % kPagesPerWord;
    const uint64_t count = std::min(kPagesPerWord - bit, end - page);
    const uint64_t mask = (~uint64_t{0} >> (kPagesPerWord - count)) << bit;
    std::atomic<uint64_t>& word = live_[page / kPagesPerWord];
    const uint64_t before = word.load(std::memory_order_relaxed);
    word.store(live ? before | mask : before & ~mask, std::memory_order_relaxed);
    page += count;
  }
}

}  // namespace axccl::shm
