/* libaxccl-malloc.so: preloaded, it gives programs large memory from the mapped heap of libaxccl.so.
 *
 * It replaces the C library's malloc family. A size below the threshold costs one comparison and a jump to the next
 * library that has a malloc (usually the C library, or another preloaded allocator); so does a free of memory that is
 * not the heap's. The threshold is infinite until libaxccl.so, if there is one in the process, has a heap and calls
 * AXCCL_MALLOC_ATTACH. Until then nothing is different, and in a forked child it is infinite again.
 *
 * Memory lives in the heap or outside for good: the heap's addresses tell them apart, and no mapping of anything else
 * is ever made among them. */
#include "src/base/malloc_family.h"

#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

/* The C library's own names for its allocator. */
void* __libc_malloc(size_t size);
void __libc_free(void* memory);
void* __libc_calloc(size_t count, size_t size);
void* __libc_realloc(void* memory, size_t size);
void* __libc_memalign(size_t alignment, size_t size);
void* __libc_valloc(size_t size);
void* __libc_pvalloc(size_t size);

static void* FirstMalloc(size_t size);
static void FirstFree(void* memory);
static void* FirstCalloc(size_t count, size_t size);
static void* FirstRealloc(void* memory, size_t size);
static void* FirstMemalign(size_t alignment, size_t size);
static void* FirstAlignedAlloc(size_t alignment, size_t size);
static int FirstPosixMemalign(void** memory, size_t alignment, size_t size);
static void* FirstValloc(size_t size);
static void* FirstPvalloc(size_t size);
static size_t FirstUsable(void* memory);
static int FirstTrim(size_t pad);

/* What every call reads. The first cache line has all of malloc, free, calloc and realloc. Before there is a heap, none
 * of its 0 addresses is a program's. */
static struct {
  _Alignas(64) _Atomic size_t threshold;
  _Atomic uintptr_t base;
  _Atomic size_t bytes;
  /* The next library's functions; the first call of any of them finds them all. */
  void* (*malloc)(size_t);
  void (*free)(void*);
  void* (*calloc)(size_t, size_t);
  void* (*realloc)(void*, size_t);
  void* (*memalign)(size_t, size_t);
  void* (*aligned_alloc)(size_t, size_t);
  int (*posix_memalign)(void**, size_t, size_t);
  void* (*valloc)(size_t);
  void* (*pvalloc)(size_t);
  size_t (*usable)(void*);
  int (*trim)(size_t);
} g = {SIZE_MAX,           (uintptr_t)1 << 63, 0,
       FirstMalloc,        FirstFree,          FirstCalloc,
       FirstRealloc,       FirstMemalign,      FirstAlignedAlloc,
       FirstPosixMemalign, FirstValloc,        FirstPvalloc,
       FirstUsable,        FirstTrim};

static _Atomic(const AxcclMappedMemory*) g_mapped;

/* ---- the next library's functions ---- */

static int LibcPosixMemalign(void** memory, size_t alignment, size_t size) {
  void* const made = __libc_memalign(alignment, size);
  if (made == NULL) return ENOMEM;
  *memory = made;
  return 0;
}
static size_t NoneUsable(void* memory) { return 0; }
static int NoTrim(size_t pad) { return 0; }

#define FIND(field, name)                                      \
  do {                                                         \
    void* const found = dlsym(RTLD_NEXT, name);                \
    if (found != NULL) memcpy(&g.field, &found, sizeof found); \
  } while (0)

