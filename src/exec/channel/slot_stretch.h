// Slots as they are published.
#pragma once

#include <cstdint>

#include "src/base/sizes.h"
#include "transports/transport.h"

namespace axccl::exec {

// Makes `next` part of the stretch before it, if it follows; returns whether it does. Slots are whole lines: a gap of
// less than a line behind a slot belongs to it, and is sent, too.
inline bool Extend(transport::Reach::Stretch* last, const transport::Reach::Stretch& next) {
  const uint64_t end = last->offset + last->bytes;
  if (next.offset < end || next.offset - end >= kCacheLine) return false;
  if (last->of_peer != next.of_peer || last->on_device != next.on_device) return false;
  if (last->guarded || next.guarded) return false;
  last->bytes = static_cast<uint32_t>(next.offset + next.bytes - last->offset);
  return true;
}

}  // namespace axccl::exec
