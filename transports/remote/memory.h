// Memory that this rank shares with a peer on another machine: this rank's own, and a mirror of the peer's, which
// messages keep up to date. It is the block, or an area beside it; see transport::Reach.
//
// The memory belongs to its user: it must stay until all messages that hold this object are over. Messages are stored
// with the lock of the peer held; other threads read the mirror meanwhile.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>

#include "src/base/status.h"
#include "transports/remote/wire.h"
#include "transports/transport.h"

namespace axccl::remote {

// Maps a mirror for what comes from `peer`. Pages that receive nothing cost nothing.
Result<std::byte*> MapMirror(uint64_t bytes, uint32_t peer);

class Memory final : public transport::Reach::Area {
 public:
  // `key`: what messages call it; 0: the block.
  Memory(uint64_t key, std::byte* own, std::byte* mirror, uint64_t bytes)
      : key_(key), own_(own), mirror_(mirror), bytes_(bytes) {}
  // Maps a mirror, which ends with this object.
  static Result<std::shared_ptr<Memory>> WithMirror(uint64_t key, std::byte* own, uint64_t bytes, uint32_t peer);
  ~Memory() override;

  uint64_t key() const { return key_; }
  uint64_t bytes() const { return bytes_; }
  std::byte* own() const { return own_; }
  std::byte* mirror() const { return mirror_; }
  // Where a stretch of a received message belongs, which FitsMemory and FitsDevice.
  std::byte* PlaceOf(const WireStretch& stretch) const {
    if (stretch.on_device != 0) return device()->At(stretch.of_receiver == 0, stretch.offset, stretch.bytes);
    return (stretch.of_receiver != 0 ? own_ : mirror_) + stretch.offset;
  }
  // Whether what a message has for a device, if anything, stays within the part that is there.
  bool FitsDevice(const Message& message) const;

  // Stores the data of a message, which FitsMemory: all of its stretches, none of which is on a device.
  void Store(const Message& message, const void* data) const;
  // Stores its guarded stretches, which `data` has one after the other.
  void StoreGuarded(const Message& message, const std::byte* data) const;
  // Stores the line of such a message, if it has one. Who sees one of its words sees the data, too; the first word
  // comes last (sequentially consistent).
  void StoreLine(const WireHeader& header) const {
    if (header.line == transport::Reach::kNoLine) return;
    auto* const line = reinterpret_cast<uint64_t*>(mirror_ + header.line);
    std::array<uint64_t, transport::Reach::kLineBytes / sizeof(uint64_t)> words;
    std::memcpy(words.data(), header.line_bytes, sizeof(words));
    for (size_t i = 1; i < words.size(); ++i) __atomic_store_n(&line[i], words[i], __ATOMIC_RELEASE);
    __atomic_store_n(line, words[0], __ATOMIC_SEQ_CST);
  }

 private:
  const uint64_t key_;
  std::byte* const own_;
  std::byte* const mirror_;
  const uint64_t bytes_;
  bool mapped_ = false;
};

}  // namespace axccl::remote
