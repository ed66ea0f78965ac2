// Copies like those of communication libraries: 16-byte words, flags beside data, asynchronous copies.
#include <cuda_pipeline.h>

#include <cstdint>

struct alignas(16) Line {
  uint32_t data1, flag1, data2, flag2;
};

__device__ void StoreLine(Line* to, uint32_t data1, uint32_t data2, uint32_t flag) {
  asm volatile("st.volatile.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(data1), "r"(flag), "r"(data2),
               "r"(flag)
               : "memory");
}
__device__ bool LoadLine(const Line* from, uint32_t flag, uint32_t* data1, uint32_t* data2) {
  uint32_t flag1, flag2;
  asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(*data1), "=r"(flag1), "=r"(*data2), "=r"(flag2)
               : "l"(from)
               : "memory");
  return flag1 == flag && flag2 == flag;
}

// Two blocks: block 0 sends, block 1 receives.
extern "C" __global__ void lines(Line* lines, const uint64_t* in, uint64_t* out, int n) {
  for (int i = threadIdx.x; i < n; i += blockDim.x) {
    if (blockIdx.x == 0) {
      StoreLine(lines + i, static_cast<uint32_t>(in[i]), static_cast<uint32_t>(in[i] >> 32), i + 1);
    } else {
      uint32_t low, high;
      while (!LoadLine(lines + i, i + 1, &low, &high)) {
      }
      out[i] = static_cast<uint64_t>(high) << 32 | low;
    }
  }
}

extern "C" __global__ void released(uint32_t* flag, uint4* data, uint4* out) {
  if (blockIdx.x == 0) {
    data[threadIdx.x] = make_uint4(threadIdx.x, 1, 2, 3);
    __syncthreads();
    if (threadIdx.x == 0) asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(flag), "r"(1) : "memory");
    return;
  }
  if (threadIdx.x == 0) {
    uint32_t seen = 0;
    while (seen == 0) asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(seen) : "l"(flag) : "memory");
  }
  __syncthreads();
  uint4 value;
  asm volatile("ld.relaxed.sys.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "l"(data + threadIdx.x));
  out[threadIdx.x] = value;
}

extern "C" __global__ void staged(const int4* in, int4* out) {
  __shared__ int4 stage[2][128];
  for (int k = 0; k < 4; ++k) {
    __pipeline_memcpy_async(&stage[k % 2][threadIdx.x], in + k * blockDim.x + threadIdx.x, sizeof(int4));
    __pipeline_commit();
    __pipeline_wait_prior(0);
    __syncthreads();
    out[k * blockDim.x + threadIdx.x] = stage[k % 2][blockDim.x - 1 - threadIdx.x];
    __syncthreads();
  }
}

extern "C" __global__ void counters(unsigned long long* words) {
  atomicAdd(words, 1ull << 33);
  atomicMax(words + 1, static_cast<unsigned long long>(threadIdx.x) << 40);
  unsigned long long seen = words[2];
  while (true) {
    const unsigned long long before = atomicCAS(words + 2, seen, seen + 3);
    if (before == seen) break;
    seen = before;
  }
  atomicAdd(reinterpret_cast<double*>(words + 3), 0.5);
}
