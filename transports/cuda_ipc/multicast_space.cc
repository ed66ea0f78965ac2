#include "transports/cuda_ipc/multicast_space.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "src/base/sizes.h"
#include "transports/cuda_ipc/memory.h"

namespace axccl::cuda_ipc {

using device::cuda::Device;
using device::cuda::Driver;
using device::cuda::Scope;

// A device's memory fits in twice, with gaps.
MulticastSpace::MulticastSpace(const Device& device) : device_(device) {
  const Scope scope(device_);
  size_t free = 0, total = 0;
  if (Driver::Loaded().cuMemGetInfo(&free, &total) == CUDA_SUCCESS) bytes_ = 2 * std::bit_ceil(uint64_t{total});
}

MulticastSpace::~MulticastSpace() {
  const Scope scope(device_);
  if (base_ != 0) Driver::Loaded().cuMemAddressFree(base_, 2 * bytes_);
}

Result<uint64_t> MulticastSpace::Find(uint64_t bytes, uint64_t unit) const {
  uint64_t at = 0;
  for (const auto& [begin, used] : used_) {
    if (at + bytes <= begin) break;
    at = RoundUp(begin + used, unit);
  }
  if (bytes <= bytes_ && at <= bytes_ - bytes) return at;
  return MakeStatus(Code::kSystemError, "the windows of the rank take more than %llu GiB of addresses for multicast",
                    static_cast<unsigned long long>(bytes_ >> 30));
}

Result<std::unique_ptr<MulticastSpace::Place>> MulticastSpace::Map(const MulticastObject& object, uint64_t unit) {
  const Scope scope(device_);
  const std::lock_guard lock(mutex_);
  const uint64_t alignment = std::max(unit, kLargestPage);
  if (base_ == 0) AXCCL_RETURN_IF_CUDA_ERROR(Driver::Loaded().cuMemAddressReserve(&base_, 2 * bytes_, alignment, 0, 0));
  AXCCL_ASSIGN_OR_RETURN(const uint64_t at, Find(object.bytes(), object.bytes() < kLargestPage ? unit : alignment));
  const int ordinal = device_.ordinal();
  AXCCL_RETURN_IF_ERROR(MapAt(base_ + at, object.handle(), object.bytes(), &ordinal, 1));
  used_[at] = object.bytes();
  return std::unique_ptr<Place>(new Place(shared_from_this(), at));
}

void MulticastSpace::Leave(uint64_t at) {
  const Scope scope(device_);
  const std::lock_guard lock(mutex_);
  const auto used = used_.find(at);
  Driver::Loaded().cuMemUnmap(base_ + at, used->second);
  used_.erase(used);
}

}  // namespace axccl::cuda_ipc
