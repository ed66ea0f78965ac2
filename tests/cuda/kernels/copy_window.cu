// A kernel of an application that reaches windows as the functions of NVIDIA's nccl_device.h do: it takes the handle
// for an address, and reads the fields there that say where the shares are.
#include <cstdint>

struct Window {
  const char* handle;
  template <class T>
  __device__ T At(int offset) const {
    return *reinterpret_cast<const T*>(handle + offset);
  }
  __device__ char* ShareOf(int member) const {
    return At<char*>(8) + (static_cast<uint64_t>(At<uint32_t>(24)) << 32) * static_cast<uint64_t>(member);
  }
};

// `how`: 0 is the rank's own share, 1 that of member `peer` of the team, 2 that of rank `peer` of the communicator.
extern "C" __global__ void copy_window(const char* handle, int how, int peer, uint64_t offset, unsigned char* outside,
                                       uint64_t bytes, int stores) {
  const Window window{handle};
  const int team_rank = window.At<int>(16), rank = window.At<int>(20);
  const int member = how == 0 ? team_rank : how == 1 ? peer : team_rank + (peer - rank);
  auto* const inside = reinterpret_cast<unsigned char*>(window.ShareOf(member)) + offset;
  for (uint64_t i = threadIdx.x; i < bytes; i += blockDim.x) {
    if (stores != 0) {
      inside[i] = outside[i];
    } else {
      outside[i] = inside[i];
    }
  }
}
