// The GPU of a rank of overlap_perf: products by cuBLAS, which is loaded by name like the driver, or by a plain kernel.
//
// Used by one thread. A call that fails ends the program.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "nccl.h"

namespace axccl::perf::overlap {

class Gpu {
 public:
  using Event = void*;

  // Makes the device of the rank current to the thread. `plain`: without cuBLAS.
  Gpu(int rank, bool plain);
  Gpu(const Gpu&) = delete;

  // "cuBLAS" or "a plain kernel".
  std::string multiplier() const;
  // Enqueues c[rows][n] = a[rows][k] * b[k][n] in bfloat16, all row-major without gaps.
  void Multiply(const void* a, const void* b, void* c, int64_t rows, int64_t n, int64_t k, cudaStream_t stream);

  static cudaStream_t NewStream();
  static void Wait(cudaStream_t stream);
  static Event NewEvent();
  static void Record(Event event, cudaStream_t stream);
  static void Follow(cudaStream_t stream, Event event);
  // Copy and set memory while the device does nothing else. Streams see it after Settle.
  static void Upload(void* to, const void* from, size_t bytes);
  static void Download(void* to, const void* from, size_t bytes);
  static void Set(void* to, unsigned char value, size_t bytes);
  static void Settle();

 private:
  bool LoadCublas();

  void* cublas_ = nullptr;
  void* plain_ = nullptr;  // the kernel
};

}  // namespace axccl::perf::overlap
