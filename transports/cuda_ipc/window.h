// Memory of the ranks of a machine behind one address: what a window is made of.
//
// What CUDA promises of the calls (CUDA driver API, "Virtual Memory Management"): cuMemMap maps a whole object, from
// its beginning, so a window has whole chunks, of which the first may begin before it. cuMemGetAddressRange of such
// memory gives the mapping that contains the pointer. The API does not tell whether a mapping is all of its object; it
// is taken to be, as in NCCL. An object lives as long as its handles and mappings, so what a rank frees stays for peers
// that have mapped it. A process reaches an object of its own by any pointer into it (cuMemRetainAllocationHandle), and
// one of another process by a file. Kernels may use the addresses that a device has been given access to. Two addresses
// of one memory are aliases: what a kernel stores at one is at the other when the kernel has ended, before that only
// behind fence.proxy.alias. As in NCCL, that is up to the kernels of the application.
//
// Used by one thread at a time.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "src/base/status.h"
#include "src/device/cuda/device.h"
#include "transports/cuda_ipc/address.h"
#include "transports/cuda_ipc/flat_memory.h"
#include "transports/cuda_ipc/handle.h"
#include "transports/cuda_ipc/multicast.h"

namespace axccl::cuda_ipc {

// A chunk of a rank's memory, as it is offered to the others. Plain data that ranks send.
struct ChunkAddress {
  uint64_t base = 0;   // in the rank's own process
  uint64_t bytes = 0;  // a multiple of the unit (UnitOf)
  Handle handle;       // for other processes; of kind kNone if there are none
};

// The size of which all chunks on a device are multiples, and their places in a window.
Result<uint64_t> UnitOf(const device::cuda::Device& device);

// The chunks of a stretch of this process's memory; they live at least as long as this object.
class Chunks {
 public:
  Chunks() = default;
  ~Chunks();
  Chunks(Chunks&& other) noexcept { *this = std::move(other); }
  Chunks& operator=(Chunks&& other) noexcept {
    std::swap(chunks_, other.chunks_);
    std::swap(offset_, other.offset_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }

  // Those of [pointer, pointer + bytes), none if `bytes` is 0. An error says where there is other memory, and why it
  // cannot be mapped.
  static Result<Chunks> Of(const device::cuda::Device& device, CUdeviceptr pointer, uint64_t bytes);

  size_t size() const { return chunks_.size(); }
  uint64_t offset() const { return offset_; }  // of the stretch in the first chunk
  uint64_t bytes() const { return bytes_; }    // of all chunks
  // Binds [begin, end) of the chunks, one behind the other, to memory of several ranks, from its beginning on.
  Status BindTo(MulticastObject* object, uint64_t begin, uint64_t end) const;
  // The address of a chunk. `offered` gets the file that other processes take, if there are others.
  Result<ChunkAddress> Offer(size_t index, bool to_others, std::vector<shm::OfferedFile>* offered) const;

 private:
  struct Chunk {
    Range range;
    CUmemGenericAllocationHandle object = 0;
  };
  std::vector<Chunk> chunks_;
  uint64_t offset_ = 0, bytes_ = 0;
};

// Maps a rank's chunk at `at` of the window. `here`: the rank is in this process. What the address says is checked.
Status MapChunk(const device::cuda::Device& device, FlatMemory* window, uint64_t at, const ChunkAddress& chunk,
                bool here);

}  // namespace axccl::cuda_ipc
