// The usual first program, and variables of the device.
#include <vector>

#include "check.cuh"

__device__ int g_calls;
__constant__ float g_scale;

__global__ void Add(const float* a, const float* b, float* sum, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) sum[i] = g_scale * (a[i] + b[i]);
  if (i == 0) atomicAdd(&g_calls, 1);
}

__global__ void Reverse(int* values) {
  extern __shared__ int shared[];
  shared[threadIdx.x] = values[threadIdx.x];
  __syncthreads();
  values[threadIdx.x] = shared[blockDim.x - 1 - threadIdx.x];
}

int main() {
  int devices = 0;
  CUDA(cudaGetDeviceCount(&devices));
  CHECK(devices > 1);
  constexpr int kCount = 10000;
  std::vector<float> a(kCount), b(kCount), sum(kCount);
  for (int i = 0; i < kCount; ++i) a[i] = i, b[i] = 2 * i;
  for (int device = 0; device < 2; ++device) {
    CUDA(cudaSetDevice(device));
    float* memory[3];
    for (float*& one : memory) CUDA(cudaMalloc(&one, kCount * sizeof(float)));
    CUDA(cudaMemcpy(memory[0], a.data(), kCount * sizeof(float), cudaMemcpyHostToDevice));
    CUDA(cudaMemcpy(memory[1], b.data(), kCount * sizeof(float), cudaMemcpyHostToDevice));
    const float scale = 1 + device;
    CUDA(cudaMemcpyToSymbol(g_scale, &scale, sizeof scale));
    for (int call = 0; call <= device; ++call)
      Add<<<(kCount + 255) / 256, 256>>>(memory[0], memory[1], memory[2], kCount);
    CUDA(cudaGetLastError());
    CUDA(cudaMemcpy(sum.data(), memory[2], kCount * sizeof(float), cudaMemcpyDeviceToHost));
    for (int i = 0; i < kCount; ++i) CHECK(sum[i] == scale * 3 * i);
    int calls = 0;
    CUDA(cudaMemcpyFromSymbol(&calls, g_calls, sizeof calls));
    CHECK(calls == 1 + device);
    int values[64], *on_device = nullptr;
    for (int i = 0; i < 64; ++i) values[i] = i;
    CUDA(cudaMalloc(&on_device, sizeof values));
    CUDA(cudaMemcpy(on_device, values, sizeof values, cudaMemcpyDefault));
    Reverse<<<1, 64, sizeof values>>>(on_device);
    CUDA(cudaMemcpy(values, on_device, sizeof values, cudaMemcpyDefault));
    for (int i = 0; i < 64; ++i) CHECK(values[i] == 63 - i);
  }
  std::printf("ok\n");
}
