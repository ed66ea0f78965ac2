// An all-reduce of several devices by multimem instructions, as nvcc compiles them: each device reduces a share of the
// numbers and stores the sums to all.
#include <cuda.h>
#include <cuda_fp16.h>

#include <cuda/atomic>

#include "check.cuh"

constexpr int kMost = 4;
constexpr size_t kBytes = size_t{2} << 20;
constexpr unsigned kNumbers = 4096;

struct Signals {
  unsigned* of[kMost];
};

__global__ void AllReduce(float4* sums, uint4* halves, Signals signals, int rank, int ranks) {
#if __CUDA_ARCH__ >= 900
  const unsigned quads = kNumbers / 4 / ranks, eights = kNumbers / 8 / ranks;
  for (unsigned i = threadIdx.x; i < quads; i += blockDim.x) {
    float4* const at = sums + rank * quads + i;
    float4 sum;
    asm volatile("multimem.ld_reduce.relaxed.sys.global.add.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(sum.x), "=f"(sum.y), "=f"(sum.z), "=f"(sum.w)
                 : "l"(at)
                 : "memory");
    asm volatile("multimem.st.relaxed.sys.global.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(at), "f"(sum.x), "f"(sum.y),
                 "f"(sum.z), "f"(sum.w)
                 : "memory");
  }
  for (unsigned i = threadIdx.x; i < eights; i += blockDim.x) {
    uint4* const at = halves + rank * eights + i;
    uint4 sum;
    asm volatile("multimem.ld_reduce.relaxed.sys.global.add.acc::f32.v4.f16x2 {%0, %1, %2, %3}, [%4];"
                 : "=r"(sum.x), "=r"(sum.y), "=r"(sum.z), "=r"(sum.w)
                 : "l"(at)
                 : "memory");
    asm volatile("multimem.st.relaxed.sys.global.v4.f16x2 [%0], {%1, %2, %3, %4};" ::"l"(at), "r"(sum.x), "r"(sum.y),
                 "r"(sum.z), "r"(sum.w)
                 : "memory");
  }
  // All devices have stored what this one has.
  __syncthreads();
  if (threadIdx.x < ranks) {
    using Flag = cuda::atomic_ref<unsigned, cuda::thread_scope_system>;
    Flag(signals.of[threadIdx.x][rank]).store(1, cuda::memory_order_release);
    while (Flag(signals.of[rank][threadIdx.x]).load(cuda::memory_order_acquire) == 0) {
    }
  }
#endif
}

template <class Function>
Function* Driver(const char* name) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult status;
  CUDA(cudaGetDriverEntryPointByVersion(name, &found, 12010, cudaEnableDefault, &status));
  CHECK(found != nullptr);
  return reinterpret_cast<Function*>(found);
}
#define DRIVER(name, ...) CHECK(Driver<decltype(name)>(#name)(__VA_ARGS__) == CUDA_SUCCESS)

char* Map(CUmemGenericAllocationHandle handle, int device) {
  CUdeviceptr address = 0;
  CUmemAccessDesc access = {};
  access.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  DRIVER(cuMemAddressReserve, &address, kBytes, 0, 0, 0);
  DRIVER(cuMemMap, address, kBytes, 0, handle, 0);
  DRIVER(cuMemSetAccess, address, kBytes, &access, 1);
  return reinterpret_cast<char*>(address);
}

int main() {
  int devices = 0;
  CUDA(cudaGetDeviceCount(&devices));
  const int ranks = devices < kMost ? devices : kMost;
  for (int rank = 0; rank < ranks; ++rank) {
    CUDA(cudaSetDevice(rank));
    CUDA(cudaFree(nullptr));
    for (int peer = 0; peer < ranks; ++peer) {
      if (peer != rank) CUDA(cudaDeviceEnablePeerAccess(peer, 0));
    }
  }
  CUmulticastObjectProp team = {};
  team.numDevices = ranks;
  team.size = kBytes;
  CUmemGenericAllocationHandle multicast = 0, memory[kMost];
  DRIVER(cuMulticastCreate, &multicast, &team);
  for (int rank = 0; rank < ranks; ++rank) DRIVER(cuMulticastAddDevice, multicast, rank);
  char *own[kMost], *all[kMost];
  Signals signals = {};
  cudaStream_t streams[kMost];
  static float numbers[kNumbers];
  static __half halves[kNumbers];
  for (int rank = 0; rank < ranks; ++rank) {
    CUDA(cudaSetDevice(rank));
    CUDA(cudaStreamCreateWithFlags(&streams[rank], cudaStreamNonBlocking));
    CUmemAllocationProp properties = {};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, rank};
    DRIVER(cuMemCreate, &memory[rank], kBytes, &properties, 0);
    DRIVER(cuMulticastBindMem, multicast, 0, memory[rank], 0, kBytes, 0);
    own[rank] = Map(memory[rank], rank);
    all[rank] = Map(multicast, rank);
    for (unsigned i = 0; i < kNumbers; ++i) numbers[i] = static_cast<float>((rank + 1) * i);
    for (unsigned i = 0; i < kNumbers; ++i) halves[i] = __float2half(static_cast<float>((rank + 1) * (i % 100)));
    CUDA(cudaMemcpy(own[rank], numbers, sizeof numbers, cudaMemcpyDefault));
    CUDA(cudaMemcpy(own[rank] + sizeof numbers, halves, sizeof halves, cudaMemcpyDefault));
    CUDA(cudaMalloc(&signals.of[rank], sizeof(unsigned) * kMost));
    CUDA(cudaMemset(signals.of[rank], 0, sizeof(unsigned) * kMost));
    CUDA(cudaDeviceSynchronize());
  }
  for (int rank = 0; rank < ranks; ++rank) {
    CUDA(cudaSetDevice(rank));
    AllReduce<<<1, 128, 0, streams[rank]>>>(reinterpret_cast<float4*>(all[rank]),
                                            reinterpret_cast<uint4*>(all[rank] + sizeof numbers), signals, rank, ranks);
    CUDA(cudaGetLastError());
  }
  const unsigned factor = ranks * (ranks + 1) / 2;
  for (int rank = 0; rank < ranks; ++rank) {
    CUDA(cudaStreamSynchronize(streams[rank]));
    CUDA(cudaMemcpy(numbers, own[rank], sizeof numbers, cudaMemcpyDefault));
    CUDA(cudaMemcpy(halves, own[rank] + sizeof numbers, sizeof halves, cudaMemcpyDefault));
    for (unsigned i = 0; i < kNumbers; ++i) CHECK(numbers[i] == static_cast<float>(factor * i));
    for (unsigned i = 0; i < kNumbers; ++i) CHECK(__half2float(halves[i]) == static_cast<float>(factor * (i % 100)));
  }
  std::printf("ok\n");
}
