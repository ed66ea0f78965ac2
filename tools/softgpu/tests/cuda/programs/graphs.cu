// A captured graph with two branches that wait for each other, replayed.
#include <cuda/atomic>

#include "check.cuh"

using Word = cuda::atomic_ref<unsigned, cuda::thread_scope_device>;

__global__ void Wait(unsigned* flag, unsigned* epochs) {
  const unsigned epoch = *epochs + 1;
  while (Word(*flag).load(cuda::memory_order_acquire) < epoch) {
  }
  *epochs = epoch;
}

__global__ void Signal(unsigned* flag) { Word(*flag).fetch_add(1, cuda::memory_order_release); }

int main() {
  unsigned* words = nullptr;
  CUDA(cudaMalloc(&words, 8));
  CUDA(cudaMemset(words, 0, 8));
  cudaStream_t stream, branch;
  cudaEvent_t fork, join;
  CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  CUDA(cudaStreamCreateWithFlags(&branch, cudaStreamNonBlocking));
  CUDA(cudaEventCreateWithFlags(&fork, cudaEventDisableTiming));
  CUDA(cudaEventCreateWithFlags(&join, cudaEventDisableTiming));
  CUDA(cudaDeviceSynchronize());
  CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  CUDA(cudaEventRecord(fork, stream));
  CUDA(cudaStreamWaitEvent(branch, fork, 0));
  Wait<<<1, 1, 0, stream>>>(words, words + 1);
  Signal<<<1, 1, 0, branch>>>(words);
  CUDA(cudaEventRecord(join, branch));
  CUDA(cudaStreamWaitEvent(stream, join, 0));
  cudaGraph_t graph;
  CUDA(cudaStreamEndCapture(stream, &graph));
  cudaGraphExec_t exec;
  CUDA(cudaGraphInstantiate(&exec, graph, 0));
  for (int i = 0; i < 10; ++i) CUDA(cudaGraphLaunch(exec, stream));
  CUDA(cudaStreamSynchronize(stream));
  unsigned seen[2];
  CUDA(cudaMemcpy(seen, words, 8, cudaMemcpyDefault));
  CHECK(seen[0] == 10 && seen[1] == 10);
  CUDA(cudaGraphExecDestroy(exec));
  CUDA(cudaGraphDestroy(graph));
  std::printf("ok\n");
}
