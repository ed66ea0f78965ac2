// How what a rank publishes becomes messages.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "transports/remote/memory.h"
#include "transports/remote/wire.h"
#include "transports/transport.h"

namespace axccl::remote {

// The ranks that a message is from and to.
struct Direction {
  uint64_t comm = 0;
  uint32_t from = 0, to = 0;
};

// A message as it is sent, but for the data.
struct OutgoingHeader {
  std::array<std::byte, kMostHeaderBytes> bytes;
  size_t size = 0;

  void Write(const Direction& direction, uint32_t turn, const Memory& memory,
             std::span<const transport::Reach::Stretch> stretches, transport::Reach::LineAt line, uint16_t flags = 0);
};

// Which of several lanes to a process messages take.
class LaneChoice {
 public:
  // A message that is not large uses the first lane, so that consecutive ones arrive in order and find each other in
  // the processor's caches; a large one uses the lane with the least data under way: unsent(lane), in bytes.
  template <class Unsent>
  size_t Of(size_t lanes, size_t bytes, const Unsent& unsent) {
    if (lanes == 1 || bytes < kLargeBytes) return 0;
    // Alternates between lanes that are equal.
    size_t best = turn_;
    for (size_t i = 0; i < lanes; ++i) {
      const size_t next = (turn_ + i) % lanes;
      if (unsent(next) < unsent(best)) best = next;
    }
    turn_ = (best + 1) % lanes;
    return best;
  }

 private:
  size_t turn_ = 0;
};

// The bytes of a stretch of this rank's block, or of the peer's as they are here.
inline const std::byte* BytesOf(const Memory& memory, const transport::Reach::Stretch& stretch) {
  if (stretch.content != nullptr) return stretch.content;
  if (stretch.on_device) return memory.device()->At(stretch.of_peer, stretch.offset, stretch.bytes);
  return (stretch.of_peer ? memory.mirror() : memory.own()) + stretch.offset;
}

// The bytes of a line of this rank's block.
inline const void* BytesOf(const Memory& memory, const transport::Reach::LineAt& line) {
  return line.content != nullptr ? line.content : memory.own() + line.offset;
}

// Divides stretches into messages of kMaxStretches and `most_bytes` at most (more where a stretch must not be divided)
// and passes each to `send`, the line with the last one, which may have no stretches. A stretch on a device is a
// message of its own.
template <class Send>  // (std::span<const Stretch>, LineAt)
void CutIntoMessages(std::span<const transport::Reach::Stretch> stretches, transport::Reach::LineAt line,
                     size_t most_bytes, const Send& send) {
  using Stretch = transport::Reach::Stretch;
  Stretch some[kMaxStretches];
  size_t count = 0, bytes = 0;
  const auto pass = [&](transport::Reach::LineAt with_line) {
    send(std::span<const Stretch>(some, count), with_line);
    count = bytes = 0;
  };
  const auto add = [&](const Stretch& stretch) {
    const bool alone = stretch.on_device || (count > 0 && some[0].on_device);
    if (count == kMaxStretches || (count > 0 && alone)) pass(transport::Reach::kNoLine);
    some[count++] = stretch;
    bytes += stretch.bytes;
  };
  for (Stretch rest : stretches) {
    while (!rest.guarded && !rest.on_device && bytes + rest.bytes > most_bytes) {
      const auto first = static_cast<uint32_t>(most_bytes - std::min(bytes, most_bytes));
      if (first > 0) add({rest.offset, first, rest.of_peer, false, rest.content});
      if (rest.content != nullptr) rest.content += first;
      rest.offset += first;
      rest.bytes -= first;
      pass(transport::Reach::kNoLine);
    }
    add(rest);
  }
  pass(line);
}

}  // namespace axccl::remote
