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

Result<uint64_t> UnitOf(const CUmulticastObjectProp& properties, CUmulticastGranularity_flags which) {
  size_t unit = 0;
  AXCCL_RETURN_IF_CUDA_ERROR(MulticastDriver::Get()->cuMulticastGetGranularity(&unit, &properties, which));
  return uint64_t{unit};
}

// Rounded to what is best for the device, unless that would be mostly waste.
Result<uint64_t> RoundToUnit(const CUmulticastObjectProp& properties) {
  AXCCL_ASSIGN_OR_RETURN(const uint64_t least, UnitOf(properties, CU_MULTICAST_GRANULARITY_MINIMUM));
  AXCCL_ASSIGN_OR_RETURN(const uint64_t best, UnitOf(properties, CU_MULTICAST_GRANULARITY_RECOMMENDED));
  const uint64_t unit = best <= properties.size ? best : least;
  return RoundUp(properties.size, unit);
}

CUmulticastObjectProp PropertiesOf(size_t devices, uint64_t bytes) {
  CUmulticastObjectProp properties{};
  properties.numDevices = static_cast<unsigned>(devices);
  properties.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  properties.size = bytes;
  return properties;
}

}  // namespace

// ---- object ----

Status MulticastObject::Check(const Device& device) {
  if (device.Attribute(CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED) == 0)
    return MakeStatus(Code::kInvalidUsage, "CUDA device %d has no multicast", device.ordinal());
  if (MulticastDriver::Get() == nullptr)
    return MakeStatus(Code::kInvalidUsage, "the CUDA driver has no multicast objects; they need CUDA 12.1");
  return Status();
}

MulticastObject::~MulticastObject() {
  const Scope scope(device_);
  Unbind();
  if (has_object_) Driver::Loaded().cuMemRelease(object_);
}

void MulticastObject::Unbind() {
  const Scope scope(device_);
  for (const Bound& bound : bound_)
    MulticastDriver::Get()->cuMulticastUnbind(object_, device_.id(), bound.at, bound.bytes);
  bound_.clear();
}

Result<Handle> MulticastObject::Create(size_t devices, uint64_t least_bytes) {
  const Scope scope(device_);
  CUmulticastObjectProp properties = PropertiesOf(devices, least_bytes);
  AXCCL_ASSIGN_OR_RETURN(bytes_, RoundToUnit(properties));
  properties.size = bytes_;
  AXCCL_RETURN_IF_CUDA_ERROR(MulticastDriver::Get()->cuMulticastCreate(&object_, &properties));
  has_object_ = true;
  AXCCL_ASSIGN_OR_RETURN(Exported exported, OfferObject(object_, bytes_));
  file_ = std::move(exported.file);
  return exported.handle;
}

Status MulticastObject::Join(const Handle& handle) {
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

Status MulticastObject::Bind(uint64_t at, CUmemGenericAllocationHandle memory, uint64_t offset, uint64_t bytes) {
  const Scope scope(device_);
  file_.Close();  // all have taken it
  bound_.reserve(bound_.size() + 1);
  AXCCL_RETURN_IF_CUDA_ERROR(MulticastDriver::Get()->cuMulticastBindMem(object_, at, memory, offset, bytes, 0));
  bound_.push_back({at, bytes});
  return Status();
}

Result<uint64_t> MulticastObject::LeastUnit(const Device& device, size_t devices) {
  const Scope scope(device);
  return UnitOf(PropertiesOf(devices, kPage), CU_MULTICAST_GRANULARITY_MINIMUM);
}

// ---- object and memory ----

Multicast::~Multicast() {
  const Scope scope(device_);
  Unmap();
  object_.Unbind();
  if (own_ != 0) UnmapObject(own_, bytes());
  if (has_memory_) Driver::Loaded().cuMemRelease(memory_);
}

Status Multicast::Bind() {
  const Scope scope(device_);
  const Driver& driver = Driver::Loaded();
  const CUmemAllocationProp properties = ShareableOn(device_);
  size_t unit = 0;
  AXCCL_RETURN_IF_CUDA_ERROR(
      driver.cuMemGetAllocationGranularity(&unit, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  AXCCL_RETURN_IF_CUDA_ERROR(driver.cuMemCreate(&memory_, RoundUp(bytes(), unit), &properties, 0));
  has_memory_ = true;
  AXCCL_RETURN_IF_ERROR(object_.Bind(0, memory_, 0, bytes()));
  const int ordinal = device_.ordinal();
  AXCCL_ASSIGN_OR_RETURN(own_, MapObject(memory_, bytes(), &ordinal, 1));
  AXCCL_ASSIGN_OR_RETURN(all_, MapObject(object_.handle(), bytes(), &ordinal, 1));
  return Status();
}

void Multicast::Unmap() {
  const Scope scope(device_);
  if (all_ != 0) UnmapObject(std::exchange(all_, 0), bytes());
}

}  // namespace axccl::cuda_ipc
