#include "transports/remote/outgoing.h"

#include <cstring>

namespace axccl::remote {

using Stretch = transport::Reach::Stretch;

void OutgoingHeader::Write(const Direction& direction, uint32_t turn, const Memory& memory,
                           std::span<const Stretch> stretches, transport::Reach::LineAt line, uint16_t flags) {
  WireHeader head{};
  head.comm = direction.comm;
  head.from = direction.from;
  head.to = direction.to;
  head.area = memory.key();
  head.line = line.offset;
  head.stretches = static_cast<uint16_t>(stretches.size());
  head.flags = flags;
  head.turn = turn;
  if (line.offset != transport::Reach::kNoLine)
    std::memcpy(head.line_bytes, BytesOf(memory, line), transport::Reach::kLineBytes);
  std::memcpy(bytes.data(), &head, sizeof(head));
  size = sizeof(head);
  for (const Stretch& s : stretches) {
    const WireStretch wire{s.offset, s.bytes, s.of_peer, s.guarded, s.on_device, 0};
    std::memcpy(bytes.data() + size, &wire, sizeof(wire));
    size += sizeof(wire);
  }
}

}  // namespace axccl::remote
