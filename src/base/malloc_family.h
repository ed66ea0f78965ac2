/* What libaxccl-malloc.so and libaxccl.so share: the table through which the former gets memory of the mapped heap, and
 * realloc, which both offer (the former as realloc, the latter as axcclRealloc).
 *
 * C, because the former is preloaded into programs of every kind and needs nothing but the C library. The two libraries
 * may be of different builds, so the table's layout is fixed: a new one gets another name than AXCCL_MALLOC_ATTACH. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* The function of libaxccl-malloc.so that libaxccl.so calls once, when the process has a heap. It returns 1; or 0 if
 * another copy of libaxccl.so was there before, because memory that malloc gave must get back to the heap it is from.
 */
#define AXCCL_MALLOC_ATTACH axccl_malloc_attach_2
#define AXCCL_MALLOC_ATTACH_NAME "axccl_malloc_attach_2"

/* Memory of the mapped heap. All functions are thread-safe and keep errno, and none of them throws. */
typedef struct AxcclMappedMemory {
  uintptr_t base; /* the heap's addresses: no other memory of malloc is among them, ever */
  size_t bytes;
  size_t threshold; /* least size that is taken from the heap */
  /* Returns null if the memory must come from elsewhere; `zeroed` is 0 or 1. */
  void* (*allocate)(size_t bytes, size_t alignment, int zeroed);
  void (*release)(void* memory);
  size_t (*usable)(const void* memory);
  /* Of the memory, only the first `bytes` are needed. */
  void (*shrink)(void* memory, size_t bytes);
  void (*trim)(void);
  /* Around a fork, on the thread that forks. The child gets copies of its own. */
  void (*before_fork)(void);
  void (*after_fork)(int in_child);
} AxcclMappedMemory;

/* The functions for all other memory. */
typedef struct AxcclPlainMemory {
  void* (*allocate)(size_t bytes);
  void* (*resize)(void* memory, size_t bytes);
  void (*release)(void* memory);
  size_t (*usable)(void* memory);
} AxcclPlainMemory;

static inline int AxcclIsMapped(uintptr_t base, size_t bytes, const void* memory) {
  return (uintptr_t)memory - base < bytes;
}

/* realloc of memory that is not null, where the heap may be concerned: the memory is mapped, or `bytes` is not below
 * the threshold. */
static inline void* AxcclResize(const AxcclMappedMemory* mapped, const AxcclPlainMemory* plain, void* memory,
                                size_t bytes) {
  const int was_mapped = AxcclIsMapped(mapped->base, mapped->bytes, memory);
  if (bytes == 0) { /* as the C library does */
    if (was_mapped) mapped->release(memory);
    return was_mapped ? NULL : plain->resize(memory, bytes);
  }
  const size_t old = was_mapped ? mapped->usable(memory) : plain->usable(memory);
  const int becomes_mapped = bytes >= mapped->threshold;
  if (was_mapped && becomes_mapped && bytes <= old && bytes >= old / 4) {
    mapped->shrink(memory, bytes);
    return memory;
  }
  void* moved = NULL;
  /* File pages cannot move to another place of the file, so growing copies. Address space that is reserved beyond what
   * is needed costs nothing, and keeps the number of copies logarithmic. */
  if (becomes_mapped && was_mapped && bytes > old && bytes < 2 * old) moved = mapped->allocate(2 * old, 1, 0);
  if (becomes_mapped && moved == NULL) moved = mapped->allocate(bytes, 1, 0);
  if (moved == NULL && !was_mapped) return plain->resize(memory, bytes);
  if (moved == NULL) moved = plain->allocate(bytes);
  if (moved == NULL) return bytes <= old ? memory : NULL;
  memcpy(moved, memory, bytes < old ? bytes : old);
  if (was_mapped) {
    mapped->release(memory);
  } else {
    plain->release(memory);
  }
  return moved;
}
