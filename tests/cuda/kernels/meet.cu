// Kernels of an application that meet by a device communicator, as the functions of NVIDIA's nccl_device.h do: they
// read the struct that they are passed, and know how a barrier is laid out in the memory of the communicator.
#include <cstdint>

// ncclDevComm, which begins behind `skipped` bytes, and has its handle of barriers behind the address of multicast. The
// copy of the window is shorter in newer versions.
struct DeviceComm {
  __device__ DeviceComm(const char* bytes, int skipped, int multicast) : at(bytes + skipped), multicast(multicast) {}
  const char* const at;
  const int multicast;
  template <class T>
  __device__ T Get(int offset) const {
    return *reinterpret_cast<const T*>(at + offset);
  }
  __device__ int team_rank() const { return Get<int>(12); }
  __device__ int team_size() const { return Get<int>(16); }
  // A buffer of a member of the team, by the copy of the window, which begins at 40.
  __device__ char* Buffer(uint32_t handle, int member) const {
    const bool whole = multicast == 112;
    const uint64_t stride = static_cast<uint64_t>(Get<uint32_t>(whole ? 40 + 24 : 40 + 8)) << 32;
    return Get<char*>(whole ? 40 + 8 : 40) + stride * static_cast<uint64_t>(member) + uint64_t{handle} * 128;
  }
};

__device__ void StoreRelease(uint32_t* to, uint32_t value) {
  asm volatile("st.release.sys.u32 [%0], %1;" ::"l"(to), "r"(value) : "memory");
}
__device__ uint32_t LoadAcquire(const uint32_t* from) {
  uint32_t value;
  asm volatile("ld.acquire.sys.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
  return value;
}

// One barrier of all that a handle has: words of epochs, of multicast, then of each member.
struct Barrier {
  const DeviceComm comm;
  const uint32_t handle;
  const int barriers, index;
  __device__ uint32_t* Words(int member) const { return reinterpret_cast<uint32_t*>(comm.Buffer(handle, member)); }
  __device__ uint32_t* Inbox(int owner, int from) const {
    return Words(owner) + 3 * barriers + index * comm.team_size() + from;
  }
  __device__ void Sync() const {
    __syncthreads();
    uint32_t* const epoch = Words(comm.team_rank()) + barriers + index;
    const uint32_t next = *epoch + 1;
    __syncthreads();
    const int self = comm.team_rank();
    for (int member = static_cast<int>(threadIdx.x); member < comm.team_size();
         member += static_cast<int>(blockDim.x)) {
      if (member == self) continue;
      StoreRelease(Inbox(member, self), next);
      while (LoadAcquire(Inbox(self, member)) - next > 0x7fffffffu) continue;
    }
    __syncthreads();
    if (threadIdx.x == 0) *epoch = next;
    __syncthreads();
  }
};

// 256 bytes by value, as much as any version of the struct has.
struct Passed {
  char bytes[256];
};

// Each block, `rounds` times: tells all members a number, in its part of a buffer, and adds what it is told.
extern "C" __global__ void meet(Passed passed, int skipped, int multicast, uint32_t buffer, int rounds,
                                uint64_t* sums) {
  const DeviceComm comm(passed.bytes, skipped, multicast);
  const auto block = static_cast<int>(blockIdx.x);
  const Barrier barrier{comm, comm.Get<uint32_t>(multicast + 8), comm.Get<int>(multicast + 12), block};
  const int self = comm.team_rank(), size = comm.team_size();
  uint64_t sum = 0;
  for (int round = 0; round < rounds; ++round) {
    for (int member = static_cast<int>(threadIdx.x); member < size; member += static_cast<int>(blockDim.x)) {
      auto* const slots = reinterpret_cast<uint32_t*>(comm.Buffer(buffer, member)) + block * size;
      slots[self] = static_cast<uint32_t>((round + 1) * (self + 1) + 1000 * member + 7 * block);
    }
    barrier.Sync();
    const auto* const own = reinterpret_cast<const uint32_t*>(comm.Buffer(buffer, self)) + block * size;
    for (int member = 0; member < size; ++member) sum += static_cast<const volatile uint32_t*>(own)[member];
    barrier.Sync();
  }
  if (threadIdx.x == 0) sums[block] = sum;
}

// Finds the window of a buffer (0: there is none), by the table of the communicator.
extern "C" __global__ void find_window(Passed passed, int skipped, int multicast, uint64_t pointer, uint64_t* found) {
  struct Piece {
    struct {
      uint64_t base, bytes, window;
    } entries[32];
    const Piece* next;
  };
  *found = 0;
  for (auto* piece = DeviceComm(passed.bytes, skipped, multicast).Get<const Piece*>(24); piece != nullptr;
       piece = piece->next) {
    for (const auto& entry : piece->entries) {
      if (entry.base != 0 && entry.bytes != 0 && entry.window != 0 && pointer - entry.base < entry.bytes)
        *found = entry.window;
    }
  }
}
