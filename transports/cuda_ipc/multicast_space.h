// Addresses of one device at which multicast objects are mapped, all at offsets from one base: kernels find the memory
// of all ranks of a window at the offset of the window from the base that a device communicator has (NCCL:
// lsaMultimem). Kernels that use a window without an object fault: it is at nowhere(). Thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "src/base/status.h"
#include "src/device/cuda/device.h"
#include "transports/cuda_ipc/multicast.h"

namespace axccl::cuda_ipc {

class MulticastSpace : public std::enable_shared_from_this<MulticastSpace> {
 public:
  explicit MulticastSpace(const device::cuda::Device& device);
  ~MulticastSpace();
  MulticastSpace(const MulticastSpace&) = delete;
  MulticastSpace& operator=(const MulticastSpace&) = delete;

  // Where an object is mapped until this goes. No kernel may use it any more then.
  class Place {
   public:
    ~Place() { space_->Leave(at_); }
    Place(const Place&) = delete;
    Place& operator=(const Place&) = delete;
    CUdeviceptr base() const { return space_->base_; }
    CUdeviceptr address() const { return space_->base_ + at_; }

   private:
    friend class MulticastSpace;
    Place(std::shared_ptr<MulticastSpace> space, uint64_t at) : space_(std::move(space)), at_(at) {}
    const std::shared_ptr<MulticastSpace> space_;
    const uint64_t at_;
  };
  // The offset from the base behind which nothing ever is, for as many bytes as the device has memory.
  uint64_t nowhere() const { return bytes_; }
  // `unit` of the object (MulticastObject::LeastUnit).
  Result<std::unique_ptr<Place>> Map(const MulticastObject& object, uint64_t unit);

 private:
  Result<uint64_t> Find(uint64_t bytes, uint64_t unit) const;
  void Leave(uint64_t at);

  const device::cuda::Device& device_;
  uint64_t bytes_ = 0;  // as many follow, where nothing is
  std::mutex mutex_;
  CUdeviceptr base_ = 0;               // 0: nothing has been mapped yet
  std::map<uint64_t, uint64_t> used_;  // bytes, by offset
};

}  // namespace axccl::cuda_ipc