/* The first call comes while the program has one thread. Where dlsym itself needs memory, it gets the C library's. */
static void FindNext(void) {
  g.malloc = __libc_malloc;
  g.free = __libc_free;
  g.calloc = __libc_calloc;
  g.realloc = __libc_realloc;
  g.memalign = g.aligned_alloc = __libc_memalign;
  g.posix_memalign = LibcPosixMemalign;
  g.valloc = __libc_valloc;
  g.pvalloc = __libc_pvalloc;
  g.usable = NoneUsable;
  g.trim = NoTrim;
  FIND(malloc, "malloc");
  FIND(free, "free");
  FIND(calloc, "calloc");
  FIND(realloc, "realloc");
  FIND(memalign, "memalign");
  FIND(aligned_alloc, "aligned_alloc");
  FIND(posix_memalign, "posix_memalign");
  FIND(valloc, "valloc");
  FIND(pvalloc, "pvalloc");
  FIND(usable, "malloc_usable_size");
  FIND(trim, "malloc_trim");
}

static void* FirstMalloc(size_t size) { return FindNext(), g.malloc(size); }
static void FirstFree(void* memory) { FindNext(), g.free(memory); }
static void* FirstCalloc(size_t count, size_t size) { return FindNext(), g.calloc(count, size); }
static void* FirstRealloc(void* memory, size_t size) { return FindNext(), g.realloc(memory, size); }
static void* FirstMemalign(size_t alignment, size_t size) { return FindNext(), g.memalign(alignment, size); }
static void* FirstAlignedAlloc(size_t alignment, size_t size) { return FindNext(), g.aligned_alloc(alignment, size); }
static int FirstPosixMemalign(void** memory, size_t alignment, size_t size) {
  return FindNext(), g.posix_memalign(memory, alignment, size);
}
static void* FirstValloc(size_t size) { return FindNext(), g.valloc(size); }
static void* FirstPvalloc(size_t size) { return FindNext(), g.pvalloc(size); }
static size_t FirstUsable(void* memory) { return FindNext(), g.usable(memory); }
static int FirstTrim(size_t pad) { return FindNext(), g.trim(pad); }

/* ---- the heap ---- */

/* A thread that sees the threshold sees everything else, too. */
static int IsLarge(size_t size) {
  return __builtin_expect(size >= atomic_load_explicit(&g.threshold, memory_order_acquire), 0);
}
/* The thread that got the memory has seen the heap's addresses. */
static int IsMapped(const void* memory) {
  return __builtin_expect(AxcclIsMapped(atomic_load_explicit(&g.base, memory_order_relaxed),
                                        atomic_load_explicit(&g.bytes, memory_order_relaxed), memory),
                          0);
}
static const AxcclMappedMemory* Mapped(void) { return atomic_load_explicit(&g_mapped, memory_order_acquire); }
static int IsPowerOfTwo(size_t value) { return value != 0 && (value & (value - 1)) == 0; }

/* Returns null where the next library is to be asked. A size of SIZE_MAX, which none has, gets here without a heap. */
static void* TryLarge(size_t size, size_t alignment, int zeroed) {
  const AxcclMappedMemory* const mapped = Mapped();
  return mapped == NULL || size == SIZE_MAX ? NULL : mapped->allocate(size, alignment, zeroed);
}

EXPORT int AXCCL_MALLOC_ATTACH(const AxcclMappedMemory* mapped);
int AXCCL_MALLOC_ATTACH(const AxcclMappedMemory* mapped) {
  const AxcclMappedMemory* none = NULL;
  if (!atomic_compare_exchange_strong(&g_mapped, &none, mapped)) return 0;
  atomic_store_explicit(&g.base, mapped->base, memory_order_relaxed);
  atomic_store_explicit(&g.bytes, mapped->bytes, memory_order_release);
  atomic_store_explicit(&g.threshold, mapped->threshold, memory_order_release);
  return 1;
}

static void BeforeFork(void) {
  const AxcclMappedMemory* const mapped = Mapped();
  if (mapped != NULL) mapped->before_fork();
}
static void AfterForkInParent(void) {
  const AxcclMappedMemory* const mapped = Mapped();
  if (mapped != NULL) mapped->after_fork(0);
}
static void AfterForkInChild(void) {
  const AxcclMappedMemory* const mapped = Mapped();
  if (mapped == NULL) return;
  atomic_store_explicit(&g.threshold, SIZE_MAX, memory_order_relaxed);
  mapped->after_fork(1);
}

