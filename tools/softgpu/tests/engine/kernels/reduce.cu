// Sums by shuffles and shared memory, counters, histograms and a switch: the elements of ordinary kernels.
#include <cstdint>

extern "C" __global__ void sum(const float* in, float* out, int n) {
  __shared__ float partial[32];
  float value = 0;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) value += in[i];
  for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(~0u, value, step);
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = value;
  __syncthreads();
  if (threadIdx.x < 32) {
    value = threadIdx.x < blockDim.x / 32 ? partial[threadIdx.x] : 0;
    for (int step = 16; step > 0; step /= 2) value += __shfl_down_sync(~0u, value, step);
    if (threadIdx.x == 0) atomicAdd(out, value);
  }
}

__device__ unsigned int arrived = 0;

// The last block adds up what all blocks left in memory.
extern "C" __global__ void last_block(const int* in, long long* partial, long long* out, int n) {
  __shared__ long long total;
  __shared__ bool last;
  if (threadIdx.x == 0) total = 0;
  __syncthreads();
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
    atomicAdd(reinterpret_cast<unsigned long long*>(&total), static_cast<unsigned long long>(in[i]));
  __syncthreads();
  if (threadIdx.x == 0) {
    partial[blockIdx.x] = total;
    __threadfence();
    last = atomicAdd(&arrived, 1) == gridDim.x - 1;
  }
  __syncthreads();
  if (!last || threadIdx.x != 0) return;
  __threadfence();
  long long all = 0;
  for (int i = 0; i < gridDim.x; ++i) all += partial[i];
  *out = all;
  arrived = 0;
}

// A ring of blocks: each waits for the flag of its predecessor.
extern "C" __global__ void chain(volatile int* flags, int* data) {
  if (threadIdx.x == 0 && blockIdx.x > 0) {
    while (flags[blockIdx.x - 1] == 0) {
    }
    __threadfence();
  }
  __syncthreads();
  if (blockIdx.x > 0)
    data[blockIdx.x * blockDim.x + threadIdx.x] = data[(blockIdx.x - 1) * blockDim.x + threadIdx.x] + 1;
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    flags[blockIdx.x] = 1;
  }
}

__device__ __noinline__ int64_t choose(int what, int64_t a, int64_t b) {
  switch (what) {
    case 0:
      return a + b;
    case 1:
      return a - b;
    case 2:
      return a * b;
    case 3:
      return b == 0 ? 0 : a / b;
    case 4:
      return b == 0 ? 0 : a % b;
    case 5:
      return a << (b & 63);
    case 6:
      return a >> (b & 63);
    case 7:
      return a > b ? a : b;
    case 8:
      return __popcll(a) + __clzll(b);
    case 9:
      return a ^ b;
    default:
      return __brevll(a);
  }
}

extern "C" __global__ void switches(const int64_t* a, const int64_t* b, int64_t* out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = choose(i % 11, a[i], b[i]);
}

// A local array that is indexed by data: it lives in local memory.
extern "C" __global__ void local_array(const int* in, int* out, int n) {
  int counts[16];
  for (int i = 0; i < 16; ++i) counts[i] = 0;
  const int mine = blockIdx.x * blockDim.x + threadIdx.x;
  for (int i = 0; i < n; ++i) counts[(in[i] + mine) & 15] += i;
  int best = 0;
  for (int i = 1; i < 16; ++i) {
    if (counts[i] > counts[best]) best = i;
  }
  out[mine] = best * 1000000 + counts[best];
}

using Function = int (*)(int);
__device__ int Twice(int x) { return 2 * x; }
__device__ int Square(int x) { return x * x; }
__device__ int Fibonacci(int x) { return x < 2 ? x : Fibonacci(x - 1) + Fibonacci(x - 2); }
__device__ Function functions[] = {Twice, Square, Fibonacci};

extern "C" __global__ void indirect(int* out) { out[threadIdx.x] = functions[threadIdx.x % 3](threadIdx.x % 12); }
