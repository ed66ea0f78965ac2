// A cooperative launch whose blocks meet at a barrier of the grid.
#include <cooperative_groups.h>

#include "check.cuh"

__global__ void Sum(int* values, int* sums) {
  cooperative_groups::grid_group grid = cooperative_groups::this_grid();
  values[grid.thread_rank()] = static_cast<int>(grid.thread_rank());
  grid.sync();
  int sum = 0;
  for (unsigned i = 0; i < grid.size(); ++i) sum += values[i];
  sums[grid.thread_rank()] = sum;
}

int main() {
  constexpr int kBlocks = 8, kThreads = 64, kCount = kBlocks * kThreads;
  int *values = nullptr, *sums = nullptr, blocks = 0, processors = 0;
  CUDA(cudaMalloc(&values, kCount * sizeof(int)));
  CUDA(cudaMallocManaged(&sums, kCount * sizeof(int)));
  CUDA(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, Sum, kThreads, 0));
  CUDA(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, 0));
  CHECK(blocks * processors >= kBlocks);
  void* arguments[] = {&values, &sums};
  CUDA(cudaLaunchCooperativeKernel(Sum, dim3(kBlocks), dim3(kThreads), arguments, 0, nullptr));
  CUDA(cudaDeviceSynchronize());
  for (int i = 0; i < kCount; ++i) CHECK(sums[i] == kCount * (kCount - 1) / 2);
  CHECK(cudaLaunchCooperativeKernel(Sum, dim3(1 << 20), dim3(kThreads), arguments, 0, nullptr) ==
        cudaErrorCooperativeLaunchTooLarge);
  std::printf("ok\n");
}
