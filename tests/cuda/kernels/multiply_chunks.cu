// A kernel of an application that multiplies the rows of an all-gathered matrix by a column while they arrive: a block
// for each chunk waits for the chunk's word. `result` of a row of a chunk that failed is -1.
#include "axccl/device.h"

extern "C" __global__ void multiply_chunks(const uint32_t* words, const int* matrix, const int* column, int* result,
                                           int rows, int width) {
  const uint32_t word = axcclDeviceAwait(words + blockIdx.x);
  for (int row = blockIdx.x * rows + threadIdx.x; row < (blockIdx.x + 1) * rows; row += blockDim.x) {
    int sum = 0;
    for (int i = 0; i < width; ++i) sum += matrix[row * width + i] * column[i];
    result[row] = word == 1 ? sum : -1;
  }
}

// Writes the rows of a rank's own matrix, and declares each chunk ready by its word: a block for each chunk.
extern "C" __global__ void produce_chunks(uint32_t* words, int* matrix, int rows, int width, int value) {
  for (int i = threadIdx.x; i < rows * width; i += blockDim.x)
    matrix[blockIdx.x * rows * width + i] = value + static_cast<int>(blockIdx.x) * rows * width + i;
  __threadfence_system();
  __syncthreads();
  if (threadIdx.x == 0) axcclDeviceReady(words + blockIdx.x);
}
