// A failure in a kernel is returned as CUDA's error, and is sticky.
#include <cassert>

#include "check.cuh"

__global__ void Write(int* to) { *to = 1; }
__global__ void Trap() { __trap(); }
__global__ void Assert(int value) { assert(value == 0); }

int main() {
  int *memory = nullptr, on_stack = 0;
  CUDA(cudaMalloc(&memory, 100));
  Write<<<1, 1>>>(memory + 25);
  CUDA(cudaGetLastError());
  CHECK(cudaDeviceSynchronize() == cudaErrorIllegalAddress);
  CHECK(cudaFree(memory) == cudaErrorIllegalAddress);
  CUDA(cudaDeviceReset());
  CHECK(cudaGetLastError() == cudaErrorIllegalAddress);
  Write<<<1, 1>>>(&on_stack);
  CHECK(cudaDeviceSynchronize() == cudaErrorIllegalAddress);
  CUDA(cudaDeviceReset());
  CUDA(cudaMalloc(&memory, 100));
  Write<<<1, 1>>>(reinterpret_cast<int*>(reinterpret_cast<char*>(memory) + 2));
  CHECK(cudaDeviceSynchronize() == cudaErrorMisalignedAddress);
  CUDA(cudaDeviceReset());
  Trap<<<1, 1>>>();
  CHECK(cudaDeviceSynchronize() == cudaErrorLaunchFailure);
  CUDA(cudaDeviceReset());
  Assert<<<1, 1>>>(1);
  CHECK(cudaDeviceSynchronize() == cudaErrorAssert);
  CUDA(cudaDeviceReset());
  // Memory freed by one allocation differs from that of the next.
  CUDA(cudaMalloc(&memory, 100));
  CUDA(cudaFree(memory));
  int* other = nullptr;
  CUDA(cudaMalloc(&other, 100));
  Write<<<1, 1>>>(memory);
  CHECK(cudaDeviceSynchronize() == cudaErrorIllegalAddress);
  CUDA(cudaDeviceReset());
  Write<<<1, 2000>>>(other);
  CHECK(cudaGetLastError() == cudaErrorInvalidConfiguration);
  std::printf("ok\n");
}
