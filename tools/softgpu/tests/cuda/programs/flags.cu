// Kernels of several devices and streams that wait for each other through flags in memory, as collectives do.
#include <cuda/atomic>

#include "check.cuh"

using Flag = cuda::atomic_ref<unsigned, cuda::thread_scope_system>;

// Each rank waits for its predecessor, adds its number and passes the sum on.
__global__ void Ring(unsigned* mine, unsigned* next, unsigned* data, unsigned* next_data, unsigned rounds, int first) {
  for (unsigned round = 1; round <= rounds; ++round) {
    if (!first || round > 1) {
      const unsigned want = first ? round - 1 : round;
      while (Flag(*mine).load(cuda::memory_order_acquire) < want) {
      }
    }
    *next_data = *data + 1;
    Flag(*next).store(round, cuda::memory_order_release);
  }
}

int main() {
  constexpr int kRanks = 8;
  int devices = 0;
  CUDA(cudaGetDeviceCount(&devices));
  unsigned* memory[kRanks];
  cudaStream_t streams[kRanks];
  for (int rank = 0; rank < kRanks; ++rank) {
    CUDA(cudaSetDevice(rank % devices));
    for (int peer = 0; peer < devices; ++peer) {
      if (peer != rank % devices && rank < devices) CUDA(cudaDeviceEnablePeerAccess(peer, 0));
    }
    CUDA(cudaMalloc(&memory[rank], 8));
    CUDA(cudaMemset(memory[rank], 0, 8));
    CUDA(cudaStreamCreateWithFlags(&streams[rank], cudaStreamNonBlocking));
    CUDA(cudaDeviceSynchronize());
  }
  constexpr unsigned kRounds = 50;
  for (int rank = 0; rank < kRanks; ++rank) {
    CUDA(cudaSetDevice(rank % devices));
    const int next = (rank + 1) % kRanks;
    Ring<<<1, 1, 0, streams[rank]>>>(memory[rank], memory[next], memory[rank] + 1, memory[next] + 1, kRounds,
                                     rank == 0);
    CUDA(cudaGetLastError());
  }
  for (int rank = 0; rank < kRanks; ++rank) CUDA(cudaStreamSynchronize(streams[rank]));
  unsigned result = 0;
  CUDA(cudaMemcpy(&result, memory[0] + 1, sizeof result, cudaMemcpyDefault));
  CHECK(result == kRounds * kRanks);
  std::printf("ok\n");
}
