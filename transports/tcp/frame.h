// How messages (remote/wire.h) travel on a data line: one after the other, each behind this head.
#pragma once

#include <cstddef>
#include <cstdint>

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

}  // namespace axccl::tcp
