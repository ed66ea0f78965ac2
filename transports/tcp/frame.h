// How messages (remote/wire.h) travel on a data line: one after the other, each behind this head.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "transports/remote/wire.h"

namespace axccl::tcp {

enum class FrameKind : uint16_t { kMessage = 1, kControl = 2 };

struct FrameHead {
  FrameKind kind;
  uint16_t header_bytes;
  uint32_t data_bytes;
};
static_assert(sizeof(FrameHead) == 8);
inline constexpr size_t kMostFrameBytes = sizeof(FrameHead) + remote::kMostHeaderBytes;

// Whether there can be such a frame.
inline bool IsFrame(const FrameHead& head) {
  if (head.kind == FrameKind::kControl) return head.header_bytes == sizeof(remote::WireControl) && head.data_bytes == 0;
  return head.kind == FrameKind::kMessage && head.header_bytes >= sizeof(remote::WireHeader) &&
         head.header_bytes <= remote::kMostHeaderBytes;
}

// A frame that is there as a whole. Its header is still unchecked.
struct Frame {
  FrameHead head;
  std::span<const std::byte> header, data;
};
// Returns false if the bytes are not one frame.
inline bool ParseFrame(std::span<const std::byte> bytes, Frame* frame) {
  if (bytes.size() < sizeof frame->head) return false;
  std::memcpy(&frame->head, bytes.data(), sizeof frame->head);
  bytes = bytes.subspan(sizeof frame->head);
  if (!IsFrame(frame->head) || bytes.size() != uint64_t{frame->head.header_bytes} + frame->head.data_bytes)
    return false;
  frame->header = bytes.first(frame->head.header_bytes);
  frame->data = bytes.subspan(frame->head.header_bytes);
  return true;
}

}  // namespace axccl::tcp
