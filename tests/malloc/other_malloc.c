/* Another allocator that is preloaded behind libaxccl-malloc.so. Memory of it and of the C library cannot be mistaken
 * for each other: each of its blocks has a mark in front, and the program ends where that is missing. */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

void* __libc_malloc(size_t size);
void __libc_free(void* memory);

struct Front {
  uint64_t mark;
  size_t bytes;
  void* raw;
  void* unused;
};
static const uint64_t kMark = 0x6d61726b6d61726b;

static struct Front* FrontOf(void* memory) {
  struct Front* const front = (struct Front*)memory - 1;
  if (front->mark != kMark) abort();
  return front;
}

EXPORT void* memalign(size_t alignment, size_t size) {
  size_t boundary = sizeof(struct Front);
  while (boundary < alignment) boundary *= 2;
  size_t bytes;
  if (__builtin_add_overflow(size, 2 * boundary, &bytes)) return errno = ENOMEM, NULL;
  void* const raw = __libc_malloc(bytes);
  if (raw == NULL) return NULL;
  void* const memory = (void*)(((uintptr_t)raw + 2 * boundary - 1) / boundary * boundary);
  const struct Front front = {kMark, size, raw, NULL};
  *((struct Front*)memory - 1) = front;
  return memory;
}

EXPORT void* malloc(size_t size) { return memalign(16, size); }
EXPORT void* aligned_alloc(size_t alignment, size_t size) { return memalign(alignment, size); }
EXPORT void* valloc(size_t size) { return memalign(4096, size); }
EXPORT void* pvalloc(size_t size) {
  return size > SIZE_MAX - 4096 ? (errno = ENOMEM, NULL) : memalign(4096, (size + 4095) / 4096 * 4096);
}

EXPORT int posix_memalign(void** memory, size_t alignment, size_t size) {
  if (alignment % sizeof(void*) != 0 || alignment == 0 || (alignment & (alignment - 1)) != 0) return EINVAL;
  void* const made = memalign(alignment, size);
  if (made == NULL) return ENOMEM;
  *memory = made;
  return 0;
}

EXPORT void free(void* memory) {
  if (memory == NULL) return;
  struct Front* const front = FrontOf(memory);
  front->mark = 0;
  __libc_free(front->raw);
}

EXPORT void* calloc(size_t count, size_t size) {
  size_t bytes;
  if (__builtin_mul_overflow(count, size, &bytes)) return errno = ENOMEM, NULL;
  void* const memory = memalign(16, bytes);
  return memory == NULL ? NULL : memset(memory, 0, bytes);
}

EXPORT size_t malloc_usable_size(void* memory) { return memory == NULL ? 0 : FrontOf(memory)->bytes; }

EXPORT void* realloc(void* memory, size_t size) {
  if (memory == NULL) return malloc(size);
  if (size == 0) return free(memory), NULL;
  void* const moved = malloc(size);
  if (moved == NULL) return NULL;
  const size_t old = malloc_usable_size(memory);
  memcpy(moved, memory, old < size ? old : size);
  free(memory);
  return moved;
}
