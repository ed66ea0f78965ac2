#include "transports/remote/outgoing.h"

#include <cstring>

namespace axccl::remote {

using Stretch = transport::Reach::Stretch;

void OutgoingHeader::Write(const Direction& direction, uint32_t turn, const Memory& memory,
                           std::span<const Stretch> stretches, uint64_t line) {
  WireHeader head{};
  head.comm = direction.comm;
  head.from = direction.from;
  head.to = direction.to;
  head.area = memory.key();
  head.line = line;
  head.stretches = static_cast<uint32_t>(stretches.size());
  head.turn = turn;
  if (line != transport::Reach::kNoLine)
    std::memcpy(head.line_bytes, memory.own() + line, transport::Reach::kLineBytes);
  std::memcpy(bytes.data(), &head, sizeof(head));
  size = sizeof(head);
  for (const Stretch& s : stretches) {
    const WireStretch wire{s.offset, s.bytes, s.of_peer, s.guarded, {}};
    std::memcpy(bytes.data() + size, &wire, sizeof(wire));
    size += sizeof(wire);
  }
}

}  // namespace axccl::remote
