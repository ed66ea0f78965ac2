#include "tools/softgpu/cuda/device.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <string>

#include "tools/softgpu/cuda/settings.h"

namespace softgpu::cuda {

DeviceMemory::Piece::~Piece() {
  const size_t bytes = mapping_->bytes();
  mapping_.reset();
  owner_->GiveBack(offset_, bytes);
}

DeviceMemory::DeviceMemory(int device)
    : device_(device), descriptor_(memfd_create(("softgpu-device-" + std::to_string(device)).c_str(), MFD_CLOEXEC)) {}

// First fit; else at the end of the file.
std::optional<uint64_t> DeviceMemory::TakeOffset(size_t bytes) {
  for (auto hole = holes_.begin(); hole != holes_.end(); ++hole) {
    const auto [offset, size] = *hole;
    if (size < bytes) continue;
    holes_.erase(hole);
    if (size > bytes) holes_.emplace(offset + bytes, size - bytes);
    return offset;
  }
  const uint64_t offset = file_bytes_;
  if (ftruncate(descriptor_, static_cast<off_t>(offset + bytes)) != 0) return std::nullopt;
  file_bytes_ += bytes;
  return offset;
}

std::shared_ptr<DeviceMemory::Piece> DeviceMemory::Allocate(size_t bytes) {
  bytes = RoundUp(std::max<size_t>(bytes, 1), kPage);
  if (!Charge(bytes)) return nullptr;
  std::unique_lock lock(mutex_);
  const std::optional<uint64_t> offset = TakeOffset(bytes);
  lock.unlock();
  if (!offset) {
    Discharge(bytes);
    return nullptr;
  }
  std::unique_ptr<Mapping> mapping = Mapping::Map(bytes, descriptor_, *offset);
  if (mapping == nullptr) {
    GiveBack(*offset, bytes);
    return nullptr;
  }
  return std::make_shared<Piece>(this, *offset, std::move(mapping));
}

void DeviceMemory::GiveBack(uint64_t offset, size_t bytes) {
  // This removes the memory from processes that still have it mapped, too, as cuMemFree of the exporter does.
  fallocate(descriptor_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
            static_cast<off_t>(bytes));
  std::lock_guard lock(mutex_);
  used_ -= bytes;
  auto hole = holes_.emplace(offset, bytes).first;
  if (const auto next = std::next(hole); next != holes_.end() && offset + bytes == next->first) {
    hole->second += next->second;
    holes_.erase(next);
  }
  if (hole == holes_.begin()) return;
  if (const auto before = std::prev(hole); before->first + before->second == offset) {
    before->second += hole->second;
    holes_.erase(hole);
  }
}

bool DeviceMemory::Charge(size_t bytes) {
  std::lock_guard lock(mutex_);
  if (bytes > Knobs().memory - used_) {
    Explain("device %d has %zu of %zu bytes left, %zu are asked for (SOFTGPU_MEMORY sets how many there are)", device_,
            Knobs().memory - used_, Knobs().memory, bytes);
    return false;
  }
  used_ += bytes;
  return true;
}

void DeviceMemory::Discharge(size_t bytes) {
  std::lock_guard lock(mutex_);
  used_ -= bytes;
}

size_t DeviceMemory::capacity() const { return Knobs().memory; }

size_t DeviceMemory::free_bytes() const {
  std::lock_guard lock(mutex_);
  return Knobs().memory - used_;
}

Device* FindDevice(int ordinal) {
  static const auto* const devices = [] {
    auto* all = new std::array<Device*, kMaxDevices>{};
    for (int i = 0; i < Knobs().devices; ++i) (*all)[i] = new Device(i);
    return all;
  }();
  return ordinal >= 0 && ordinal < Knobs().devices ? (*devices)[ordinal] : nullptr;
}

CUuuid DeviceUuid(int device) {
  CUuuid uuid = {};
  std::snprintf(uuid.bytes, sizeof uuid.bytes, "gpu %d %d", device, Knobs().hides ? static_cast<int>(getpid()) : 0);
  return uuid;
}

}  // namespace softgpu::cuda
