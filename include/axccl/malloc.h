/* Memory that peers can map, by functions that have the types and the meaning of the C library's malloc family. Pure C;
 * part of axccl.h. docs/malloc.md explains when to use what.
 *
 * Calls on memory that peers can map are the fast ones. ncclMemAlloc gives such memory, too, but it takes no alignment
 * and cannot resize. These functions fit where a framework takes an allocator as function pointers. A program that
 * calls malloc itself gets the same, unchanged, with libaxccl-malloc.so preloaded.
 *
 * Sizes of AXCCL_MALLOC_THRESHOLD (32 KiB) and more come from the heap that peers map; they are aligned to a page, from
 * 2 MiB on to 2 MiB. Smaller ones come from malloc, as does everything where the heap cannot serve: it is full, the
 * system allows no memfd, the alignment exceeds 2 MiB, 16384 allocations are live, or the process is a forked child.
 *
 * A fork copies what is allocated in the heap and was touched, at some 0.6 s for each GiB: afterwards parent and child
 * have memory of their own with the content as of the fork. Nothing is copied for posix_spawn, system, popen and vfork.
 *
 * Like ncclMemAlloc, the first large allocation makes the process one that has used the library: its children cannot.
 *
 * Thread-safe. Any thread may free. errno is as the C library leaves it. No function waits for other ranks. Memory must
 * not be freed while a call still uses it. Example, a buffer that grows:
 *
 *   float* data = axcclMalloc(100000 * sizeof(float));
 *   float* more = axcclRealloc(data, 200000 * sizeof(float));
 *   if (more != NULL) data = more;
 *   usable = axcclMallocUsableSize(data);
 *   axcclFree(data);
 */
#ifndef AXCCL_MALLOC_H_
#define AXCCL_MALLOC_H_

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* `size` bytes, as malloc: NULL with errno ENOMEM if there is no memory. */
void* axcclMalloc(size_t size);
/* count * size bytes of zeros, as calloc. */
void* axcclCalloc(size_t count, size_t size);
/* At least `size` bytes with the content of `memory`, which is any memory of axcclFree, or NULL; as realloc. */
void* axcclRealloc(void* memory, size_t size);
/* `size` bytes at a multiple of `alignment`, as aligned_alloc. */
void* axcclAlignedAlloc(size_t alignment, size_t size);
/* Frees memory of the functions here, or of the C library's; nothing if NULL. Ends the program, as free does, if
 * `memory` is neither. Memory of ncclMemAlloc is neither: call ncclMemFree. */
void axcclFree(void* memory);
/* The bytes that `memory`, of which axcclFree takes any, may hold without axcclRealloc; 0 for NULL. */
size_t axcclMallocUsableSize(void* memory);

#ifdef __cplusplus
}
#endif

#endif /* AXCCL_MALLOC_H_ */
