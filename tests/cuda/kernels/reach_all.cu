// Kernels of an application that reach the shares of all ranks of a window by one address, as the functions of NVIDIA's
// nccl_device.h do: the base is in the device communicator, the offset from it in the window.
#include <cstdint>

// 256 bytes by value, as much as any version of ncclDevComm has.
struct Passed {
  char bytes[256];
};

template <class T>
__device__ T* ReachAll(const char* comm, int multicast, const char* window, uint64_t offset) {
  auto* const base = *reinterpret_cast<char* const*>(comm + multicast);
  const uint64_t pages = *reinterpret_cast<const uint32_t*>(window + 28);
  return reinterpret_cast<T*>(base + pages * 4096 + offset);
}

// Adds what all ranks have in `count` words from `first` on, and stores the sums to all.
extern "C" __global__ void fold_for_all(Passed passed, int skipped, int multicast, const char* window, uint64_t offset,
                                        int first, int count) {
  uint32_t* const words = ReachAll<uint32_t>(passed.bytes + skipped, multicast, window, offset);
  for (int i = first + static_cast<int>(threadIdx.x); i < first + count; i += static_cast<int>(blockDim.x)) {
    uint32_t sum;
    asm volatile("multimem.ld_reduce.relaxed.sys.global.add.u32 %0, [%1];" : "=r"(sum) : "l"(words + i) : "memory");
    asm volatile("multimem.st.relaxed.sys.global.u32 [%0], %1;" ::"l"(words + i), "r"(sum) : "memory");
  }
}