/* Handlers that are registered first run last before the fork and first after it. So the program's own ones hold their
 * locks while memory is copied: the library is linked such that its constructor runs before those of all others. */
__attribute__((constructor)) static void WatchForks(void) {
  (void)pthread_atfork(BeforeFork, AfterForkInParent, AfterForkInChild);
}

/* ---- the malloc family ---- */

static __attribute__((noinline)) void* LargeMalloc(size_t size) {
  void* const memory = TryLarge(size, 1, 0);
  return memory != NULL ? memory : g.malloc(size);
}

static __attribute__((noinline)) void FreeMapped(void* memory) { Mapped()->release(memory); }

static __attribute__((noinline)) void* Resize(void* memory, size_t size) {
  const AxcclPlainMemory plain = {g.malloc, g.realloc, g.free, g.usable};
  return size == SIZE_MAX || Mapped() == NULL ? g.realloc(NULL, SIZE_MAX) : AxcclResize(Mapped(), &plain, memory, size);
}

EXPORT void* malloc(size_t size) {
  if (IsLarge(size)) return LargeMalloc(size);
  return g.malloc(size);
}

EXPORT void free(void* memory) {
  if (IsMapped(memory)) return FreeMapped(memory);
  g.free(memory);
}

EXPORT void* calloc(size_t count, size_t size) {
  size_t bytes;
  if (!__builtin_mul_overflow(count, size, &bytes) && IsLarge(bytes)) {
    void* const memory = TryLarge(bytes, 1, 1);
    if (memory != NULL) return memory;
  }
  return g.calloc(count, size);
}

EXPORT void* realloc(void* memory, size_t size) {
  if (memory == NULL) return malloc(size);
  if (IsLarge(size) || IsMapped(memory)) return Resize(memory, size);
  return g.realloc(memory, size);
}

EXPORT void* memalign(size_t alignment, size_t size) {
  if (IsLarge(size) && IsPowerOfTwo(alignment)) {
    void* const memory = TryLarge(size, alignment, 0);
    if (memory != NULL) return memory;
  }
  return g.memalign(alignment, size);
}

EXPORT void* aligned_alloc(size_t alignment, size_t size) {
  if (IsLarge(size) && IsPowerOfTwo(alignment)) {
    void* const memory = TryLarge(size, alignment, 0);
    if (memory != NULL) return memory;
  }
  return g.aligned_alloc(alignment, size);
}

EXPORT int posix_memalign(void** memory, size_t alignment, size_t size) {
  if (IsLarge(size) && IsPowerOfTwo(alignment) && alignment % sizeof(void*) == 0) {
    void* const made = TryLarge(size, alignment, 0);
    if (made != NULL) return *memory = made, 0;
  }
  return g.posix_memalign(memory, alignment, size);
}

EXPORT void* valloc(size_t size) {
  if (IsLarge(size)) {
    void* const memory = TryLarge(size, (size_t)getpagesize(), 0);
    if (memory != NULL) return memory;
  }
  return g.valloc(size);
}

EXPORT void* pvalloc(size_t size) {
  const size_t page = (size_t)getpagesize();
  if (IsLarge(size) && size <= SIZE_MAX / 2) {
    void* const memory = TryLarge((size + page - 1) / page * page, page, 0);
    if (memory != NULL) return memory;
  }
  return g.pvalloc(size);
}

EXPORT size_t malloc_usable_size(void* memory) {
  return IsMapped(memory) ? Mapped()->usable(memory) : g.usable(memory);
}

EXPORT int malloc_trim(size_t pad) {
  const AxcclMappedMemory* const mapped = Mapped();
  if (mapped != NULL) mapped->trim();
  return g.trim(pad);
}
