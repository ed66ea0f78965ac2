// A device: its memory and its attributes. There is one object per device for the life of the process.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "tools/softgpu/cuda/address_space.h"
#include "tools/softgpu/cuda/cuda_api.h"

namespace softgpu::cuda {

// A device's memory is one sparse memfd; an allocation is a piece of it, mapped where it is used. So another process
// that gets the descriptor can map any piece, and nothing remains when processes die. Thread-safe.
class DeviceMemory {
 public:
  // A piece that is mapped here; the destructor gives it back.
  class Piece {
   public:
    Piece(DeviceMemory* owner, uint64_t offset, std::unique_ptr<Mapping> mapping)
        : owner_(owner), offset_(offset), mapping_(std::move(mapping)) {}
    ~Piece();
    Piece(const Piece&) = delete;
    Piece& operator=(const Piece&) = delete;

    uint64_t offset() const { return offset_; }
    uint64_t address() const { return mapping_->address(); }

   private:
    DeviceMemory* owner_;
    uint64_t offset_;
    std::unique_ptr<Mapping> mapping_;
  };

  explicit DeviceMemory(int device);

  // Returns null if the device has no room for it.
  std::shared_ptr<Piece> Allocate(size_t bytes);
  // Charges memory that lies elsewhere (cuMemCreate) but counts as the device's. Returns false if there is no room.
  bool Charge(size_t bytes);
  void Discharge(size_t bytes);

  int descriptor() const { return descriptor_; }
  size_t capacity() const;
  size_t free_bytes() const;

 private:
  std::optional<uint64_t> TakeOffset(size_t bytes);
  void GiveBack(uint64_t offset, size_t bytes);

  const int device_;
  const int descriptor_;
  mutable std::mutex mutex_;
  size_t used_ = 0;
  uint64_t file_bytes_ = 0;
  std::map<uint64_t, size_t> holes_;  // offset -> bytes
};

struct Device {
  explicit Device(int ordinal) : ordinal(ordinal), memory(ordinal) {}

  const int ordinal;
  DeviceMemory memory;
};

// Returns null if there is no such device.
Device* FindDevice(int ordinal);
// Returns false for unknown attributes.
bool DeviceAttribute(CUdevice_attribute attribute, int device, int* value);
CUuuid DeviceUuid(int device);

}  // namespace softgpu::cuda
