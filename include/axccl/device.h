/* Reading and writing the words of a pipeline (pipelines.h) in device code and in host code. Header only; C, C++ and
 * CUDA. */
#ifndef AXCCL_DEVICE_H_
#define AXCCL_DEVICE_H_

#include <stdint.h>

#include "axccl/language.h"

#if defined(__CUDACC__)
#define AXCCL_DEVICE_FUNCTION static __host__ __device__ __forceinline__
#else
#include <sched.h>
#define AXCCL_DEVICE_FUNCTION AXCCL_INLINE
#endif

/* The word as it is now, with acquire: after 1, the chunk can be read. */
AXCCL_DEVICE_FUNCTION uint32_t axcclDeviceLook(const uint32_t* word) {
#if defined(__CUDA_ARCH__)
  uint32_t value;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
  return value;
#else
  return __atomic_load_n(word, __ATOMIC_ACQUIRE);
#endif
}

/* Waits until the word is not 0 any more and returns it: 1, the chunk is there; 2, it never will be. Gives way while it
 * waits. A kernel that waits must leave room for the communication (pipelines.h). */
AXCCL_DEVICE_FUNCTION uint32_t axcclDeviceAwait(const uint32_t* word) {
  uint32_t value;
  unsigned looks = 0;
  while ((value = axcclDeviceLook(word)) == 0) {
#if defined(__CUDA_ARCH__)
    if (looks < 64) ++looks;
    if (looks > 8) __nanosleep(looks * 8);
#elif !defined(__CUDACC__)
    if (++looks % 64 == 0) sched_yield();
#endif
  }
  return value;
}

/* Declares an input chunk ready: what the calling thread has written before is in it. */
AXCCL_DEVICE_FUNCTION void axcclDeviceReady(uint32_t* word) {
#if defined(__CUDA_ARCH__)
  asm volatile("st.release.sys.global.u32 [%0], 1;" : : "l"(word) : "memory");
#else
  __atomic_store_n(word, 1u, __ATOMIC_RELEASE);
#endif
}

#endif /* AXCCL_DEVICE_H_ */
