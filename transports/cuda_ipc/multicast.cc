#include "transports/cuda_ipc/multicast.h"

#include <utility>

#include "src/base/sizes.h"
#include "transports/cuda_ipc/handle.h"

namespace axccl::cuda_ipc {

using device::cuda::Device;
using device::cuda::Driver;
using device::cuda::MulticastDriver;
using device::cuda::Scope;

namespace {

// Rounded to what is best for the device, unless that would be mostly waste.
Result<uint64_t> RoundToUnit(CUmulticastObjectProp properties, uint64_t bytes) {
  const MulticastDriver& driver = *MulticastDriver::Get();
  properties.size = bytes;
  size_t least = 0, best = 0;
  AXCCL_RETURN_IF_CUDA_ERROR(driver.cuMulticastGetGranularity(&least, &properties, CU_MULTICAST_GRANULARITY_MINIMUM));
  AXCCL_RETURN_IF_CUDA_ERROR(
      driver.cuMulticastGetGranularity(&best, &properties, CU_MULTICAST_GRANULARITY_RECOMMENDED));
  const uint64_t unit = best <= bytes ? best : least;
  return (bytes + unit - 1) / unit * unit;
}

}  // namespace

Status Multicast::Check(const Device& device) {
  if (device.Attribute(CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED) == 0)
    return MakeStatus(Code::kInvalidUsage, "CUDA device %d has no multicast", device.ordinal());
  if (MulticastDriver::Get() == nullptr)
    return MakeStatus(Code::kInvalidUsage, "the CUDA driver has no multicast objects; they need CUDA 12.1");
  return Status();
}

Multicast::~Multicast() {
  const Scope scope(device_);
  Unmap();
  const Driver& driver = Driver::Loaded();
  if (bound_) MulticastDriver::Get()->cuMulticastUnbind(object_, device_.id(), 0, bytes_);
  if (has_memory_) driver.cuMemRelease(memory_);
  if (has_object_) driver.cuMemRelease(object_);
}

Result<Handle> Multicast::Create(size_t devices, uint64_t least_bytes) {
  const Scope scope(device_);
  CUmulticastObjectProp properties{};
  properties.numDevices = static_cast<unsigned>(devices);
  properties.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  AXCCL_ASSIGN_OR_RETURN(bytes_, RoundToUnit(properties, least_bytes));
  properties.size = bytes_;
  AXCCL_RETURN_IF_CUDA_ERROR(MulticastDriver::Get()->cuMulticastCreate(&object_, &properties));
  has_object_ = true;
  AXCCL_ASSIGN_OR_RETURN(Exported exported, OfferObject(object_, bytes_));
  file_ = std::move(exported.file);
  return exported.handle;
}

Status Multicast::Join(const Handle& handle) {
  const Scope scope(device_);
  if (!has_object_) {
    if (handle.kind != Handle::kFile || handle.bytes == 0 || handle.bytes % kPage != 0)
      return MakeStatus(Code::kRemoteError, "the rank that makes the multicast object offers none");
    AXCCL_ASSIGN_OR_RETURN(object_, TakeObject(handle));
    has_object_ = true;
    bytes_ = handle.bytes;
  }
  AXCCL_RETURN_IF_CUDA_ERROR(MulticastDriver::Get()->cuMulticastAddDevice(object_, device_.id()));
  return Status();
}

Status Multicast::Bind() {
  const Scope scope(device_);
  const Driver& driver = Driver::Loaded();
  file_.Close();  // all have taken it
  const CUmemAllocationProp properties = ShareableOn(device_);
  size_t unit = 0;
  AXCCL_RETURN_IF_CUDA_ERROR(
      driver.cuMemGetAllocationGranularity(&unit, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  AXCCL_RETURN_IF_CUDA_ERROR(driver.cuMemCreate(&memory_, (bytes_ + unit - 1) / unit * unit, &properties, 0));
  has_memory_ = true;
  AXCCL_RETURN_IF_CUDA_ERROR(MulticastDriver::Get()->cuMulticastBindMem(object_, 0, memory_, 0, bytes_, 0));
  bound_ = true;
  const int ordinal = device_.ordinal();
  AXCCL_ASSIGN_OR_RETURN(own_, MapObject(memory_, bytes_, &ordinal, 1));
  AXCCL_ASSIGN_OR_RETURN(all_, MapObject(object_, bytes_, &ordinal, 1));
  return Status();
}

void Multicast::Unmap() {
  const Scope scope(device_);
  if (all_ != 0) UnmapObject(std::exchange(all_, 0), bytes_);
  if (own_ != 0) UnmapObject(std::exchange(own_, 0), bytes_);
}

}  // namespace axccl::cuda_ipc
