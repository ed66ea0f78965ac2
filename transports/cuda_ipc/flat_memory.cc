#include "transports/cuda_ipc/flat_memory.h"

#include <utility>

#include "transports/cuda_ipc/memory.h"

namespace axccl::cuda_ipc {

using device::cuda::Driver;
using device::cuda::Scope;

Status FlatMemory::Reserve(uint64_t bytes) {
  const Scope scope(device_);
  const uint64_t alignment = bytes < kLargestPage ? 0 : kLargestPage;
  AXCCL_RETURN_IF_CUDA_ERROR(Driver::Loaded().cuMemAddressReserve(&address_, bytes, alignment, 0, 0));
  bytes_ = bytes;
  return Status();
}

Status FlatMemory::Map(uint64_t at, CUmemGenericAllocationHandle object, uint64_t bytes) {
  const Scope scope(device_);
  const int ordinal = device_.ordinal();
  mapped_.push_back({address_ + at, bytes});
  const Status status = MapAt(address_ + at, object, bytes, &ordinal, 1);
  Driver::Loaded().cuMemRelease(object);
  if (!status.ok()) mapped_.pop_back();
  return status;
}

void FlatMemory::Unmap() {
  if (address_ == 0) return;
  const Driver& driver = Driver::Loaded();
  const Scope scope(device_);
  for (const Mapped& object : mapped_) driver.cuMemUnmap(object.address, object.bytes);
  mapped_.clear();
  driver.cuMemAddressFree(std::exchange(address_, 0), bytes_);
}

}  // namespace axccl::cuda_ipc
