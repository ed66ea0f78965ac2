// Memory of the devices of several ranks that one address reaches (NVLink SHARP): what is stored there is stored to the
// memory of all, and what is loaded is the fold of what all have. Only `multimem` instructions may use the address.
//
// What CUDA promises of the calls (CUDA driver API, "Multicast Object Management"): a device joins a team once and for
// good. cuMulticastBindMem, and cuMemMap of the object, block until all devices have joined, so no rank begins a step
// before all have ended the one before. Memory and object live as long as their handles, mappings and bindings; a range
// is unbound by the offset and size that it was bound with.
//
// All ranks, each on a device of its own, must end each step before any begins the next: Create on one of them, then
// Join, and Bind. A failed step leaves what the destructor can release, at once if the others do not use it. Memory
// stays bound until the destructor, because peers may still access it. Used by one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "src/base/status.h"
#include "src/device/cuda/device.h"
#include "transports/cuda_ipc/address.h"
#include "transports/cuda_ipc/memory.h"
#include "transports/shm/offered_file.h"

namespace axccl::cuda_ipc {

// What memory of the ranks is bound to.
class MulticastObject {
 public:
  explicit MulticastObject(const device::cuda::Device& device) : device_(device) {}
  ~MulticastObject();
  MulticastObject(const MulticastObject&) = delete;
  MulticastObject& operator=(const MulticastObject&) = delete;

  // Returns an error that says why the device cannot be in a team, if so.
  static Status Check(const device::cuda::Device& device);

  // Makes the object, for that many devices and at least so many bytes on each. Its address is for all ranks.
  Result<Handle> Create(size_t devices, uint64_t least_bytes);
  // Takes the object, unless this rank has made it, and adds the device.
  Status Join(const Handle& handle);
  // Binds bytes of memory of the device, from `offset` on, at `at`, all multiples of the least unit. Other ranks may
  // bind more, or less.
  Status Bind(uint64_t at, CUmemGenericAllocationHandle memory, uint64_t offset, uint64_t bytes);
  // Unbinds all that this rank has bound. Drivers refuse that once the memory has been unmapped and released.
  void Unbind();

  CUmemGenericAllocationHandle handle() const { return object_; }
  uint64_t bytes() const { return bytes_; }
  // Of which offsets and sizes are multiples, for so many devices.
  static Result<uint64_t> LeastUnit(const device::cuda::Device& device, size_t devices);

 private:
  struct Bound {
    uint64_t at, bytes;
  };
  const device::cuda::Device& device_;
  CUmemGenericAllocationHandle object_ = 0;
  bool has_object_ = false;
  shm::OfferedFile file_;  // of the object, on the rank that has made it
  uint64_t bytes_ = 0;
  std::vector<Bound> bound_;
};

// An object and memory for it, both mapped.
class Multicast {
 public:
  explicit Multicast(const device::cuda::Device& device) : device_(device), object_(device) {}
  ~Multicast();
  Multicast(const Multicast&) = delete;
  Multicast& operator=(const Multicast&) = delete;

  MulticastObject& object() { return object_; }
  // Binds memory of the device, and maps that and the object. The memory's content is undefined.
  Status Bind();
  // No kernel here uses the addresses any more: unmaps the object. To be called on all ranks before any destroys its
  // own.
  void Unmap();

  uint64_t bytes() const { return object_.bytes(); }
  CUdeviceptr all() const { return all_; }  // the slots of all ranks
  CUdeviceptr own() const { return own_; }  // the memory of this rank

 private:
  const device::cuda::Device& device_;
  MulticastObject object_;
  CUmemGenericAllocationHandle memory_ = 0;
  bool has_memory_ = false;
  CUdeviceptr all_ = 0, own_ = 0;
};

}  // namespace axccl::cuda_ipc
